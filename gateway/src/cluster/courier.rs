//! Carries this node's calls to the ledger, and brings its answers back.
//!
//! What is to be called, and what an answer means, is the deputy's affair. Here it is only carried, by
//! a task of its own: neither a round of the seat nor a request ever waits for Redis. The same task says
//! on what the council relies: on the ledger once every entry was read, and as soon as Redis does not
//! answer well on what the configuration has for that.
//!
//! Invariants:
//! - The council relies on the ledger only while Redis answers well, and after all of it was read.
//! - Calls under way are bounded by the clerk; each ends within the client's deadline.
//! - Who leaves in good order takes back its words, or lets them lapse where Redis is away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::Histogram;
use quorum::ledger::{Answer, Call, Deed, Outcome};
use quorum::{EndpointKey, Reliance};
use redis_lua::client::{Client, Health};
use redis_lua::error::Trouble;
use redis_lua::keys::Keys;
use redis_lua::ledger::{self, Notice};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Link, Reach, Seat, lock};
use crate::clock;
use crate::config::OnUnavailable;
use crate::events::{Event, Kind};

/// Whoever leaves has this long to take back its words and to let go of what it leads.
const PARTING: Duration = Duration::from_secs(1);

/// Redis has this long to answer after a start before it is said that it does not.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// An entry that cannot be used for this long is as bad as no ledger: nobody could flip that endpoint.
const SPOILED_FOR: Duration = Duration::from_millis(500);
/// So is one that is not answered of for this long while Redis answers of others, for example since
/// two servers of a cluster send all calls for its slot to each other. Several intervals: one call that
/// was late says nothing.
const UNANSWERED_FOR: Duration = Duration::from_secs(3);

/// The way between one seat and the ledger.
pub struct Courier {
    seat: Arc<Seat>,
    client: Client,
    keys: Keys,
    timers: Timers,
    /// Endpoints whose entries cannot be used though Redis answers, why, and since when. Bounded by the
    /// endpoints.
    spoiled: BTreeMap<EndpointKey, (Trouble, Duration)>,
    /// Whether anything was told of how Redis fares.
    has_told: bool,
}

/// Some calls with what became of them, in the same order.
struct Batch {
    calls: Vec<Call>,
    answers: Vec<Result<Answer, Trouble>>,
    took: Duration,
}

impl Courier {
    /// A courier for `seat`, to the ledger that `client` speaks with. Until it runs, and for as long as
    /// Redis does not answer, the seat goes by what the configuration has for that.
    pub fn new(seat: &Arc<Seat>, client: Client, keys: Keys) -> Self {
        let timers = Timers::new(seat);
        let spoiled = BTreeMap::new();
        let courier =
            Self { seat: Arc::clone(seat), client, keys, timers, spoiled, has_told: false };
        if let Some(reach) = courier.seat.reach() {
            courier.do_without(reach);
        }
        courier
    }

    /// Carries until `stop`, and then takes leave.
    ///
    /// # Cancel safety
    /// Calls that are under way may be done all the same; words lapse by themselves.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut batches: JoinSet<Batch> = JoinSet::new();
        let (mut notices, mut health) = (self.client.notices(), self.client.health());
        let mut is_told = true;
        loop {
            let found = health.borrow_and_update().clone();
            let found = self.health(found);
            self.see_to(&found);
            self.send(&mut batches);
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                // After each round, ten of which there are in a second at least.
                () = self.seat.rounds.notified() => {}
                Some(done) = batches.join_next() => {
                    if let Ok(batch) = done {
                        self.take(&batch);
                    }
                }
                changed = health.changed() => {
                    if changed.is_err() {
                        break;
                    }
                }
                notice = notices.recv(), if is_told => match notice {
                    Ok(notice) => {
                        self.note(&notice);
                        // What came with it, so that many at once make for one look at what is due; as
                        // many as the channel holds at most.
                        while let Ok(notice) = notices.try_recv() {
                            self.note(&notice);
                        }
                    }
                    // What was missed is found when the entries are read in turn.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => is_told = false,
                },
            }
        }
        self.part().await;
    }

    /// How Redis fares, entries that cannot be used included.
    fn health(&mut self, found: Health) -> Health {
        let fleet = self.seat.fleet();
        let is_up = found.is_up();
        // While nothing is answered, that says nothing of one entry.
        self.spoiled.retain(|key, (trouble, _)| {
            fleet.endpoint(key).is_some() && (is_up || !trouble.is_everywhere())
        });
        let now = clock::now();
        let is_lasting = |(trouble, since): &&(Trouble, Duration)| {
            let patience = if trouble.is_everywhere() { UNANSWERED_FOR } else { SPOILED_FOR };
            now >= *since + patience
        };
        match (&found, self.spoiled.values().find(is_lasting)) {
            (Health::Up, Some((trouble, _))) => Health::Down {
                trouble: *trouble,
                since: clock::instant().into_std(),
                server: String::new(),
                step: "call",
            },
            (Health::Up | Health::Down { .. }, _) => found,
        }
    }

    /// Relies on the ledger, or no longer, by how Redis fares.
    fn see_to(&mut self, health: &Health) {
        let seat = Arc::clone(&self.seat);
        let Some(reach) = seat.reach() else { return };
        let now = clock::now();
        let link = reach.look(now).link;
        match (health, link) {
            (Health::Up, Link::Up) => {}
            (Health::Up, Link::Away(_)) => {
                self.seat.deputy.lose_ledger();
                self.turn(&seat, now, Link::Returning);
            }
            (Health::Up, Link::Returning) => {
                if self.seat.deputy.is_reconciled() {
                    self.seat.deputy.rely(now, Reliance::Ledger);
                    self.seat.fleet().bar(false);
                    self.turn(&seat, now, Link::Up);
                }
            }
            (Health::Down { trouble, .. }, Link::Away(_)) => {
                reach.turn(now, Link::Away(trouble.kind()));
                // A start without Redis is told as well, once it had its time to answer.
                if !self.has_told && reach.look(now).lasting >= ANSWERS_WITHIN {
                    self.tell(&seat, now);
                }
            }
            (Health::Down { trouble, .. }, Link::Up | Link::Returning) => {
                self.seat.deputy.lose_ledger();
                self.do_without(reach);
                self.turn(&seat, now, Link::Away(trouble.kind()));
            }
        }
    }

    /// Goes by what the configuration has for the time without a ledger.
    fn do_without(&self, reach: &Reach) {
        let (reliance, is_barred) = match reach.meanwhile() {
            OnUnavailable::Gossip => (Reliance::Gossip, false),
            OnUnavailable::Local => (Reliance::Alone, false),
            OnUnavailable::FailClosed => (Reliance::Alone, true),
        };
        self.seat.fleet().bar(is_barred);
        self.seat.deputy.rely(clock::now(), reliance);
        self.seat.parts.wake.notify_one();
    }

    /// Notes and tells that it is so from here on.
    fn turn(&mut self, seat: &Seat, now: Duration, link: Link) {
        if let Some(reach) = seat.reach() {
            reach.turn(now, link);
            self.tell(seat, now);
        }
        seat.parts.wake.notify_one();
    }

    /// Tells how Redis fares. That it is being read is soon over; what follows is told.
    fn tell(&mut self, seat: &Seat, now: Duration) {
        let Some(reached) = seat.reach().map(|reach| reach.look(now)) else { return };
        let (state, sentence) = (reached.link.as_str(), reached.sentence());
        match reached.link {
            Link::Returning => return,
            Link::Up => tracing::info!(state, "{sentence}"),
            Link::Away(trouble) => tracing::warn!(state, trouble, "{sentence}"),
        }
        self.has_told = true;
        let (trouble, fallback) = (reached.link.trouble(), reached.fallback());
        let detail = json!({ "state": state, "trouble": trouble, "fallback": fallback });
        seat.parts.events.tell(Event::new(Kind::Redis, sentence).detail(detail));
    }

    /// Sends what is due.
    fn send(&self, batches: &mut JoinSet<Batch>) {
        let is_up = self.client.health().borrow().is_up();
        let calls = if is_up { self.seat.deputy.calls(clock::now()) } else { Vec::new() };
        if calls.is_empty() {
            return;
        }
        let (client, keys) = (self.client.clone(), self.keys.clone());
        batches.spawn(async move {
            let began = clock::instant();
            let answers = ledger::call_all(&client, &keys, &calls).await;
            Batch { calls, answers, took: clock::instant().saturating_duration_since(began) }
        });
    }

    /// Takes in what became of some calls.
    fn take(&mut self, batch: &Batch) {
        let now = clock::now();
        for (call, answer) in batch.calls.iter().zip(&batch.answers) {
            self.timers.of(&call.deed).record(batch.took.as_secs_f64());
            match answer {
                Ok(_) => drop(self.spoiled.remove(&call.endpoint)),
                Err(Trouble::Busy) => {}
                // What is wrong with Redis as a whole, its client says; what is wrong with one entry
                // shows by lasting.
                Err(trouble) => {
                    self.spoiled.entry(call.endpoint.clone()).or_insert((*trouble, now));
                }
            }
            let answer = answer.as_ref().ok();
            let outcome = answer.map(|answer| answer.outcome);
            if matches!(outcome, Some(Outcome::Stale | Outcome::Led | Outcome::Fenced))
                && let Some(reach) = self.seat.reach()
            {
                reach.conflicted();
            }
            self.seat.deputy.answered(now, call, answer);
        }
        // What was decided comes out of a round.
        self.seat.parts.wake.notify_one();
    }

    /// Hears that somebody has changed an entry.
    fn note(&self, notice: &[u8]) {
        if let Some(Notice { endpoint, version }) = Notice::read(notice) {
            self.seat.deputy.noticed(&endpoint, version);
        }
    }

    /// Takes back this node's words and lets go of what it leads, if it has left the fleet.
    async fn part(&self) {
        if lock(&self.seat.card).standing != quorum::Standing::Left {
            return;
        }
        let calls = self.seat.deputy.parting(clock::now());
        let said = ledger::call_all(&self.client, &self.keys, &calls);
        match tokio::time::timeout(PARTING, said).await {
            Ok(answers) if answers.iter().all(Result::is_ok) => {}
            Ok(_) | Err(_) => tracing::info!("what this node said in Redis lapses by itself"),
        }
    }
}

/// How long calls took, by script.
struct Timers {
    read: Histogram,
    cast: Histogram,
    take: Histogram,
    renew: Histogram,
    release: Histogram,
    advance: Histogram,
    carry: Histogram,
    order: Histogram,
}

impl Timers {
    fn new(seat: &Seat) -> Self {
        let timer =
            |script| seat.parts.meters.histogram("redis_operation_seconds", &[("script", script)]);
        Self {
            read: timer("read"),
            cast: timer("cast"),
            take: timer("take"),
            renew: timer("renew"),
            release: timer("release"),
            advance: timer("advance"),
            carry: timer("carry"),
            order: timer("order"),
        }
    }

    fn of(&self, deed: &Deed) -> &Histogram {
        match deed {
            Deed::Read => &self.read,
            Deed::Cast(_) => &self.cast,
            Deed::Take { .. } => &self.take,
            Deed::Renew { .. } => &self.renew,
            Deed::Release { .. } => &self.release,
            Deed::Advance { .. } => &self.advance,
            Deed::Carry(_) => &self.carry,
            Deed::Order(_) => &self.order,
        }
    }
}
