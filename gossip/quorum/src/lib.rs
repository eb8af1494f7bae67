//! One endpoint seen from many nodes: does a majority say it is bad, and who leads it back?
//!
//! This is the rule of the fleet and nothing else: it knows no clock, no runtime and no I/O. What
//! the nodes state goes in as whole sets ([`Council::hear`]), time goes in as an argument, and what
//! follows comes out as [`Decision`]s. The gateway, the simulator and the tests drive this code.
//!
//! # The parts
//! - [`statement`]: what a node may state: a vote, a step of recovery, an override, and what an
//!   operator asks of a member.
//! - [`electorate`]: who forms the denominator, and when a lost member stops counting.
//! - [`tally`](mod@tally): a table of votes in, a verdict out.
//! - [`circuit`]: one endpoint's incident: opening, the fence that orders steps, cool-down.
//! - [`steward`]: which live member leads the recovery of which endpoint.
//! - [`conviction`]: whether what all members saw together is enough.
//! - [`council`]: the parts together, as one node holds them.
//! - [`suspicion`]: whether who accuses nearly everything is to be believed.
//! - `dossier`: all that is known of one endpoint.
//! - `voice`: what was heard and said: numbering, news, the pulse.
//! - [`ledger`]: what a strongly consistent store keeps of each endpoint, and the calls that change it.
//! - [`view`]: what a person or a metric may ask of a council.
//!
//! # Invariants
//! - No verdict flips without valid votes from more than half of the electorate.
//! - An opening that the fleet imposed is never a vote: only [`Council::state`] makes one.
//! - Repetition and order of what is heard change nothing.
//! - No wall clock: every duration is measured on the caller's monotonic clock.

pub mod circuit;
pub mod conviction;
pub mod council;
mod dossier;
pub mod electorate;
pub mod ledger;
pub mod statement;
pub mod steward;
pub mod suspicion;
pub mod tally;
pub mod view;
mod voice;

pub use circuit::{Recovery, Way};
pub use conviction::Conviction;
pub use council::{
    Council, CouncilRule, Decision, Denominator, Enrolment, Local, LocalOpening, Need, NotOrdered,
    ProbeResult, Reliance,
};
pub use electorate::{Electorate, ElectorateRule};
pub use statement::{
    Basis, CanaryFence, CanaryWord, Card, EndpointKey, Evidence, Forced, Heard, Member,
    MemberOrder, MemberVerb, NodeId, Override, PoolKey, Said, Stage, Standing, Stated, Statement,
    Step, Vote, VoteState, Window,
};
pub use tally::{Ballot, Tally, tally};
