//! Statements as bytes and back: the one place that knows bincode.
//!
//! The structures here mirror those of the rule and belong to the wire: they change only together
//! with the format byte, and the rule's may change without them. A format that is not known is
//! skipped by its reader, so that a rolling upgrade may mix versions.
//!
//! # Invariants
//! - What is decoded is within the bounds below, or an error; nothing is allocated beyond them.
//! - What is encoded can be decoded by this version: words that only inform are cut, names that
//!   identify are never cut but refused.
//! - Golden bytes in the tests pin the format.

use std::time::Duration;

use bincode::{Decode, Encode};
use quorum::{
    Basis, Card, EndpointKey, Evidence, Forced, NodeId, Override, Stage, Standing, Statement, Step,
    Vote,
};

use crate::error::NODE_ID_BYTES_MAX;
use crate::records::{Body, Record};
use crate::stats::Reject;
use crate::vet::NUMBER_MAX;

/// The first byte of a record and of a push.
const FORMAT: u8 = 1;

/// The most bytes of a record, format byte included.
pub(crate) const RECORD_BYTES_MAX: usize = 4 * 1_024;

/// The most bytes of a push, format byte included: less than the limit of a frame.
pub(crate) const PUSH_BYTES_MAX: usize = 60 * 1_024;

/// What decoding a record may allocate, and read. All of its words together are well below.
const RECORD_MEMORY_MAX: usize = RECORD_BYTES_MAX;

/// What decoding a push may allocate: its bytes, and the place of each record in a list.
const PUSH_MEMORY_MAX: usize = 4 * PUSH_BYTES_MAX;

/// The most bytes of `pool/endpoint`.
pub(crate) const ENDPOINT_BYTES_MAX: usize = 256;

const VOTE_REASON_BYTES_MAX: usize = 64;
const OVERRIDE_REASON_BYTES_MAX: usize = 256;
const VERSION_BYTES_MAX: usize = 64;
const CONFIG_HASH_BYTES_MAX: usize = 128;

/// Nothing a gateway states lasts longer than a year.
const MILLIS_MAX: u64 = 365 * 24 * 60 * 60 * 1_000;

/// Why bytes are no record, or a record cannot become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodecError {
    /// The format is of another version.
    UnknownFormat,
    /// Something is longer than it may be.
    TooLong,
    /// A number is out of its range.
    OutOfRange,
    /// The bytes are not of the form, or more than it.
    Malformed,
}

impl From<CodecError> for Reject {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::UnknownFormat => Self::UnknownFormat,
            CodecError::TooLong => Self::Oversize,
            CodecError::OutOfRange => Self::Implausible,
            CodecError::Malformed => Self::Undecodable,
        }
    }
}

/// What a push says: these records are this node's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Push {
    pub(crate) node_id: String,
    pub(crate) generation: u64,
    /// Encoded records.
    pub(crate) records: Vec<Vec<u8>>,
}

#[derive(Encode, Decode)]
struct WirePush {
    node_id: String,
    generation: u64,
    records: Vec<Vec<u8>>,
}

#[derive(Encode, Decode)]
struct WireRecord {
    seq: u64,
    body: WireBody,
}

#[derive(Encode, Decode)]
enum WireBody {
    Card(WireCard),
    Vote(String, WireVote),
    Step(String, WireStep),
    Override(String, WireOverride),
}

#[derive(Encode, Decode)]
struct WireCard {
    version: String,
    config_hash: String,
    standing: WireStanding,
}

#[derive(Encode, Decode)]
enum WireStanding {
    Serving,
    Draining,
    Left,
}

#[derive(Encode, Decode)]
struct WireVote {
    incident: u64,
    basis: WireBasis,
    stands: bool,
    reason: String,
    requests: u32,
    faults_milli: u32,
    successes: u32,
    slow_pieces: u32,
    age_millis: u64,
}

#[derive(Encode, Decode)]
enum WireBasis {
    FirstHand,
    Seconded,
}

#[derive(Encode, Decode)]
struct WireStep {
    incident: u64,
    failures: u32,
    level: u32,
    stage: WireStage,
    steward: String,
    age_millis: u64,
}

#[derive(Encode, Decode)]
enum WireStage {
    Waiting { remaining_millis: u64 },
    Probing { remaining_millis: u64 },
    Closed,
}

#[derive(Encode, Decode)]
struct WireOverride {
    forced: WireForced,
    stamp: u64,
    author: String,
    remaining_millis: Option<u64>,
    reason: String,
}

#[derive(Encode, Decode)]
enum WireForced {
    Open,
    Closed,
    Auto,
}

/// Turns a record into bytes.
///
/// # Errors
/// If a name is too long or a number out of range.
pub(crate) fn encode(record: &Record) -> Result<Vec<u8>, CodecError> {
    let body = match &record.body {
        Body::Card(card) => WireBody::Card(to_card(card)),
        Body::Statement(Statement::Vote(endpoint, vote)) => {
            WireBody::Vote(to_endpoint(endpoint)?, to_vote(vote)?)
        }
        Body::Statement(Statement::Step(endpoint, step)) => {
            WireBody::Step(to_endpoint(endpoint)?, to_step(step)?)
        }
        Body::Statement(Statement::Override(endpoint, order)) => {
            WireBody::Override(to_endpoint(endpoint)?, to_override(order)?)
        }
    };
    let wire = WireRecord { seq: number(record.seq)?, body };
    write(&wire, RECORD_BYTES_MAX)
}

/// Reads a record.
///
/// # Errors
/// If the bytes are no record of this version within the bounds.
pub(crate) fn decode(bytes: &[u8]) -> Result<Record, CodecError> {
    let wire: WireRecord = read::<_, RECORD_MEMORY_MAX>(bytes, RECORD_BYTES_MAX)?;
    let body = match wire.body {
        WireBody::Card(card) => Body::Card(from_card(card)?),
        WireBody::Vote(endpoint, vote) => {
            Body::Statement(Statement::Vote(from_endpoint(&endpoint)?, from_vote(vote)?))
        }
        WireBody::Step(endpoint, step) => {
            Body::Statement(Statement::Step(from_endpoint(&endpoint)?, from_step(step)?))
        }
        WireBody::Override(endpoint, order) => {
            Body::Statement(Statement::Override(from_endpoint(&endpoint)?, from_override(order)?))
        }
    };
    Ok(Record { seq: number(wire.seq)?, body })
}

/// Turns a push into bytes.
///
/// # Errors
/// If it is too long for one frame.
pub(crate) fn encode_push(push: Push) -> Result<Vec<u8>, CodecError> {
    let Push { node_id, generation, records } = push;
    write(&WirePush { node_id, generation, records }, PUSH_BYTES_MAX)
}

/// Reads a push. Its records are read one by one later, so that one of an unknown format does not
/// take the others with it.
///
/// # Errors
/// If the bytes are no push of this version within the bounds.
pub(crate) fn decode_push(bytes: &[u8]) -> Result<Push, CodecError> {
    let WirePush { node_id, generation, records } =
        read::<_, PUSH_MEMORY_MAX>(bytes, PUSH_BYTES_MAX)?;
    let node_id = bounded(node_id, NODE_ID_BYTES_MAX)?;
    Ok(Push { node_id, generation: number(generation)?, records })
}

fn write<T: Encode>(wire: &T, bytes_max: usize) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![FORMAT];
    let config = bincode::config::standard();
    bincode::encode_into_std_write(wire, &mut bytes, config).map_err(|_| CodecError::Malformed)?;
    match bytes.len() <= bytes_max {
        true => Ok(bytes),
        false => Err(CodecError::TooLong),
    }
}

fn read<T: Decode<()>, const MEMORY_MAX: usize>(
    bytes: &[u8],
    bytes_max: usize,
) -> Result<T, CodecError> {
    if bytes.len() > bytes_max {
        return Err(CodecError::TooLong);
    }
    let (format, rest) = bytes.split_first().ok_or(CodecError::Malformed)?;
    if *format != FORMAT {
        return Err(CodecError::UnknownFormat);
    }
    // The limit also bounds what a length prefix may make the decoder allocate.
    let config = bincode::config::standard().with_limit::<MEMORY_MAX>();
    let decoded = bincode::decode_from_slice(rest, config).map_err(|_| CodecError::Malformed)?;
    match decoded {
        (wire, consumed) if consumed == rest.len() => Ok(wire),
        _ => Err(CodecError::Malformed),
    }
}

fn to_card(card: &Card) -> WireCard {
    WireCard {
        version: cut(&card.version, VERSION_BYTES_MAX),
        config_hash: cut(&card.config_hash, CONFIG_HASH_BYTES_MAX),
        standing: match card.standing {
            Standing::Serving => WireStanding::Serving,
            Standing::Draining => WireStanding::Draining,
            Standing::Left => WireStanding::Left,
        },
    }
}

fn from_card(wire: WireCard) -> Result<Card, CodecError> {
    Ok(Card {
        version: bounded(wire.version, VERSION_BYTES_MAX)?,
        config_hash: bounded(wire.config_hash, CONFIG_HASH_BYTES_MAX)?,
        standing: match wire.standing {
            WireStanding::Serving => Standing::Serving,
            WireStanding::Draining => Standing::Draining,
            WireStanding::Left => Standing::Left,
        },
    })
}

fn to_vote(vote: &Vote) -> Result<WireVote, CodecError> {
    Ok(WireVote {
        incident: number(vote.incident)?,
        basis: match vote.basis {
            Basis::FirstHand => WireBasis::FirstHand,
            Basis::Seconded => WireBasis::Seconded,
        },
        stands: vote.stands,
        reason: cut(&vote.reason, VOTE_REASON_BYTES_MAX),
        requests: vote.evidence.requests,
        faults_milli: vote.evidence.faults_milli,
        successes: vote.evidence.successes,
        slow_pieces: vote.evidence.slow_pieces,
        age_millis: to_millis(vote.age),
    })
}

fn from_vote(wire: WireVote) -> Result<Vote, CodecError> {
    Ok(Vote {
        incident: number(wire.incident)?,
        basis: match wire.basis {
            WireBasis::FirstHand => Basis::FirstHand,
            WireBasis::Seconded => Basis::Seconded,
        },
        stands: wire.stands,
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

fn to_step(step: &Step) -> Result<WireStep, CodecError> {
    Ok(WireStep {
        incident: number(step.incident)?,
        failures: step.failures,
        level: step.level,
        stage: match step.stage {
            Stage::Waiting { remaining } => {
                WireStage::Waiting { remaining_millis: to_millis(remaining) }
            }
            Stage::Probing { remaining } => {
                WireStage::Probing { remaining_millis: to_millis(remaining) }
            }
            Stage::Closed => WireStage::Closed,
        },
        steward: bounded(step.steward.as_str().to_owned(), NODE_ID_BYTES_MAX)?,
        age_millis: to_millis(step.age),
    })
}

fn from_step(wire: WireStep) -> Result<Step, CodecError> {
    Ok(Step {
        incident: number(wire.incident)?,
        failures: wire.failures,
        level: wire.level,
        stage: match wire.stage {
            WireStage::Waiting { remaining_millis } => {
                Stage::Waiting { remaining: from_millis(remaining_millis)? }
            }
            WireStage::Probing { remaining_millis } => {
                Stage::Probing { remaining: from_millis(remaining_millis)? }
            }
            WireStage::Closed => Stage::Closed,
        },
        steward: from_node(&wire.steward)?,
        age: from_millis(wire.age_millis)?,
    })
}

fn to_override(order: &Override) -> Result<WireOverride, CodecError> {
    Ok(WireOverride {
        forced: match order.forced {
            Forced::Open => WireForced::Open,
            Forced::Closed => WireForced::Closed,
            Forced::Auto => WireForced::Auto,
        },
        stamp: number(order.stamp)?,
        author: bounded(order.author.as_str().to_owned(), NODE_ID_BYTES_MAX)?,
        remaining_millis: order.remaining.map(to_millis),
        reason: cut(&order.reason, OVERRIDE_REASON_BYTES_MAX),
    })
}

fn from_override(wire: WireOverride) -> Result<Override, CodecError> {
    Ok(Override {
        forced: match wire.forced {
            WireForced::Open => Forced::Open,
            WireForced::Closed => Forced::Closed,
            WireForced::Auto => Forced::Auto,
        },
        stamp: number(wire.stamp)?,
        author: from_node(&wire.author)?,
        remaining: wire.remaining_millis.map(from_millis).transpose()?,
        reason: bounded(wire.reason, OVERRIDE_REASON_BYTES_MAX)?,
    })
}

fn to_endpoint(endpoint: &EndpointKey) -> Result<String, CodecError> {
    bounded(endpoint.as_str().to_owned(), ENDPOINT_BYTES_MAX)
}

fn from_endpoint(text: &str) -> Result<EndpointKey, CodecError> {
    match text.len() <= ENDPOINT_BYTES_MAX {
        true => Ok(EndpointKey::new(text)),
        false => Err(CodecError::TooLong),
    }
}

fn from_node(text: &str) -> Result<NodeId, CodecError> {
    match text.len() <= NODE_ID_BYTES_MAX {
        true => Ok(NodeId::new(text)),
        false => Err(CodecError::TooLong),
    }
}

fn bounded(text: String, bytes_max: usize) -> Result<String, CodecError> {
    match text.len() <= bytes_max {
        true => Ok(text),
        false => Err(CodecError::TooLong),
    }
}

/// Cuts at the last character that fits.
fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// A counter that grows by one never gets beyond the bound; one beyond it is meant to end all
/// counting, since nothing could be greater.
fn number(number: u64) -> Result<u64, CodecError> {
    match number <= NUMBER_MAX {
        true => Ok(number),
        false => Err(CodecError::OutOfRange),
    }
}

fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(MILLIS_MAX).min(MILLIS_MAX)
}

fn from_millis(millis: u64) -> Result<Duration, CodecError> {
    match millis <= MILLIS_MAX {
        true => Ok(Duration::from_millis(millis)),
        false => Err(CodecError::OutOfRange),
    }
}

#[cfg(test)]
mod tests;
