//! What a run is: the fleet, its traffic, and the faults with their times, all drawn from one seed.
//!
//! A plan is plain data, so that a failing one can be made smaller, written down and run again. The
//! chance that a run itself needs (delays, losses, arrivals) comes from the plan's seed as well.

mod draw;
mod text;

/// Milliseconds of virtual time since the start of the run.
pub(crate) type Ms = u64;

/// No fleet of a plan is larger: sets of nodes are bit masks.
pub(crate) const NODES_MAX: usize = 50;

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// How many endpoints each pool has.
    pub(crate) pools: Vec<usize>,
    /// Client requests that each node gets in 100 s; one number for each node.
    pub(crate) rates: Vec<u64>,
    /// How many of a thousand prompts are small.
    pub(crate) small: u64,
    pub(crate) knobs: Knobs,
    /// When the last fault is over.
    pub(crate) length: Ms,
    pub(crate) faults: Vec<Fault>,
    /// Whether the fleet has a ledger.
    pub(crate) has_ledger: bool,
}

/// The configuration that varies from plan to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Knobs {
    /// Whether only observers count.
    pub(crate) of_observers: bool,
    /// How much of a pool may be out, in thousandths.
    pub(crate) share: u32,
    /// Whether the ladder begins with a probe.
    pub(crate) has_probe: bool,
    /// Successes on the canary rung; 0: recovery is lazy.
    pub(crate) canaries: u32,
    /// Whether a request for which all is out goes out all the same.
    pub(crate) passes_through: bool,
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) from: Ms,
    pub(crate) to: Ms,
    pub(crate) what: What,
}

/// What goes wrong. Nodes and endpoints are given by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The nodes of the mask and the others do not hear each other.
    Parted { mask: u64 },
    /// What one node sends does not reach another.
    Deaf { from: usize, to: usize },
    /// One node hears nobody and is heard by nobody; swizzled when several overlap.
    Cut { node: usize },
    /// Packets are lost and doubled by so many in a thousand and delayed by up to so many ms.
    Rough { loss: u64, doubled: u64, delay: u64 },
    /// So many pushes of a thousand are lost; gossip goes on.
    Unpushed { loss: u64 },
    /// The process is killed, and started anew at the end with what the snapshot says.
    Crash { node: usize, has_snapshot: bool },
    /// The process is stopped, and goes on at the end.
    Pause { node: usize },
    /// So many of a thousand requests to the endpoint fail.
    Fails { endpoint: usize, share: u64 },
    /// Every answer of the endpoint is slow.
    Slow { endpoint: usize },
    /// The endpoint fails and works in turns of so many ms.
    Flaps { endpoint: usize, turn: u64 },
    /// The endpoint serves one request at a time and fails all when there are more.
    Fragile { endpoint: usize },
    /// All that the node sends to any endpoint fails: its own network is bad.
    BadNode { node: usize },
    /// The node states what is not so.
    Lies { node: usize, how: Lie },
    /// Nobody reaches the ledger.
    LedgerDown,
    /// One node does not reach the ledger.
    LedgerAway { node: usize },
    /// So many of a thousand requests to the ledger are lost, and of its answers and notices; each may
    /// take so long.
    LedgerRough { requests: u64, answers: u64, delay: u64 },
    /// The ledger loses everything.
    LedgerFlush,
    /// The ledger is down, and then has lost what was written in the last so many ms.
    LedgerLoses { back: Ms },
}

/// How a member lies. It forges its own words only: all others' are signed by their writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It votes against every endpoint, with windows full of faults.
    AllBad,
    /// It votes with incident numbers far above all others.
    HugeIncidents,
    /// It states that incidents are closed which are not.
    FalseClosings,
    /// It states steps of recovery that nobody took.
    FalseSteps,
    /// It changes its mind with every word.
    Flapping,
}

/// The lies, in the order in which they are drawn and named.
pub(crate) const LIES: [(Lie, &str); 5] = [
    (Lie::AllBad, "all-bad"),
    (Lie::HugeIncidents, "huge-incidents"),
    (Lie::FalseClosings, "false-closings"),
    (Lie::FalseSteps, "false-steps"),
    (Lie::Flapping, "flapping"),
];

impl Plan {
    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.rates.len()
    }

    /// How many endpoints there are.
    pub(crate) fn endpoints(&self) -> usize {
        self.pools.iter().sum()
    }

    /// The pool of an endpoint.
    pub(crate) fn pool_of(&self, endpoint: usize) -> usize {
        let mut end = 0;
        self.pools
            .iter()
            .position(|size| {
                end += size;
                endpoint < end
            })
            .unwrap_or(0)
    }

    /// The numbers of the endpoints of a pool.
    pub(crate) fn endpoints_of(&self, pool: usize) -> std::ops::Range<usize> {
        let start = self.pools[..pool].iter().sum();
        start..start + self.pools[pool]
    }

    /// The node that lies at some time, if there is one.
    pub(crate) fn liar(&self) -> Option<usize> {
        self.faults.iter().find_map(|fault| fault.what.liar())
    }
}

impl What {
    /// The node that lies by this fault.
    pub(crate) fn liar(self) -> Option<usize> {
        if let Self::Lies { node, .. } = self { Some(node) } else { None }
    }

    /// Whether it troubles the nodes or what is between them, and not only an endpoint. A node whose
    /// own network is bad suspects itself and stops leading, so that it troubles them too.
    pub(crate) fn troubles_fleet(self) -> bool {
        match self {
            Self::Parted { .. }
            | Self::Deaf { .. }
            | Self::Cut { .. }
            | Self::Rough { .. }
            | Self::Unpushed { .. }
            | Self::Crash { .. }
            | Self::Pause { .. }
            | Self::BadNode { .. }
            | Self::Lies { .. }
            | Self::LedgerDown
            | Self::LedgerAway { .. }
            | Self::LedgerRough { .. }
            | Self::LedgerFlush
            | Self::LedgerLoses { .. } => true,
            Self::Fails { .. } | Self::Slow { .. } | Self::Flaps { .. } | Self::Fragile { .. } => {
                false
            }
        }
    }
}
