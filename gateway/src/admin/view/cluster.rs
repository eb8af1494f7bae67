//! The answer of `GET cluster`: how large the fleet is, whether it can decide, how its talk goes.

use std::collections::BTreeMap;

use quorum::{Card, Denominator, Member};
use schemars::JsonSchema;
use serde::Serialize;

/// The fleet in this node's eyes.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Cluster {
    /// The node that answers.
    pub(crate) node: String,
    /// The version of its program.
    pub(crate) version: String,
    /// How long its process has run.
    pub(crate) uptime_ms: u64,
    /// The hash of its configuration.
    pub(crate) config_hash: String,
    /// Whether a live member has another configuration.
    pub(crate) config_skew: bool,
    /// What carries the statements: `gossip`, or `none` for a node alone.
    pub(crate) backend: &'static str,
    /// Of how many members a majority is taken.
    pub(crate) electorate: usize,
    /// How many votes take an endpoint out.
    pub(crate) quorum: usize,
    /// How many members are live.
    pub(crate) live: usize,
    /// Whose votes count: `members`, or `observers` where only those with traffic do.
    pub(crate) of: &'static str,
    /// Whether this node suspects itself, and abstains.
    pub(crate) suspect: bool,
    /// Where another process uses this node's name.
    pub(crate) name_used_at: Option<String>,
    /// Which part of every limit this node holds.
    pub(crate) limit_share: LimitShare,
    /// Whether enough members are live for any verdict of the fleet.
    pub(crate) can_decide: bool,
    /// How long this node only watches, after a start or a pause.
    pub(crate) observing_ms: u64,
    /// What the carrier has counted, by name; null for a node alone.
    pub(crate) gossip: Option<BTreeMap<&'static str, u64>>,
}

/// One part of every limit.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct LimitShare {
    /// The place of this node among the holders, from 0.
    pub(crate) rank: u32,
    /// How many hold a part.
    pub(crate) among: u32,
}

/// The word for whose votes count.
pub(crate) fn word_of(of: Denominator) -> &'static str {
    match of {
        Denominator::Members => "members",
        Denominator::Observers => "observers",
    }
}

/// Whether a live member is known to have another configuration than this node.
pub(crate) fn is_skewed(mine: &Card, members: &[Member]) -> bool {
    let live = members.iter().filter(|member| member.is_live);
    let mut hashes = live.filter_map(|member| member.card.as_ref()).map(|card| &card.config_hash);
    hashes.any(|hash| *hash != mine.config_hash)
}
