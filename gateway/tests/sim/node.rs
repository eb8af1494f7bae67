//! One node of the simulated fleet: its seat, its carrier, its clock, and whether it runs.

use std::rc::Rc;
use std::time::Duration;

use breaker::Snapshot;
use gateway::config;
use quorum::{CouncilRule, EndpointKey, NodeId};

use crate::carrier::Carrier;
use crate::desk::Link;
use crate::plan::{Ms, Plan};
use crate::rules;
use crate::sabotage::Sabotage;
use crate::seat::Seat;
use crate::world::events::Event;

/// Whether a node's process is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs.
    Running,
    /// It is stopped, and does not know.
    Paused,
    /// It is gone.
    Down,
}

/// Where a node's monotonic clock began and how fast it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) origin: Ms,
    /// Thousandths by which it is too fast.
    pub(crate) drift: i64,
}

/// What all nodes of a fleet are made of.
pub(crate) struct Mould {
    pub(crate) names: Rc<[NodeId]>,
    pub(crate) keys: Rc<[EndpointKey]>,
    pub(crate) pools: Vec<config::Pool>,
    pub(crate) rule: CouncilRule,
    pub(crate) sabotage: Option<Sabotage>,
}

impl Mould {
    /// What a plan's nodes are made of.
    pub(crate) fn of(plan: &Plan, sabotage: Option<Sabotage>) -> Self {
        let key = |endpoint| format!("pool-{}/e{endpoint}", plan.pool_of(endpoint));
        Self {
            names: (0..plan.nodes()).map(|node| NodeId::new(&format!("gw-{node}"))).collect(),
            keys: (0..plan.endpoints()).map(|one| EndpointKey::new(&key(one))).collect(),
            pools: rules::pools(plan, sabotage),
            rule: rules::council(plan),
            sabotage,
        }
    }
}

/// One node.
pub(crate) struct Node {
    id: NodeId,
    pub(crate) seat: Seat,
    pub(crate) carrier: Carrier,
    /// Its link to the ledger, if there is one.
    pub(crate) link: Link,
    pub(crate) clock: Clock,
    pub(crate) life: Life,
    /// The number of the process; what belongs to an earlier one is void.
    pub(crate) generation: u64,
    /// When its next round is due; other rounds in the queue are void.
    pub(crate) round_due: Ms,
    /// What reached it while it was stopped; at most [`FROZEN_MAX`].
    pub(crate) frozen: Vec<Event>,
    /// Its breakers as last written to disk, and when.
    pub(crate) saved: Option<(Ms, Vec<Snapshot>)>,
    /// Who counted when the process before ended: written to disk with every change.
    pub(crate) names: Vec<NodeId>,
    /// The greatest number pushed so far.
    pub(crate) pushed: u64,
}

/// More than this does not wait in the sockets of a stopped process.
pub(crate) const FROZEN_MAX: usize = 512;

impl Clock {
    /// What the clock shows at `now`.
    pub(crate) fn read(self, now: Ms) -> Duration {
        let rate = 1_000_i64.saturating_add(self.drift).unsigned_abs();
        Duration::from_micros(self.origin * 1_000 + now * rate)
    }

    /// The same in whole milliseconds.
    pub(crate) fn ms(self, now: Ms) -> Ms {
        self.read(now).as_millis() as Ms
    }
}

impl Node {
    /// Node `index` in its `generation`, begun at `now`.
    pub(crate) fn new(
        mould: &Mould,
        (index, generation): (usize, u64),
        (clock, now): (Clock, Ms),
    ) -> Self {
        Self {
            id: mould.names[index].clone(),
            seat: Seat::new(mould, index, clock.read(now)),
            carrier: Carrier::new((index, generation), &mould.names, mould.sabotage),
            link: Link::default(),
            clock,
            life: Life::Running,
            generation,
            round_due: 0,
            frozen: Vec::new(),
            saved: None,
            names: Vec::new(),
            pushed: 0,
        }
    }

    /// Its name.
    pub(crate) fn id(&self) -> NodeId {
        self.id.clone()
    }

    /// Writes the breakers to disk.
    pub(crate) fn save(&mut self, now: Ms) {
        let clock = self.clock.read(now);
        let snapshots = self.seat.endpoints.iter();
        let snapshots = snapshots.map(|endpoint| endpoint.snapshot(clock)).collect();
        self.saved = Some((now, snapshots));
    }

    /// Takes up what the process before had written to disk.
    pub(crate) fn take_up(&mut self, now: Ms, saved: (Ms, Vec<Snapshot>)) {
        let clock = self.clock.read(now);
        let (saved_at, snapshots) = saved;
        for (endpoint, mut snapshot) in self.seat.endpoints.iter().zip(snapshots) {
            snapshot.away = rules::time(now - saved_at);
            endpoint.restore(clock, &snapshot);
        }
    }
}
