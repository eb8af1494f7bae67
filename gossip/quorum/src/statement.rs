//! What a node may state about an endpoint or a member, and how a member looks to the rule.
//!
//! A statement is written by one node about itself: its own vote, the furthest step of recovery it
//! knows, the newest override it knows. Durations inside are relative to the moment of stating, so
//! that no two clocks are ever compared; the reader ages them from the moment it first saw the
//! statement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The most pieces of slow evidence in a [`Window`]: as many as a breaker keeps.
pub const SLOW_PIECES_MAX: usize = 16;

/// The generation in a [`MemberOrder`] by a node that has not met the member in any life, since it
/// only recalls it: whatever life is lost is meant.
pub(crate) const ANY_LIFE: u64 = 0;

/// The name of a gateway node, unique in its fleet; also the name in its certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

/// The name of an endpoint, `pool/endpoint`, the same on every node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointKey(Arc<str>);

/// The name of a pool of endpoints, the same on every node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey(Arc<str>);

macro_rules! name {
    ($name:ident) => {
        impl $name {
            /// Makes the name from its text.
            pub fn new(text: &str) -> Self {
                Self(Arc::from(text))
            }

            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

name!(NodeId);
name!(EndpointKey);
name!(PoolKey);

/// What a vote rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The voter's own breaker opened on the voter's own traffic.
    FirstHand,
    /// The evidence of all members together convicts, and the voter has no fresh success.
    Seconded,
}

/// What the voter saw in its window when it opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Requests settled in the window.
    pub requests: u32,
    /// Weighted faults in the window, in thousandths.
    pub faults_milli: u32,
    /// Successes in the window.
    pub successes: u32,
    /// Pieces of slow evidence in the window.
    pub slow_pieces: u32,
}

/// Whether a vote is to be counted, in the words of its voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteState {
    /// It is.
    Stands,
    /// It was taken back; that is stated for a while, since a mere absence is not noticed
    /// everywhere.
    Withdrawn,
    /// The voter suspects itself: it shows what it sees and does not vote.
    Abstains,
    /// The voter's breaker is only a shadow: it shows what it would vote.
    Shadow,
}

/// What a member with traffic to a suspected endpoint has seen in its window.
///
/// Published while any member suspects the endpoint, so that what no single node could convict by
/// is judged together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Requests settled: successes, faults and slow ones.
    pub requests: u32,
    /// Weighted faults among them, in thousandths.
    pub faults_milli: u32,
    /// Successes among them.
    pub successes: u32,
    /// How long before the stating each piece of slow evidence was seen, newest first; at most
    /// [`SLOW_PIECES_MAX`].
    pub slow: Vec<Duration>,
    /// How long before the stating the last success came, if one came in the window.
    pub last_success: Option<Duration>,
    /// Whether clients of late asked for the model with prompts small enough for the canary slot.
    pub has_small: bool,
}

/// One node's statement that an endpoint is bad (or no longer is).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The incident the vote belongs to, from 1.
    pub incident: u64,
    /// What it rests on.
    pub basis: Basis,
    /// Whether it is to be counted.
    pub state: VoteState,
    /// Why the breaker opened, in a few words (at most 64 bytes are carried).
    pub reason: String,
    /// What the voter saw.
    pub evidence: Evidence,
    /// How long before the stating the breaker opened.
    pub age: Duration,
}

/// How far the recovery of an incident has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The cool-down has this long to go.
    Waiting {
        /// Time to go.
        remaining: Duration,
    },
    /// The steward's probe is in flight and has this long to answer.
    Probing {
        /// Time to go.
        remaining: Duration,
    },
    /// The probe has passed, and one member at a time may send small requests.
    Canary {
        /// The member that holds the fleet's one slot.
        holder: NodeId,
        /// How many times the slot has been handed on in this stage.
        turn: u32,
        /// Successes in a row so far.
        successes: u32,
        /// Time to go until the slot is handed on.
        remaining: Duration,
    },
    /// The incident is over.
    Closed,
}

/// A step of recovery. Steps are ordered by (incident, failures, stage, turn, successes): a later
/// failed probe outranks an earlier success, and nothing else outranks a closing within its
/// incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The incident.
    pub incident: u64,
    /// How many probes have failed in this incident.
    pub failures: u32,
    /// How many times the cool-down has doubled.
    pub level: u32,
    /// How far it has come.
    pub stage: Stage,
    /// The member that took the step.
    pub steward: NodeId,
    /// How long before the stating the fleet opened the endpoint.
    pub age: Duration,
    /// Whether the writer itself has the endpoint out by the fleet's verdict: a majority of such
    /// words lets a node join an opening whose votes are gone.
    pub is_held: bool,
}

/// Which hold of the fleet's canary slot a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanaryFence {
    /// The incident.
    pub incident: u64,
    /// The failed probes and canaries before.
    pub failures: u32,
    /// How many times the slot had been handed on.
    pub turn: u32,
}

/// What the holder of the canary slot reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanaryWord {
    /// So many successes in a row by now, those that it was lent the slot with included.
    Counted(u32),
    /// A fault, or slow evidence.
    Failed,
    /// No small request came for as long as one turn may be idle.
    Idle,
}

/// What an operator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// Out, whatever the votes say.
    Open,
    /// In, whatever the votes say.
    Closed,
    /// Back to the automatic rule.
    Auto,
}

/// An operator's word about an endpoint; the newest stamp wins, ties go to the greater node id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// What was asked for.
    pub forced: Forced,
    /// A counter, one more than the largest its author had seen.
    pub stamp: u64,
    /// The node that took the order.
    pub author: NodeId,
    /// How long it still holds; `None`: until changed.
    pub remaining: Option<Duration>,
    /// The operator's reason (at most 256 bytes are carried).
    pub reason: String,
}

/// What an operator asked of a member, from the mildest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberVerb {
    /// It is to take no more traffic and finish what it has; it stays a member.
    Drain,
    /// The same, and it is out of the electorate at once.
    Leave,
    /// It is lost, and no longer counts.
    Forget,
}

/// An operator's word about a member, stated by the node that was asked, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberOrder {
    /// What was asked for.
    pub verb: MemberVerb,
    /// The life of the member that is meant: a later one is not. 0: whatever life is lost.
    pub generation: u64,
    /// The operator's reason (at most 256 bytes are carried).
    pub reason: String,
}

/// One thing a node states, about one endpoint or about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Its own vote.
    Vote(EndpointKey, Vote),
    /// The furthest step it knows.
    Step(EndpointKey, Step),
    /// The newest override it knows.
    Override(EndpointKey, Override),
    /// What it has seen of late.
    Window(EndpointKey, Window),
    /// What an operator asked of a member by way of it.
    Member(NodeId, MemberOrder),
}

/// A statement on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Grows with every stating by this node; a reader takes a greater number only.
    pub seq: u64,
    /// Whether it says something new, as against renewing what was said: news is pushed at once.
    pub fresh: bool,
    /// What is stated.
    pub statement: Statement,
}

/// All that a node states, as a whole set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Everything that stands.
    pub stated: Vec<Stated>,
    /// The node's pulse, as in [`Member::pulse`]: whoever learns of it must know the set as well.
    pub pulse: u64,
}

/// A statement as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The writer's number.
    pub seq: u64,
    /// What was stated.
    pub statement: Statement,
}

/// How a member takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In full.
    Serving,
    /// Going: it still counts, and leads nothing.
    Draining,
    /// Gone in good order: it no longer counts.
    Left,
}

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The version of the program.
    pub version: String,
    /// The hash of its configuration.
    pub config_hash: String,
    /// How it takes part.
    pub standing: Standing,
    /// Whether it suspects itself.
    pub is_suspect: bool,
}

/// A member as the carrier sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub id: NodeId,
    /// Grows with every restart; the greatest seen is the member, smaller ones are its past.
    pub generation: u64,
    /// Where it gossips; for people.
    pub address: String,
    /// Whether the failure detector holds it to be alive.
    pub is_live: bool,
    /// What it says of itself, once known.
    pub card: Option<Card>,
    /// Grows while the member goes on standing by what it states; 0 before the first. All that it
    /// had stated when it raised the number is known to whoever knows the number.
    pub pulse: u64,
    /// What it states.
    pub heard: Vec<Heard>,
}

impl Statement {
    /// The endpoint it is about; `None`: it is about a member.
    pub fn endpoint(&self) -> Option<&EndpointKey> {
        match self {
            Self::Vote(endpoint, _)
            | Self::Step(endpoint, _)
            | Self::Override(endpoint, _)
            | Self::Window(endpoint, _) => Some(endpoint),
            Self::Member(..) => None,
        }
    }

    /// The name of what it is about.
    pub fn subject(&self) -> &str {
        match self {
            Self::Vote(endpoint, _)
            | Self::Step(endpoint, _)
            | Self::Override(endpoint, _)
            | Self::Window(endpoint, _) => endpoint.as_str(),
            Self::Member(member, _) => member.as_str(),
        }
    }
}

impl MemberVerb {
    /// The word used in the admin API and the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Leave => "leave",
            Self::Forget => "forget",
        }
    }
}

impl Forced {
    /// The word used in the admin API and the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "force_open",
            Self::Closed => "force_closed",
            Self::Auto => "auto",
        }
    }
}

impl Standing {
    /// The word used in the admin API and the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "live",
            Self::Draining => "draining",
            Self::Left => "left",
        }
    }
}

impl VoteState {
    /// The word used in the admin API and the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stands => "stands",
            Self::Withdrawn => "withdrawn",
            Self::Abstains => "abstains",
            Self::Shadow => "shadow",
        }
    }
}

impl Basis {
    /// The word used in the admin API and the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstHand => "first_hand",
            Self::Seconded => "seconded",
        }
    }
}
