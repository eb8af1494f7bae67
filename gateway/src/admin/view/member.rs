//! The answer of `GET members`: who belongs to the fleet, as this node counts it.

use std::time::Duration;

use quorum::electorate::Presence;
use quorum::view::MemberView;
use quorum::{Card, Member, Standing};
use schemars::JsonSchema;
use serde::Serialize;

use super::millis;

/// All members in the order of their names, at most 1,024, and behind them those that have left of late.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Members {
    pub(crate) members: Vec<MemberRow>,
}

/// One member.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct MemberRow {
    /// Its name.
    pub(crate) id: String,
    /// Whether it is the node that answers.
    #[serde(rename = "self")]
    pub(crate) is_me: bool,
    /// Which of its lives this is: it grows with every restart.
    pub(crate) generation: u64,
    /// Where it gossips, or `redis` where it does not; null for the node that answers.
    pub(crate) address: Option<String>,
    /// `live`, `suspect`, `lost`, `draining` or `left`.
    pub(crate) state: &'static str,
    /// How long it has been lost.
    pub(crate) lost_for_ms: Option<u64>,
    /// How long ago it was last heard; 0 for the node that answers, null if it never was.
    pub(crate) age_ms: Option<u64>,
    /// How long its process has run; known of the node that answers only.
    pub(crate) uptime_ms: Option<u64>,
    /// Whether it accuses nearly everything alone, by its own word or in this node's eyes.
    pub(crate) suspect: bool,
    /// The version of its program.
    pub(crate) version: Option<String>,
    /// The hash of its configuration.
    pub(crate) config_hash: Option<String>,
    /// Of how many endpoints it leads the recovery.
    pub(crate) steward_of: usize,
    /// Whether an operator let its votes and windows count no more on this node.
    pub(crate) muted: bool,
}

/// What the node that answers says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Me {
    /// Its card.
    pub(crate) card: Card,
    /// Its generation.
    pub(crate) generation: u64,
    /// How long its process has run.
    pub(crate) uptime: Duration,
}

impl MemberRow {
    /// The row of a member of whom the carrier knows `member`, heard so long ago; `me` is who answers.
    pub(crate) fn new(
        view: &MemberView,
        (member, heard_ago): (Option<&Member>, Option<Duration>),
        me: &Me,
    ) -> Self {
        let card = member.and_then(|member| member.card.as_ref());
        let card = if view.is_me { Some(&me.card) } else { card };
        let standing = card.map_or(view.standing, |card| card.standing);
        let (state, lost_for) = match (view.presence, standing) {
            (Presence::Lost(period), _) => ("lost", Some(millis(period))),
            (Presence::Live, Standing::Serving) if view.is_suspect => ("suspect", None),
            (Presence::Live, standing) => (standing.as_str(), None),
        };
        let heard_ago = if view.is_me { Some(Duration::ZERO) } else { heard_ago };
        Self {
            id: view.id.to_string(),
            is_me: view.is_me,
            generation: if view.is_me { me.generation } else { view.generation },
            address: member.map(|member| member.address.clone()),
            state,
            lost_for_ms: lost_for,
            age_ms: heard_ago.map(millis),
            uptime_ms: view.is_me.then(|| millis(me.uptime)),
            suspect: view.is_suspect,
            version: card.map(|card| card.version.clone()),
            config_hash: card.map(|card| card.config_hash.clone()),
            steward_of: view.steward_of,
            muted: view.is_muted,
        }
    }

    /// The row of one that has left in good order, for as long as the carrier remembers it.
    pub(crate) fn left(member: &Member) -> Option<Self> {
        let card = member.card.as_ref().filter(|card| card.standing == Standing::Left)?;
        Some(Self {
            id: member.id.to_string(),
            is_me: false,
            generation: member.generation,
            address: Some(member.address.clone()),
            state: card.standing.as_str(),
            lost_for_ms: None,
            age_ms: None,
            uptime_ms: None,
            suspect: false,
            version: Some(card.version.clone()),
            config_hash: Some(card.config_hash.clone()),
            steward_of: 0,
            muted: false,
        })
    }
}
