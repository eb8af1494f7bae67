//! How a gateway goes: not ready at once, then out of the fleet, without connections, without streams.
//!
//! Two things go on side by side. Towards the clients: every answer says that it is the last on its
//! connection, for the drain's delay new connections are served, then none is; what still flows has the
//! drain's time-out to finish. Towards the fleet: it drains, and leaves as soon as it is to end or was
//! asked to. An operator may drain it and leave it at that: it stays a member, its admin API answers,
//! and it waits for its end.
//!
//! Invariants: it goes ever further, never back; the fleet hears that it drains before it hears that
//! it has left; once it has left it decides nothing, for its own vote is none any more; what a request
//! needs to be served well (deadlines, figures, the state file) goes on until no client is left.

use std::sync::Arc;
use std::time::Duration;

use gossip::Mine;
use quorum::{MemberVerb, Standing};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::Admin;
use crate::clock;
use crate::cluster::Seat;
use crate::events::{Event, Kind};
use crate::health::Checks;
use crate::reload::Reload;
use crate::server::Server;

/// Leaving the fleet waits this long for the last word to go out.
const LAST_WORD: Duration = Duration::from_secs(2);
/// The fleet sees a member drain for this long before it has left: its recoveries and the canary slot
/// are handed on in good order. Not longer than the drain's delay.
const HAND_OVER: Duration = Duration::from_millis(250);

/// How far a gateway is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Going {
    Staying,
    /// Out of traffic; still a member.
    Draining,
    /// Out of the fleet as well.
    Leaving,
    /// And then out of being.
    Ending,
    /// Whatever is not finished is cut.
    AtOnce,
}

/// Cuts a shutdown short.
#[derive(Debug)]
pub struct Hurry(pub(super) watch::Sender<Going>);

impl Hurry {
    /// Whatever is not finished is cut from here on.
    pub fn up(&self) {
        self.0.send_replace(Going::AtOnce);
    }
}

/// What a departure is told: by its owner, and by operators.
#[derive(Clone)]
pub(super) struct Told {
    going: watch::Receiver<Going>,
    asked: watch::Receiver<Option<MemberVerb>>,
}

impl Told {
    pub(super) fn new(seat: &Seat, going: watch::Receiver<Going>) -> Self {
        Self { going, asked: seat.asked() }
    }

    fn level(&self) -> Going {
        let asked = match *self.asked.borrow() {
            None | Some(MemberVerb::Forget) => Going::Staying,
            Some(MemberVerb::Drain) => Going::Draining,
            Some(MemberVerb::Leave) => Going::Leaving,
        };
        asked.max(*self.going.borrow())
    }

    /// Waits until it is to go this far. Returns false if nobody is there any more to say so.
    async fn reaches(&mut self, level: Going) -> bool {
        while self.level() < level {
            let changed = tokio::select! {
                changed = self.going.changed() => changed,
                changed = self.asked.changed() => changed,
            };
            if changed.is_err() {
                return false;
            }
        }
        true
    }
}

/// What has to be taken apart.
pub(super) struct Departure {
    pub(super) admin: Arc<Admin>,
    pub(super) seat: Arc<Seat>,
    pub(super) server: Server,
    pub(super) mine: watch::Receiver<Mine>,
    pub(super) membership: Tasks,
    pub(super) service: Tasks,
    pub(super) checks: Arc<Checks>,
    /// Where it stands how long new connections are still served, and how long streams may take to
    /// finish after that.
    pub(super) reload: Arc<Reload>,
}

impl Departure {
    /// Waits for the word to go, and goes. It ends when there is nothing left but the admin API.
    pub(super) async fn run(self, mut told: Told) {
        if !told.reaches(Going::Draining).await {
            return;
        }
        let Self { admin, seat, server, mine, membership, service, checks, reload } = self;
        let config = reload.config();
        let (delay, patience) = (config.server.drain_delay, config.server.drain_timeout);
        admin.drain();
        seat.stand(Standing::Draining);
        tell(&seat, "draining", "this node drains");
        let membership = Membership { seat: Arc::clone(&seat), mine, tasks: membership, checks };
        let clients = part(&seat, server, (delay, patience), told.clone());
        tokio::join!(membership.end(delay.min(HAND_OVER), told), clients);
        service.end().await;
    }
}

/// What runs beside the requests until it is stopped.
#[derive(Default)]
pub(super) struct Tasks {
    stop: watch::Sender<bool>,
    running: Vec<JoinHandle<()>>,
    /// Those that they need to their end.
    behind: Option<Box<Tasks>>,
}

impl Tasks {
    /// What they are told.
    pub(super) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Runs another, which is to end when it is told to stop.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.push(tokio::spawn(task));
    }

    /// Those that are stopped when these have ended.
    pub(super) fn behind(&mut self) -> &mut Self {
        self.behind.get_or_insert_default()
    }

    /// Stops them; each gets [`LAST_WORD`] to end.
    async fn end(self) {
        let mut next = Some(self);
        while let Some(Self { stop, running, behind }) = next {
            let _ = stop.send_replace(true);
            for task in running {
                let _ = tokio::time::timeout(LAST_WORD, task).await;
            }
            next = behind.map(|tasks| *tasks);
        }
    }
}

/// Lets the clients go.
async fn part(
    seat: &Seat,
    server: Server,
    (delay, patience): (Duration, Duration),
    mut told: Told,
) {
    server.announce();
    tokio::select! {
        () = tokio::time::sleep(delay) => {}
        _ = told.reaches(Going::AtOnce) => {}
    }
    let hurry = async {
        told.reaches(Going::AtOnce).await;
    };
    let has_finished = server.drain(patience, hurry).await;
    seat.drained();
    let what = match has_finished {
        true => "this node has drained: no connection is left",
        false => "this node has drained: its time was over, and what was left was cut",
    };
    tell(seat, "drained", what);
}

/// What makes the gateway a member.
struct Membership {
    seat: Arc<Seat>,
    mine: watch::Receiver<Mine>,
    tasks: Tasks,
    checks: Arc<Checks>,
}

impl Membership {
    /// Leaves the fleet when it is time to.
    async fn end(mut self, hand_over: Duration, mut told: Told) {
        let drains_until = clock::instant() + hand_over;
        if !told.reaches(Going::Leaving).await {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(drains_until) => {}
            _ = told.reaches(Going::AtOnce) => {}
        }
        self.checks.end();
        self.seat.stand(Standing::Left);
        tell(&self.seat, "left", "this node has left the fleet");
        let has_left =
            |mine: &Mine| mine.card.as_ref().is_some_and(|card| card.standing == Standing::Left);
        let _ = tokio::time::timeout(LAST_WORD, self.mine.wait_for(has_left)).await;
        self.tasks.end().await;
    }
}

/// Says how far it has come, in the log and to those who follow the events.
fn tell(seat: &Seat, state: &'static str, what: &'static str) {
    tracing::info!(state, "{what}");
    seat.events().tell(Event::new(Kind::Drain, what).detail(json!({ "state": state })));
}
