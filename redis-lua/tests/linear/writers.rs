//! Two writers, a thousand times a second each, on one entry: no update is lost.
//!
//! The step that they write is a counter in effect: each raises the turn of the canary slot by one, on
//! the version that it knows. Orders in between raise the version as well. If no update was lost, the
//! turn at the end is the number of steps that were acknowledged, and the version has risen by the
//! number of all writes that were.

use std::time::{Duration, Instant};

use quorum::ledger::{Against, Answer, Begin, Call, Deed, Entry, Outcome, Word};
use quorum::{EndpointKey, Forced, NodeId, Override, Stage, Step};
use redis_lua::client::Client;
use redis_lua::error::Trouble;
use redis_lua::keys::Keys;
use redis_lua::ledger as store;
use tokio::time::MissedTickBehavior;

use crate::ledger::TERM;

/// How often each writes.
const PACE: Duration = Duration::from_millis(1);
/// How many writes each makes.
const WRITES: u32 = 3_000;
/// One write of so many is an order.
const ORDER_ONE_OF: u32 = 10;
/// So often a write is tried in one round; then it lets the other go ahead for a moment.
const TRIES: u32 = 8;
/// The longest such moment.
const MOMENT: Duration = Duration::from_millis(10);
/// No write takes more rounds, on however busy a machine.
const ROUNDS_MAX: u32 = 100;
/// How long a call may take on a machine that has much else to do.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

/// One connection that writes.
pub(crate) struct Writer {
    client: Client,
    keys: Keys,
    /// Whose steps these are: both writers have the lead in hand.
    leader: NodeId,
    /// Whose orders these are.
    me: NodeId,
    endpoint: EndpointKey,
    lead: u64,
    entry: Entry,
    tally: Tally,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Steps that were acknowledged.
    pub(crate) steps: u32,
    /// Orders that were acknowledged.
    pub(crate) orders: u32,
    /// Writes that were refused since another had come first.
    pub(crate) conflicts: u32,
    /// The most tries of one write.
    pub(crate) tries_max: u32,
    /// How long each call took.
    pub(crate) took: Vec<Duration>,
}

impl Writer {
    /// Opens the endpoint, takes the lead, and goes as far as the canary slot.
    pub(crate) async fn begin(client: Client, keys: &Keys, endpoint: &EndpointKey) -> Self {
        let leader = NodeId::new("gw-1");
        let (keys, endpoint) = (keys.clone(), endpoint.clone());
        let (entry, tally) = (Entry::default(), Tally::default());
        let me = leader.clone();
        let mut writer = Self { client, keys, leader, me, endpoint, lead: 0, entry, tally };
        let vote = Some(Against { incident: 1, is_first_hand: true });
        let opening = Some(Begin { level: 0, cool_down: TERM });
        let word = Word { seq: 1, vote, lease: TERM, electorate: 1, opening, ..Word::default() };
        assert_eq!(writer.make(Deed::Cast(word)).await.outcome, Outcome::Opened);
        assert_eq!(writer.make(Deed::Take { hold: TERM }).await.outcome, Outcome::Done);
        writer.lead = writer.entry.lead.as_ref().unwrap().number;
        let step = writer.next_step();
        let number = writer.lead;
        assert_eq!(writer.make(Deed::Advance { number, step }).await.outcome, Outcome::Done);
        writer.tally = Tally::default();
        writer
    }

    /// A gateway's connection with the same lead in hand, and with orders of its own.
    pub(crate) fn hand(&self, client: Client, me: &str) -> Self {
        Self {
            client,
            keys: self.keys.clone(),
            leader: self.leader.clone(),
            me: NodeId::new(me),
            endpoint: self.endpoint.clone(),
            lead: self.lead,
            entry: self.entry.clone(),
            tally: Tally::default(),
        }
    }

    /// The entry as the ledger has it.
    pub(crate) async fn read(&mut self) -> Entry {
        self.make(Deed::Read).await.entry
    }

    /// Writes at its pace; what came of it.
    pub(crate) async fn write(mut self) -> Tally {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for count in 1..=WRITES {
            pace.tick().await;
            let is_order = count % ORDER_ONE_OF == 0;
            let mut tries = 0;
            let mut is_done = false;
            while !is_done {
                tries += 1;
                assert!(tries <= TRIES * ROUNDS_MAX, "write {count} was refused for ever");
                let deed = match is_order {
                    true => Deed::Order(self.next_order()),
                    false => Deed::Advance { number: self.lead, step: self.next_step() },
                };
                let outcome = self.make(deed).await.outcome;
                is_done = outcome == Outcome::Done;
                assert!(is_done || outcome == Outcome::Stale, "{outcome:?}");
                self.tally.conflicts += u32::from(!is_done);
                if !is_done && tries % TRIES == 0 {
                    tokio::time::sleep(MOMENT.mul_f64(fastrand::f64())).await;
                }
            }
            self.tally.tries_max = self.tally.tries_max.max(tries);
            self.tally.steps += u32::from(!is_order);
            self.tally.orders += u32::from(is_order);
        }
        self.tally
    }

    /// Makes a call, and takes in what stands thereafter.
    async fn make(&mut self, deed: Deed) -> Answer {
        let by = if matches!(deed, Deed::Order(_)) { &self.me } else { &self.leader };
        let call = Call {
            endpoint: self.endpoint.clone(),
            by: by.clone(),
            generation: 1,
            floor: self.entry.floor,
            deed,
        };
        let began = Instant::now();
        let answer: Result<Answer, Trouble> = store::call(&self.client, &self.keys, &call).await;
        self.tally.took.push(began.elapsed());
        let answer = answer.unwrap();
        self.entry = answer.entry.clone();
        answer
    }

    fn next_step(&self) -> Step {
        let step = self.entry.step.clone().unwrap();
        let turn = match step.stage {
            Stage::Canary { turn, .. } => turn + 1,
            Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Closed => 0,
        };
        let holder = self.me.clone();
        Step { stage: Stage::Canary { holder, turn, successes: 0, remaining: TERM }, ..step }
    }

    fn next_order(&self) -> Override {
        let stamp = self.entry.order.as_ref().map_or(0, |order| order.stamp) + 1;
        let (author, reason) = (self.me.clone(), "a drill".to_owned());
        Override { forced: Forced::Auto, stamp, author, remaining: None, reason }
    }
}

impl Tally {
    /// Takes another writer's in.
    pub(crate) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.orders += other.orders;
        self.conflicts += other.conflicts;
        self.tries_max = self.tries_max.max(other.tries_max);
        self.took.extend(other.took);
    }

    /// Its figures in words.
    pub(crate) fn told(&self) -> String {
        let Self { steps, orders, conflicts, tries_max, .. } = self;
        let mut took = self.took.clone();
        took.sort_unstable();
        let of = |percent: usize| took[(took.len() * percent).div_ceil(100).max(1) - 1];
        let (half, most) = (of(50), of(99));
        format!(
            "{steps} steps, {orders} orders, {conflicts} conflicts, at most {tries_max} tries; \
             a call took {half:?} (p50), {most:?} (p99)"
        )
    }
}

/// How far the counter is.
pub(crate) fn turn_of(entry: &Entry) -> u32 {
    match &entry.step.as_ref().unwrap().stage {
        Stage::Canary { turn, .. } => *turn,
        Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Closed => 0,
    }
}
