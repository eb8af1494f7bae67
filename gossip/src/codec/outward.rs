//! The rule's values as they travel: words cut, names refused when too long, durations in
//! milliseconds.
//!
//! # Invariants
//! - Whatever is made here is taken by `inward` of the same version.

use std::time::Duration;

use quorum::statement::SLOW_PIECES_MAX;
use quorum::{
    Basis, Card, EndpointKey, Forced, MemberOrder, MemberVerb, NodeId, Override, Stage, Standing,
    Step, Vote, VoteState, Window,
};

use super::wire::{
    WireAsked, WireBasis, WireCard, WireForced, WireOverride, WireStage, WireStanding, WireStep,
    WireVerb, WireVote, WireVoteState, WireWindow,
};
use super::{
    CONFIG_HASH_BYTES_MAX, CodecError, ENDPOINT_BYTES_MAX, MILLIS_MAX, ORDER_REASON_BYTES_MAX,
    VERSION_BYTES_MAX, VOTE_REASON_BYTES_MAX, bounded, number,
};
use crate::error::NODE_ID_BYTES_MAX;

pub(super) fn card(card: &Card) -> WireCard {
    WireCard {
        version: cut(&card.version, VERSION_BYTES_MAX),
        config_hash: cut(&card.config_hash, CONFIG_HASH_BYTES_MAX),
        standing: match card.standing {
            Standing::Serving => WireStanding::Serving,
            Standing::Draining => WireStanding::Draining,
            Standing::Left => WireStanding::Left,
        },
        is_suspect: card.is_suspect,
    }
}

pub(super) fn vote(vote: &Vote) -> Result<WireVote, CodecError> {
    Ok(WireVote {
        incident: number(vote.incident)?,
        basis: match vote.basis {
            Basis::FirstHand => WireBasis::FirstHand,
            Basis::Seconded => WireBasis::Seconded,
        },
        state: match vote.state {
            VoteState::Stands => WireVoteState::Stands,
            VoteState::Withdrawn => WireVoteState::Withdrawn,
            VoteState::Abstains => WireVoteState::Abstains,
            VoteState::Shadow => WireVoteState::Shadow,
        },
        reason: cut(&vote.reason, VOTE_REASON_BYTES_MAX),
        requests: vote.evidence.requests,
        faults_milli: vote.evidence.faults_milli,
        successes: vote.evidence.successes,
        slow_pieces: vote.evidence.slow_pieces,
        age_millis: to_millis(vote.age),
    })
}

/// The newest pieces of slow evidence come first, so that the oldest are cut.
pub(super) fn window(window: &Window) -> WireWindow {
    WireWindow {
        requests: window.requests,
        faults_milli: window.faults_milli,
        successes: window.successes,
        slow_millis: window.slow.iter().copied().take(SLOW_PIECES_MAX).map(to_millis).collect(),
        last_success_millis: window.last_success.map(to_millis),
        has_small: window.has_small,
    }
}

pub(super) fn step(step: &Step) -> Result<WireStep, CodecError> {
    Ok(WireStep {
        incident: number(step.incident)?,
        failures: step.failures,
        level: step.level,
        stage: stage(&step.stage)?,
        steward: node(&step.steward)?,
        age_millis: to_millis(step.age),
        is_held: step.is_held,
    })
}

fn stage(stage: &Stage) -> Result<WireStage, CodecError> {
    Ok(match stage {
        Stage::Waiting { remaining } => {
            WireStage::Waiting { remaining_millis: to_millis(*remaining) }
        }
        Stage::Probing { remaining } => {
            WireStage::Probing { remaining_millis: to_millis(*remaining) }
        }
        Stage::Canary { holder, turn, successes, remaining } => WireStage::Canary {
            holder: node(holder)?,
            turn: *turn,
            successes: *successes,
            remaining_millis: to_millis(*remaining),
        },
        Stage::Closed => WireStage::Closed,
    })
}

pub(super) fn order(order: &Override) -> Result<WireOverride, CodecError> {
    Ok(WireOverride {
        forced: match order.forced {
            Forced::Open => WireForced::Open,
            Forced::Closed => WireForced::Closed,
            Forced::Auto => WireForced::Auto,
        },
        stamp: number(order.stamp)?,
        author: node(&order.author)?,
        remaining_millis: order.remaining.map(to_millis),
        reason: cut(&order.reason, ORDER_REASON_BYTES_MAX),
    })
}

pub(super) fn asked(
    seq: u64,
    member: &NodeId,
    order: &MemberOrder,
) -> Result<WireAsked, CodecError> {
    super::plain(member.as_str())?;
    Ok(WireAsked {
        seq,
        member: node(member)?,
        verb: match order.verb {
            MemberVerb::Drain => WireVerb::Drain,
            MemberVerb::Leave => WireVerb::Leave,
            MemberVerb::Forget => WireVerb::Forget,
        },
        generation: number(order.generation)?,
        reason: cut(&order.reason, ORDER_REASON_BYTES_MAX),
    })
}

pub(super) fn endpoint(endpoint: &EndpointKey) -> Result<String, CodecError> {
    super::plain(endpoint.as_str())?;
    bounded(endpoint.as_str().to_owned(), ENDPOINT_BYTES_MAX)
}

fn node(node: &NodeId) -> Result<String, CodecError> {
    bounded(node.as_str().to_owned(), NODE_ID_BYTES_MAX)
}

/// Cuts at the last character that fits.
fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

pub(super) fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(MILLIS_MAX).min(MILLIS_MAX)
}
