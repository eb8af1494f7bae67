//! The answer of `GET cluster`: how large the fleet is, whether it can decide, how its talk goes.

use std::collections::BTreeMap;

use quorum::{Card, Denominator, Member};
use redis_lua::client::Figures;
use schemars::JsonSchema;
use serde::Serialize;

use super::millis;
use crate::cluster::{Cause, Link, Reached};

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
    /// By what the fleet decides: `gossip`, `redis`, or `none` for a node alone.
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
    /// What the carrier has counted, by name; null where there is no gossip.
    pub(crate) gossip: Option<BTreeMap<&'static str, u64>>,
    /// How this node stands with the Redis in which the fleet decides; null without one.
    pub(crate) redis: Option<RedisRow>,
}

/// The Redis in which a fleet decides.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct RedisRow {
    /// `up`: it decides. `returning`: it answers again and is being read. `away`: it does not answer well.
    pub(crate) state: &'static str,
    /// Whether it decides.
    pub(crate) up: bool,
    /// `standalone`, `sentinel` or `cluster`.
    pub(crate) mode: &'static str,
    /// Why it does not decide: `away`, `timeout`, or the code of its error; null while it does.
    pub(crate) trouble: Option<&'static str>,
    /// The server that the trouble lies with; null where it is not one server's.
    pub(crate) server: Option<String>,
    /// What was tried in vain: a step at that server, or the script for that entry.
    pub(crate) step: Option<&'static str>,
    /// The endpoint whose entry cannot be used although Redis answers.
    pub(crate) entry: Option<String>,
    /// For how long its state has been so.
    pub(crate) since_ms: u64,
    /// What decides meanwhile: `gossip`, `local`, or `fail_closed`, by which requests are refused; null
    /// while it decides itself.
    pub(crate) fallback: Option<&'static str>,
    /// For how long something else has decided since the start, all together.
    pub(crate) fallback_ms: u64,
    /// The same in one sentence.
    pub(crate) sentence: String,
    /// Scripts that were run, those that failed included.
    pub(crate) calls: u64,
    /// Those that failed.
    pub(crate) errors: u64,
    /// Those that met something newer than this node knew, and began again from it.
    pub(crate) conflicts: u64,
    /// Connections that were made anew.
    pub(crate) reconnects: u64,
    /// How long the newest good answer took.
    pub(crate) latency_us: u64,
}

impl RedisRow {
    pub(crate) fn new(reached: &Reached, figures: &Figures) -> Self {
        let cause = reached.cause.as_ref();
        Self {
            state: reached.link.as_str(),
            up: reached.link == Link::Up,
            mode: reached.mode,
            trouble: reached.trouble(),
            server: cause.and_then(Cause::server).map(str::to_owned),
            step: cause.and_then(Cause::step),
            entry: cause.and_then(Cause::endpoint).map(ToString::to_string),
            since_ms: millis(reached.lasting),
            fallback: reached.fallback(),
            fallback_ms: millis(reached.fallback),
            sentence: reached.sentence(),
            calls: figures.calls,
            errors: figures.troubles.iter().map(|(_, count)| count).sum(),
            conflicts: reached.conflicts,
            reconnects: figures.reconnects,
            latency_us: u64::try_from(figures.latency.as_micros()).unwrap_or(u64::MAX),
        }
    }
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
