//! What came in as the rule's values, or why it cannot be one.
//!
//! # Invariants
//! - Every name, word, list and number is within its bound afterwards.
//! - No wait that a member states outlasts [`WAIT_MAX`].

use std::time::Duration;

use quorum::statement::SLOW_PIECES_MAX;
use quorum::{
    Basis, Card, EndpointKey, Evidence, Forced, MemberOrder, MemberVerb, NodeId, Override, Stage,
    Standing, Step, Vote, VoteState, Window,
};

use super::wire::{
    WireBasis, WireCard, WireForced, WireOverride, WireStage, WireStanding, WireStep, WireVerb,
    WireVote, WireVoteState, WireWindow,
};
use super::{
    CONFIG_HASH_BYTES_MAX, CodecError, ENDPOINT_BYTES_MAX, MILLIS_MAX, ORDER_REASON_BYTES_MAX,
    VERSION_BYTES_MAX, VOTE_REASON_BYTES_MAX, bounded, number,
};
use crate::error::NODE_ID_BYTES_MAX;

/// The longest that one stage of a recovery may have to go: more than any cool-down that can be
/// configured. A member that states more would hold a recovery up for all others.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn card(wire: WireCard) -> Result<Card, CodecError> {
    Ok(Card {
        version: bounded(wire.version, VERSION_BYTES_MAX)?,
        config_hash: bounded(wire.config_hash, CONFIG_HASH_BYTES_MAX)?,
        standing: match wire.standing {
            WireStanding::Serving => Standing::Serving,
            WireStanding::Draining => Standing::Draining,
            WireStanding::Left => Standing::Left,
        },
        is_suspect: wire.is_suspect,
    })
}

pub(super) fn vote(wire: WireVote) -> Result<Vote, CodecError> {
    Ok(Vote {
        incident: number(wire.incident)?,
        basis: match wire.basis {
            WireBasis::FirstHand => Basis::FirstHand,
            WireBasis::Seconded => Basis::Seconded,
        },
        state: match wire.state {
            WireVoteState::Stands => VoteState::Stands,
            WireVoteState::Withdrawn => VoteState::Withdrawn,
            WireVoteState::Abstains => VoteState::Abstains,
            WireVoteState::Shadow => VoteState::Shadow,
        },
        reason: bounded(wire.reason, VOTE_REASON_BYTES_MAX)?,
        evidence: Evidence {
            requests: wire.requests,
            faults_milli: wire.faults_milli,
            successes: wire.successes,
            slow_pieces: wire.slow_pieces,
        },
        age: from_millis(wire.age_millis)?,
    })
}

pub(super) fn window(wire: WireWindow) -> Result<Window, CodecError> {
    if wire.slow_millis.len() > SLOW_PIECES_MAX {
        return Err(CodecError::TooLong);
    }
    Ok(Window {
        requests: wire.requests,
        faults_milli: wire.faults_milli,
        successes: wire.successes,
        slow: wire.slow_millis.into_iter().map(from_millis).collect::<Result<_, _>>()?,
        last_success: wire.last_success_millis.map(from_millis).transpose()?,
        has_small: wire.has_small,
    })
}

pub(super) fn step(wire: WireStep) -> Result<Step, CodecError> {
    Ok(Step {
        incident: number(wire.incident)?,
        failures: wire.failures,
        level: wire.level,
        stage: stage(wire.stage)?,
        steward: node(&wire.steward)?,
        age: from_millis(wire.age_millis)?,
        is_held: wire.is_held,
    })
}

fn stage(wire: WireStage) -> Result<Stage, CodecError> {
    let wait = |millis| from_millis(millis).map(|remaining| remaining.min(WAIT_MAX));
    Ok(match wire {
        WireStage::Waiting { remaining_millis } => {
            Stage::Waiting { remaining: wait(remaining_millis)? }
        }
        WireStage::Probing { remaining_millis } => {
            Stage::Probing { remaining: wait(remaining_millis)? }
        }
        WireStage::Canary { holder, turn, successes, remaining_millis } => Stage::Canary {
            holder: node(&holder)?,
            turn,
            successes,
            remaining: wait(remaining_millis)?,
        },
        WireStage::Closed => Stage::Closed,
    })
}

pub(super) fn order(wire: WireOverride) -> Result<Override, CodecError> {
    Ok(Override {
        forced: match wire.forced {
            WireForced::Open => Forced::Open,
            WireForced::Closed => Forced::Closed,
            WireForced::Auto => Forced::Auto,
        },
        stamp: number(wire.stamp)?,
        author: node(&wire.author)?,
        remaining: wire.remaining_millis.map(from_millis).transpose()?,
        reason: bounded(wire.reason, ORDER_REASON_BYTES_MAX)?,
    })
}

pub(super) fn asked(
    verb: WireVerb,
    generation: u64,
    reason: String,
) -> Result<MemberOrder, CodecError> {
    Ok(MemberOrder {
        verb: match verb {
            WireVerb::Drain => MemberVerb::Drain,
            WireVerb::Leave => MemberVerb::Leave,
            WireVerb::Forget => MemberVerb::Forget,
        },
        generation: number(generation)?,
        reason: bounded(reason, ORDER_REASON_BYTES_MAX)?,
    })
}

pub(super) fn endpoint(text: &str) -> Result<EndpointKey, CodecError> {
    super::plain(text)?;
    match text.len() <= ENDPOINT_BYTES_MAX {
        true => Ok(EndpointKey::new(text)),
        false => Err(CodecError::TooLong),
    }
}

fn node(text: &str) -> Result<NodeId, CodecError> {
    match text.len() <= NODE_ID_BYTES_MAX {
        true => Ok(NodeId::new(text)),
        false => Err(CodecError::TooLong),
    }
}

pub(super) fn from_millis(millis: u64) -> Result<Duration, CodecError> {
    match millis <= MILLIS_MAX {
        true => Ok(Duration::from_millis(millis)),
        false => Err(CodecError::OutOfRange),
    }
}
