//! The one task that speaks to the fleet's ledger for all limits of this node.
//!
//! At most one turn of a subject is under way: what comes meanwhile goes into the next, so that a crowd
//! that asks at once costs two round trips and not one each.
//!
//! Invariants: at most [`TURNS_MAX`] turns are under way, at most [`WAITING_MAX`] demands of a subject
//! wait, at most [`SUBJECTS_MAX`] subjects are known; what finds no place is decided without the ledger.
//! A place that nobody waits for is given back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis_lua::client::{Client, Health};
use redis_lua::error::Trouble;
use redis_lua::keys::Keys;
use redis_lua::limits::{Answer, DEMANDS_MAX, Subject, Turn, turn};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::link::{ASK_MAX, Demand, Intake, Link, SUBJECTS_MAX, Standing};
use super::{Allowance, Share, Whom};
use crate::clock;
use crate::metrics::Meters;

/// What is not urgent is said this often.
const TICK: Duration = Duration::from_millis(100);
/// Most turns under way.
const TURNS_MAX: usize = 256;
/// Most demands of one subject that wait for its next turn.
const WAITING_MAX: usize = 4_096;
/// At the end everything is given back within this.
const FAREWELL: Duration = Duration::from_millis(200);

/// Where a fleet keeps its limits, and as whom this node speaks there.
pub struct Ledger {
    /// The way to it.
    pub client: Client,
    /// What its keys are called.
    pub keys: Keys,
    /// This node.
    pub node: String,
    /// Which life of it.
    pub generation: u64,
}

/// Keeps the limits of `share` in a ledger from here on. The future must be polled for that to be so; when
/// it ends, at `stopped`, this node goes by its share again.
pub fn keep(
    ledger: Ledger,
    share: &Share,
    meters: &Meters,
    stopped: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + use<> {
    let (link, intake) = Link::new(meters);
    share.join(&link);
    let teller = Teller { ledger, link, known: HashMap::new(), turns: JoinSet::new() };
    teller.run(intake, stopped)
}

struct Teller {
    ledger: Ledger,
    link: Arc<Link>,
    /// At most [`SUBJECTS_MAX`].
    known: HashMap<Whom, Entry>,
    /// At most [`TURNS_MAX`].
    turns: JoinSet<Turned>,
}

/// What is known of one subject.
struct Entry {
    allowance: Arc<Allowance>,
    subject: Arc<Subject>,
    /// At most [`WAITING_MAX`].
    waiting: VecDeque<Demand>,
    is_busy: bool,
    /// Whether there is something that cannot wait for the next tick.
    is_urgent: bool,
}

/// A turn that was taken, or not.
struct Turned {
    allowance: Arc<Allowance>,
    turn: Turn,
    demands: Vec<Demand>,
    sent: Duration,
    result: Result<Answer, Trouble>,
}

impl Teller {
    async fn run(mut self, mut intake: Intake, mut stopped: watch::Receiver<bool>) {
        let mut health = self.ledger.client.health();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.stand(&health.borrow_and_update());
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => break,
                changed = health.changed() => {
                    // Without its supervisor the client answers nobody.
                    if changed.is_err() { break }
                    self.stand(&health.borrow_and_update());
                }
                Some(turned) = self.turns.join_next() => self.turned(turned.ok()),
                Some(demand) = intake.demands.recv() => self.demand(demand),
                Some(allowance) = intake.told.recv() => self.told(&allowance),
                _ = tick.tick() => self.tick(),
            }
        }
        self.farewell().await;
    }

    fn stand(&self, health: &Health) {
        match health {
            Health::Up => self.link.stand(Standing::Quick),
            Health::Down { .. } => self.link.stand(Standing::Away),
        }
    }

    fn demand(&mut self, demand: Demand) {
        let whom = demand.allowance.whom().clone();
        let allowance = Arc::clone(&demand.allowance);
        let Some(entry) = self.entry(&allowance) else { return };
        // The newest limits are those of whoever asks; what runs on may have begun under others.
        entry.allowance = allowance;
        if entry.waiting.len() < WAITING_MAX {
            entry.waiting.push_back(demand);
            self.turn(&whom);
        }
    }

    fn told(&mut self, allowance: &Arc<Allowance>) {
        if let Some(entry) = self.entry(allowance) {
            entry.is_urgent = true;
            self.turn(allowance.whom());
        }
    }

    /// What is known of a subject.
    fn entry(&mut self, allowance: &Arc<Allowance>) -> Option<&mut Entry> {
        let whom = allowance.whom();
        if !self.known.contains_key(whom) {
            if self.known.len() >= SUBJECTS_MAX {
                return None;
            }
            let subject = Subject::new(&self.ledger.keys, whom.kind, &whom.name);
            let entry = Entry {
                allowance: Arc::clone(allowance),
                subject: Arc::new(subject),
                waiting: VecDeque::new(),
                is_busy: false,
                is_urgent: false,
            };
            self.known.insert(whom.clone(), entry);
        }
        self.known.get_mut(whom)
    }

    /// Takes the next turn of a subject, if there is something to say and none is under way.
    fn turn(&mut self, whom: &Whom) {
        if self.link.standing() == Standing::Away || self.turns.len() >= TURNS_MAX {
            // Those who wait are answered by their share.
            if let Some(entry) = self.known.get_mut(whom) {
                entry.waiting.clear();
            }
            return;
        }
        let Some(entry) = self.known.get_mut(whom).filter(|entry| !entry.is_busy) else { return };
        let mut demands = Vec::new();
        while demands.len() < DEMANDS_MAX
            && let Some(demand) = entry.waiting.pop_front()
        {
            if !demand.reply.is_closed() {
                demands.push(demand);
            }
        }
        let tokens: Vec<u64> = demands.iter().map(|demand| demand.tokens).collect();
        entry.is_urgent = false;
        let now = clock::now();
        let Some(turn) = entry.allowance.compose(now, &tokens) else { return };
        entry.is_busy = true;
        let (node, generation) = (self.ledger.node.clone(), self.ledger.generation);
        let turn = Turn { node, generation, ..turn };
        let Ledger { client, keys, .. } = &self.ledger;
        let (client, keys, subject) = (client.clone(), keys.clone(), Arc::clone(&entry.subject));
        let allowance = Arc::clone(&entry.allowance);
        self.turns.spawn(async move {
            let result = self::turn(&client, &keys, &subject, &turn).await;
            Turned { allowance, turn, demands, sent: now, result }
        });
    }

    /// Takes what became of a turn; `None`: it was cut off.
    fn turned(&mut self, turned: Option<Turned>) {
        let Some(Turned { allowance, turn, demands, sent, result }) = turned else {
            // Nobody knows whose it was, and no subject must wait for it for ever.
            self.known.values_mut().for_each(|entry| entry.is_busy = false);
            return;
        };
        let now = clock::now();
        self.measure(now.saturating_sub(sent), result.as_ref().err());
        if let Some(torn) = result.as_ref().ok().map(|answer| answer.torn).filter(|torn| *torn > 0)
        {
            tracing::warn!(whom = %allowance.whom().name, torn, "limits in Redis cannot be read");
        }
        let answer = result.as_ref().map_err(|trouble| *trouble);
        let (decided, lost) = allowance.settled((sent, now), &turn, answer);
        self.link.lose(lost);
        for (demand, decision) in demands.into_iter().zip(decided) {
            if let Err(Ok(charge)) = demand.reply.send(decision) {
                charge.cancel();
            }
        }
        let Some(entry) = self.known.get_mut(allowance.whom()) else { return };
        entry.is_busy = false;
        if entry.is_urgent || !entry.waiting.is_empty() {
            self.turn(allowance.whom());
        }
    }

    /// Whether somebody can wait for a ledger that takes so long.
    fn measure(&self, took: Duration, trouble: Option<&Trouble>) {
        if self.link.standing() == Standing::Away {
            return;
        }
        let is_quick = took <= ASK_MAX && trouble.is_none();
        self.link.stand(if is_quick { Standing::Quick } else { Standing::Slow });
    }

    fn tick(&mut self) {
        if self.link.standing() == Standing::Away {
            return;
        }
        let all: Vec<Whom> = self.known.keys().cloned().collect();
        for whom in &all {
            self.turn(whom);
        }
        self.known.retain(|_, entry| {
            entry.is_busy || !entry.waiting.is_empty() || !entry.allowance.is_done()
        });
        // Whoever asks next measures how quick it is.
        if self.turns.is_empty() && self.link.standing() == Standing::Slow {
            self.link.stand(Standing::Quick);
        }
    }

    /// Gives back what is held, so that nobody waits for its lease.
    async fn farewell(mut self) {
        let all: Vec<Whom> = self.known.keys().cloned().collect();
        for whom in &all {
            if let Some(entry) = self.known.get_mut(whom) {
                entry.allowance.relinquish();
                entry.is_busy = false;
                self.turn(whom);
            }
        }
        self.link.stand(Standing::Away);
        let last = async { while self.turns.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, last).await;
    }
}
