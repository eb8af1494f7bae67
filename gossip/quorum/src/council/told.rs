//! What a council is told, and what it answers: the words between the rule and its driver.
//!
//! They stand apart from the rule itself, so that whoever drives a council reads one page.

use std::time::Duration;

use crate::circuit::{Opening, Recovery};
use crate::conviction::Conviction;
use crate::electorate::ElectorateRule;
use crate::statement::{
    CanaryFence, EndpointKey, Evidence, Forced, MemberVerb, NodeId, PoolKey, Window,
};
use crate::tally::Tally;

/// The knobs of the council.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CouncilRule {
    /// Who forms the denominator.
    pub electorate: ElectorateRule,
    /// Whose votes an endpoint's majority is taken of.
    pub of: Denominator,
    /// How much of a pool the votes may have out at once, in thousandths; 1000: no cap. One
    /// endpoint is always allowed.
    pub max_open_share_milli: u32,
    /// How often the carrier gossips.
    pub interval: Duration,
    /// How long to observe after a start or a pause.
    pub observe: Duration,
    /// A vote whose voter has not raised its pulse for this long lapses.
    pub vote_ttl: Duration,
    /// How often the pulse is raised; well below `vote_ttl`.
    pub renew_every: Duration,
    /// The longest that any opening stands without the steward closing it.
    pub max_open: Duration,
}

/// Whose votes a majority is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denominator {
    /// All members.
    Members,
    /// The members with traffic to the endpoint in the window, at least two.
    Observers,
}

/// What a council needs to know of an endpoint to take charge of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// The pool it belongs to: the cap and the self-suspicion look at pools.
    pub pool: PoolKey,
    /// How it comes back.
    pub recovery: Recovery,
    /// What evidence of all members together convicts it.
    pub conviction: Conviction,
}

/// What this node's own breaker says when it is open on this node's own traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalOpening {
    /// Since when, on this node's clock.
    pub since: Duration,
    /// Why, in a few words.
    pub reason: String,
    /// What it saw.
    pub evidence: Evidence,
}

/// What this node itself knows of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Its breaker's opening on its own traffic; `None` while it is not open on that.
    pub opening: Option<LocalOpening>,
    /// What it saw in its window, ages counted back from the moment of stating.
    pub window: Window,
    /// Whether its breaker only pretends: its vote is shown and not counted.
    pub is_shadow: bool,
    /// Whether a request that its breaker let through on trial is under way: until it is answered
    /// the canary slot is in use.
    pub is_trying: bool,
}

/// What follows from what was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The fleet takes the endpoint out.
    Opened {
        /// Which.
        endpoint: EndpointKey,
        /// The opening as it stands.
        opening: Opening,
        /// The count that decided.
        tally: Tally,
        /// How many members formed the denominator.
        electorate: usize,
    },
    /// The incident is over: the endpoint returns, and the breaker forgets what it held against it.
    Closed {
        /// Which.
        endpoint: EndpointKey,
        /// The incident.
        incident: u64,
        /// Whether the fleet had it out here, or only this node's own vote ended.
        was_open: bool,
    },
    /// This node leads: it sends one probe and reports to
    /// [`Council::probed`](crate::Council::probed).
    Probe {
        /// Which.
        endpoint: EndpointKey,
        /// The incident and the number of failed probes before: the fence of the answer.
        fence: (u64, u32),
    },
    /// This node holds the fleet's canary slot: its breaker admits small requests, and it reports
    /// to [`Council::canaried`](crate::Council::canaried).
    Lend {
        /// Which.
        endpoint: EndpointKey,
        /// The fence of the reports.
        fence: CanaryFence,
        /// The successes in a row that others have counted already.
        successes: u32,
    },
    /// The slot is no longer this node's: its breaker holds everything back again.
    Recall {
        /// Which.
        endpoint: EndpointKey,
    },
    /// An operator's order took hold, or its time is over.
    Forced {
        /// Which.
        endpoint: EndpointKey,
        /// What holds from here on.
        forced: Forced,
    },
    /// An operator asked this node to go: it drains, or leaves. It comes once for each verb, and
    /// not for a milder one than was obeyed.
    Ordered {
        /// [`MemberVerb::Drain`] or [`MemberVerb::Leave`].
        verb: MemberVerb,
        /// The node that was asked.
        by: NodeId,
        /// The operator's reason.
        reason: String,
    },
    /// A lost member no longer counts, since an operator said so to another node.
    Forgotten {
        /// Who.
        member: NodeId,
        /// The node that was asked.
        by: NodeId,
    },
}
