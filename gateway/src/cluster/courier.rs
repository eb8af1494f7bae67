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

use std::sync::Arc;
use std::time::Duration;

use metrics::Histogram;
use quorum::ledger::{Answer, Call, Outcome};
use quorum::{EndpointKey, Reliance};
use redis_lua::client::{Client, Health};
use redis_lua::error::Trouble;
use redis_lua::keys::Keys;
use redis_lua::ledger::{self, Notice};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::reach::Cause;
use super::spoils::Spoils;
use super::{Link, Reach, Seat, lock};
use crate::clock;
use crate::config::OnUnavailable;
use crate::events::{Event, Kind};

/// Whoever leaves has this long to take back its words and to let go of what it leads.
const PARTING: Duration = Duration::from_secs(1);

/// Redis has this long to answer after a start before it is said that it does not.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// All entries are read within this once Redis is back; if not, it is said.
const READ_WITHIN: Duration = Duration::from_secs(3);
/// That another cause keeps it away is told no more often than this.
const RETOLD_AFTER: Duration = Duration::from_secs(10);

/// The way between one seat and the ledger.
pub struct Courier {
    seat: Arc<Seat>,
    client: Client,
    keys: Keys,
    timers: Timers,
    /// What is wrong with entries though Redis answers.
    spoils: Spoils,
    /// When it was last told how Redis fares, and with which cause.
    told: Option<(Duration, Option<Cause>)>,
}

/// How the ledger fares, its entries included.
enum Fare {
    Well,
    /// Not well; `is_all`: nothing of it can be used.
    Ill {
        cause: Cause,
        is_all: bool,
    },
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
        let (seat, spoils) = (Arc::clone(seat), Spoils::default());
        let courier = Self { seat, client, keys, timers, spoils, told: None };
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
            let fare = self.fare(found);
            self.see_to(fare);
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
        // Nobody looks after it from here on, and what Redis does is no longer this node's affair.
        self.seat.fleet().bar(false);
        self.part().await;
    }

    /// How the ledger fares, its entries included.
    fn fare(&mut self, found: Health) -> Fare {
        let (fleet, now) = (self.seat.fleet(), clock::now());
        self.spoils.tidy(now, !found.is_up(), |key| fleet.endpoint(key).is_some());
        match found {
            Health::Down { trouble, since: _, server, step } => {
                Fare::Ill { cause: Cause::Server { server, step, trouble }, is_all: true }
            }
            Health::Up => match self.spoils.look(now) {
                Some(cause) => {
                    let endpoints = fleet.endpoints().map(|(_, endpoint)| &endpoint.key);
                    Fare::Ill { cause, is_all: self.spoils.is_total(endpoints) }
                }
                None => Fare::Well,
            },
        }
    }

    /// Relies on the ledger, or no longer, by how it fares.
    fn see_to(&mut self, fare: Fare) {
        let seat = Arc::clone(&self.seat);
        let Some(reach) = seat.reach() else { return };
        let now = clock::now();
        let reached = reach.look(now);
        match (fare, reached.link) {
            (Fare::Well, Link::Up) => {}
            (Fare::Well, Link::Away(_)) => {
                seat.deputy.lose_ledger();
                self.turn(&seat, now, Link::Returning);
            }
            (Fare::Well, Link::Returning) if seat.deputy.is_reconciled() => {
                seat.deputy.rely(now, Reliance::Ledger);
                seat.fleet().bar(false);
                self.turn(&seat, now, Link::Up);
            }
            (Fare::Well, Link::Returning) => self.wait(&seat, now),
            (Fare::Ill { cause, is_all }, Link::Away(_)) => {
                reach.lose(now, cause, is_all);
                if reach.look(now).is_barred != reached.is_barred {
                    self.do_without(reach);
                }
                self.tell_anew(&seat, now);
            }
            (Fare::Ill { cause, is_all }, Link::Up | Link::Returning) => {
                seat.deputy.lose_ledger();
                reach.lose(now, cause, is_all);
                self.do_without(reach);
                self.tell(&seat, now);
            }
        }
    }

    /// Tells of a ledger that is being read for longer than that takes, with what stands in the way.
    fn wait(&mut self, seat: &Seat, now: Duration) {
        let Some(reach) = seat.reach() else { return };
        let is_long = reach.look(now).lasting >= READ_WITHIN;
        if is_long && !self.has_told_within(now, RETOLD_AFTER) {
            reach.hamper(self.spoils.newest());
            self.tell(seat, now);
        }
    }

    /// Tells of a ledger that is away since the start, once it had its time to answer, and of one that is
    /// away for another cause.
    fn tell_anew(&mut self, seat: &Seat, now: Duration) {
        let Some(reached) = seat.reach().map(|reach| reach.look(now)) else { return };
        let is_due = match &self.told {
            None => reached.lasting >= ANSWERS_WITHIN,
            Some((_, told)) => *told != reached.cause && !self.has_told_within(now, RETOLD_AFTER),
        };
        if is_due {
            self.tell(seat, now);
        }
    }

    fn has_told_within(&self, now: Duration, period: Duration) -> bool {
        self.told.as_ref().is_some_and(|(at, _)| now < at.saturating_add(period))
    }

    /// Goes by what the configuration has for the time without a ledger.
    fn do_without(&self, reach: &Reach) {
        let reliance = match reach.meanwhile() {
            OnUnavailable::Gossip => Reliance::Gossip,
            OnUnavailable::Local | OnUnavailable::FailClosed => Reliance::Alone,
        };
        let now = clock::now();
        self.seat.fleet().bar(reach.look(now).refuses());
        self.seat.deputy.rely(now, reliance);
        self.seat.parts.wake.notify_one();
    }

    /// Notes that it is so from here on, and tells what is not soon over.
    fn turn(&mut self, seat: &Seat, now: Duration, link: Link) {
        if let Some(reach) = seat.reach() {
            reach.turn(now, link);
        }
        if link == Link::Up {
            self.tell(seat, now);
        }
        seat.parts.wake.notify_one();
    }

    /// Tells how Redis fares.
    fn tell(&mut self, seat: &Seat, now: Duration) {
        let Some(reached) = seat.reach().map(|reach| reach.look(now)) else { return };
        let (state, sentence) = (reached.link.as_str(), reached.sentence());
        let (trouble, cause) = (reached.trouble(), reached.cause.as_ref());
        match reached.link {
            Link::Up => tracing::info!(state, "{sentence}"),
            Link::Returning | Link::Away(_) => {
                let detail = cause.map(|cause| cause.trouble().to_string());
                tracing::warn!(state, trouble, detail, "{sentence}");
            }
        }
        let detail = json!({
            "state": state,
            "trouble": trouble,
            "fallback": reached.fallback(),
            "server": cause.and_then(Cause::server),
            "step": cause.and_then(Cause::step),
            "entry": cause.and_then(Cause::endpoint).map(EndpointKey::as_str),
        });
        seat.parts.events.tell(Event::new(Kind::Redis, sentence).detail(detail));
        self.told = Some((now, reached.cause));
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
            let deed = ledger::script(&call.deed).name;
            self.timers.record(deed, batch.took);
            match answer {
                Ok(_) => self.spoils.went_well(&call.endpoint, deed),
                // The client knows Redis by its beats, and not what becomes of a call.
                Err(trouble) => self.spoils.failed(now, &call.endpoint, deed, *trouble),
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

/// How long calls took, by the name of the script.
struct Timers([(&'static str, Histogram); 8]);

impl Timers {
    fn new(seat: &Seat) -> Self {
        Self(ledger::scripts().map(|script| {
            let labels = [("script", script.name)];
            (script.name, seat.parts.meters.histogram("redis_operation_seconds", &labels))
        }))
    }

    fn record(&self, script: &str, took: Duration) {
        if let Some((_, timer)) = self.0.iter().find(|(name, _)| *name == script) {
            timer.record(took.as_secs_f64());
        }
    }
}
