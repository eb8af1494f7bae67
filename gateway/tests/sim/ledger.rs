//! What truly happened in the simulated fleet, kept apart from what any council believes.
//!
//! The invariants are held against this: who met a fault, who stated a vote, which probe passed.

use crate::plan::{Ms, Plan};

/// Long ago.
pub(crate) const NEVER: Option<Ms> = None;

/// What is true of one node and one endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// When the node itself last met a fault or a slow answer there.
    pub(crate) bad_at: Option<Ms>,
    /// When a request of its own last succeeded there.
    pub(crate) good_at: Option<Ms>,
    /// Whether its vote stands, as it states itself; the incident.
    pub(crate) vote: Option<u64>,
    /// Whether that vote is first-hand.
    pub(crate) is_first_hand: bool,
    /// When its vote last stood.
    pub(crate) stood_at: Option<Ms>,
    /// Whether the fleet has the endpoint out, by the decisions that fell on the node.
    pub(crate) is_out: bool,
    /// The last incident that the node knew as closed by a step, and the failed trials before that.
    pub(crate) closed: (u64, u32),
    /// Canaries of the slot that it has under way.
    pub(crate) canaries: u32,
}

/// A probe or canary of the fleet's that passed or failed, by the fence of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    pub(crate) at: Ms,
    pub(crate) node: usize,
    pub(crate) endpoint: usize,
    pub(crate) incident: u64,
    pub(crate) failures: u32,
    pub(crate) kind: TrialKind,
}

/// Which trial it was and how it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrialKind {
    ProbeSent,
    ProbePassed,
    ProbeFailed,
    CanaryPassed,
    CanaryFailed,
}

/// A piece of bad evidence as a node truly met it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bad {
    pub(crate) at: Ms,
    pub(crate) node: usize,
    pub(crate) endpoint: usize,
    pub(crate) is_slow: bool,
    /// Whether it came while the node's breaker was closed, so that it is in the window.
    pub(crate) is_gathered: bool,
}

/// A beat of a node's heart: its generation and the number of the beat.
pub(crate) type Beat = (u64, u64);

/// The record of a run.
pub(crate) struct Ledger {
    truths: Vec<Truth>,
    endpoints: usize,
    pub(crate) trials: Vec<Trial>,
    pub(crate) bads: Vec<Bad>,
    /// Who counts, at the least that the rule may count: no one is dropped sooner.
    pub(crate) electorate: u64,
    /// Since when each member has been out of reach of the majority.
    pub(crate) lost_since: Vec<Option<Ms>>,
    /// When each member that had dropped out was back, and which beat of its heart that was.
    pub(crate) back: Vec<Option<(Ms, Beat)>>,
    pub(crate) tally: Figures,
}

/// Figures of a run, for the report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) openings: u64,
    pub(crate) closings: u64,
    pub(crate) probes: u64,
    /// Probes sent while another of the same endpoint was under way.
    pub(crate) doubled_probes: u64,
    pub(crate) loans: u64,
    pub(crate) seconded: u64,
    pub(crate) rounds: u64,
    /// Runs in which views differed in calm for longer than a change is on its way.
    pub(crate) parted: u64,
    pub(crate) requests: u64,
    /// Openings that the ledger of a fleet committed.
    pub(crate) committed: u64,
}

impl Ledger {
    /// An empty record.
    pub(crate) fn new(plan: &Plan) -> Self {
        let (nodes, endpoints) = (plan.nodes(), plan.endpoints());
        Self {
            truths: vec![Truth::default(); nodes * endpoints],
            endpoints,
            trials: Vec::new(),
            bads: Vec::new(),
            electorate: (1 << nodes) - 1,
            lost_since: vec![NEVER; nodes],
            back: vec![None; nodes],
            tally: Figures::default(),
        }
    }

    /// What is true of a node and an endpoint.
    pub(crate) fn of(&self, node: usize, endpoint: usize) -> &Truth {
        &self.truths[node * self.endpoints + endpoint]
    }

    /// The same, to be changed.
    pub(crate) fn of_mut(&mut self, node: usize, endpoint: usize) -> &mut Truth {
        &mut self.truths[node * self.endpoints + endpoint]
    }

    /// Notes that the process of a node is gone.
    pub(crate) fn bury(&mut self, node: usize) {
        for endpoint in 0..self.endpoints {
            let truth = self.of_mut(node, endpoint);
            let (bad_at, good_at, stood_at) = (truth.bad_at, truth.good_at, truth.stood_at);
            *truth = Truth { bad_at, good_at, stood_at, ..Truth::default() };
        }
    }

    /// How many members count.
    pub(crate) fn electorate_size(&self) -> usize {
        self.electorate.count_ones() as usize
    }
}

impl Figures {
    /// Adds those of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.openings += other.openings;
        self.closings += other.closings;
        self.probes += other.probes;
        self.doubled_probes += other.doubled_probes;
        self.loans += other.loans;
        self.seconded += other.seconded;
        self.rounds += other.rounds;
        self.parted += other.parted;
        self.requests += other.requests;
        self.committed += other.committed;
    }
}
