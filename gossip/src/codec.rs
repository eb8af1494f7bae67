//! Statements as bytes and back: the one place that knows bincode.
//!
//! The structures on the wire mirror those of the rule, and the rule's may change without them. A
//! rolling upgrade mixes versions, and a roll-back mixes them again, so the wire changes in three ways:
//! - A field is appended at the end of a record: readers that do not know it skip it.
//! - A new kind of record gets a format byte of its own: readers that do not know it skip the record.
//! - Whatever else changes gets a new format byte, is read by one version and written by the next, so that
//!   no version writes what its neighbours cannot read. The envelopes (sealed form, push) change in this way
//!   only, since what is appended to them nobody has signed.
//!
//! # Invariants
//! - What is decoded is within the bounds below, or an error; nothing is allocated beyond them.
//! - What is encoded can be decoded by this version: words that only inform are cut, names that
//!   identify are never cut but refused.
//! - Golden bytes in the tests pin the format.

mod inward;
mod outward;
mod wire;

use bincode::{Decode, Encode};
use quorum::{NodeId, Statement};

use crate::error::NODE_ID_BYTES_MAX;
use crate::records::{Body, Record};
use crate::seal::Chain;
use crate::stats::Reject;
use crate::vet::NUMBER_MAX;
use wire::{WireAsked, WireBody, WirePush, WireRecord, WireSealed};

/// The first byte of a record, of its sealed form, and of a push.
const FORMAT: u8 = 2;

/// The first byte of a record about a member. Readers that know no such records skip it.
const MEMBER_FORMAT: u8 = 3;

/// The most bytes of a certificate with its intermediates, as DER.
pub(crate) const CHAIN_BYTES_MAX: usize = 4 * 1_024;

/// The most certificates in a chain.
const CHAIN_MAX: usize = 8;

/// The most bytes of a record, format byte included. The longest is the one that holds a
/// certificate.
pub(crate) const RECORD_BYTES_MAX: usize = CHAIN_BYTES_MAX + 256;

/// The most bytes of a signature: one of an RSA key of 4,096 bits.
pub(crate) const SIGNATURE_BYTES_MAX: usize = 512;

/// The most bytes of a sealed record.
pub(crate) const SEALED_BYTES_MAX: usize = RECORD_BYTES_MAX + SIGNATURE_BYTES_MAX + 16;

/// The most bytes of a push, format byte included: less than the limit of a frame.
pub(crate) const PUSH_BYTES_MAX: usize = 60 * 1_024;

/// What decoding a record may allocate, and read: its bytes, and the place of each in a list.
const RECORD_MEMORY_MAX: usize = RECORD_BYTES_MAX + 1_024;

/// What decoding a sealed record may allocate, and read.
const SEALED_MEMORY_MAX: usize = SEALED_BYTES_MAX + 1_024;

/// What decoding a push may allocate: its bytes, and the place of each record in a list.
const PUSH_MEMORY_MAX: usize = 4 * PUSH_BYTES_MAX;

/// The most bytes of `pool/endpoint`.
pub(crate) const ENDPOINT_BYTES_MAX: usize = 256;

const VOTE_REASON_BYTES_MAX: usize = 64;
const ORDER_REASON_BYTES_MAX: usize = 256;
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Push {
    /// Who wrote the records.
    pub(crate) node_id: String,
    pub(crate) generation: u64,
    /// Zero: for its receiver alone. Otherwise how many times it has been sent, and whoever
    /// receives it sends it on.
    pub(crate) hops: u8,
    /// The writer's certificate; empty where nothing is signed.
    pub(crate) chain: Chain,
    /// Sealed records.
    pub(crate) records: Vec<Vec<u8>>,
}

/// An encoded record with its writer's signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) record: Vec<u8>,
    /// How it is signed, in TLS's numbers; zero without a signature.
    pub(crate) scheme: u16,
    pub(crate) signature: Vec<u8>,
}

/// Turns a record into bytes.
///
/// # Errors
/// If a name is too long or a number out of range.
pub(crate) fn encode(record: &Record) -> Result<Vec<u8>, CodecError> {
    let body = match &record.body {
        Body::Card(card) => WireBody::Card(outward::card(card)),
        Body::Pulse(pulse) => WireBody::Pulse(number(*pulse)?),
        Body::Certificate(chain) => WireBody::Certificate(within(chain.clone())?),
        Body::Statement(Statement::Vote(endpoint, vote)) => {
            WireBody::Vote(outward::endpoint(endpoint)?, outward::vote(vote)?)
        }
        Body::Statement(Statement::Step(endpoint, step)) => {
            WireBody::Step(outward::endpoint(endpoint)?, outward::step(step)?)
        }
        Body::Statement(Statement::Override(endpoint, order)) => {
            WireBody::Override(outward::endpoint(endpoint)?, outward::order(order)?)
        }
        Body::Statement(Statement::Window(endpoint, window)) => {
            WireBody::Window(outward::endpoint(endpoint)?, outward::window(window))
        }
        Body::Statement(Statement::Member(member, order)) => {
            let wire = outward::asked(number(record.seq)?, member, order)?;
            return write_as(MEMBER_FORMAT, &wire, RECORD_BYTES_MAX);
        }
    };
    let wire = WireRecord { seq: number(record.seq)?, body };
    write(&wire, RECORD_BYTES_MAX)
}

/// Reads a record.
///
/// # Errors
/// If the bytes do not begin with a record of this version, or are beyond the bounds.
pub(crate) fn decode(bytes: &[u8]) -> Result<Record, CodecError> {
    if bytes.first() == Some(&MEMBER_FORMAT) {
        return decode_asked(bytes);
    }
    let wire: WireRecord = read_open::<_, RECORD_MEMORY_MAX>(FORMAT, bytes, RECORD_BYTES_MAX)?;
    let body = match wire.body {
        WireBody::Card(card) => Body::Card(inward::card(card)?),
        WireBody::Pulse(pulse) => Body::Pulse(number(pulse)?),
        WireBody::Certificate(chain) => Body::Certificate(within(chain)?),
        WireBody::Vote(endpoint, vote) => {
            Body::Statement(Statement::Vote(inward::endpoint(&endpoint)?, inward::vote(vote)?))
        }
        WireBody::Step(endpoint, step) => {
            Body::Statement(Statement::Step(inward::endpoint(&endpoint)?, inward::step(step)?))
        }
        WireBody::Override(endpoint, order) => Body::Statement(Statement::Override(
            inward::endpoint(&endpoint)?,
            inward::order(order)?,
        )),
        WireBody::Window(endpoint, window) => Body::Statement(Statement::Window(
            inward::endpoint(&endpoint)?,
            inward::window(window)?,
        )),
    };
    Ok(Record { seq: number(wire.seq)?, body })
}

fn decode_asked(bytes: &[u8]) -> Result<Record, CodecError> {
    let wire: WireAsked =
        read_open::<_, RECORD_MEMORY_MAX>(MEMBER_FORMAT, bytes, RECORD_BYTES_MAX)?;
    let seq = number(wire.seq)?;
    plain(&wire.member)?;
    let member = NodeId::new(&bounded(wire.member, NODE_ID_BYTES_MAX)?);
    let order = inward::asked(wire.verb, wire.generation, wire.reason)?;
    Ok(Record { seq, body: Body::Statement(Statement::Member(member, order)) })
}

/// Turns a sealed record into bytes.
///
/// # Errors
/// If it is too long.
pub(crate) fn encode_sealed(sealed: Sealed) -> Result<Vec<u8>, CodecError> {
    let Sealed { record, scheme, signature } = sealed;
    write(&WireSealed { record, scheme, signature }, SEALED_BYTES_MAX)
}

/// Reads a sealed record, and not yet what is in it.
///
/// # Errors
/// If the bytes are none of this version within the bounds.
pub(crate) fn decode_sealed(bytes: &[u8]) -> Result<Sealed, CodecError> {
    let WireSealed { record, scheme, signature } =
        read::<_, SEALED_MEMORY_MAX>(bytes, SEALED_BYTES_MAX)?;
    match signature.len() <= SIGNATURE_BYTES_MAX {
        true => Ok(Sealed { record, scheme, signature }),
        false => Err(CodecError::TooLong),
    }
}

/// Turns a push into bytes.
///
/// # Errors
/// If it is too long for one frame.
pub(crate) fn encode_push(push: Push) -> Result<Vec<u8>, CodecError> {
    let Push { node_id, generation, hops, chain, records } = push;
    write(&WirePush { node_id, generation, hops, chain, records }, PUSH_BYTES_MAX)
}

/// Reads a push. Its records are read one by one later, so that one of an unknown format does not
/// take the others with it.
///
/// # Errors
/// If the bytes are no push of this version within the bounds.
pub(crate) fn decode_push(bytes: &[u8]) -> Result<Push, CodecError> {
    let WirePush { node_id, generation, hops, chain, records } =
        read::<_, PUSH_MEMORY_MAX>(bytes, PUSH_BYTES_MAX)?;
    let node_id = bounded(node_id, NODE_ID_BYTES_MAX)?;
    Ok(Push { node_id, generation: number(generation)?, hops, chain: within(chain)?, records })
}

fn within(chain: Chain) -> Result<Chain, CodecError> {
    let bytes: usize = chain.iter().map(Vec::len).sum();
    match chain.len() <= CHAIN_MAX && bytes <= CHAIN_BYTES_MAX {
        true => Ok(chain),
        false => Err(CodecError::TooLong),
    }
}

fn write<T: Encode>(wire: &T, bytes_max: usize) -> Result<Vec<u8>, CodecError> {
    write_as(FORMAT, wire, bytes_max)
}

fn write_as<T: Encode>(format: u8, wire: &T, bytes_max: usize) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![format];
    let config = bincode::config::standard();
    bincode::encode_into_std_write(wire, &mut bytes, config).map_err(|_| CodecError::Malformed)?;
    match bytes.len() <= bytes_max {
        true => Ok(bytes),
        false => Err(CodecError::TooLong),
    }
}

/// Reads an envelope: all of the bytes.
fn read<T: Decode<()>, const MEMORY_MAX: usize>(
    bytes: &[u8],
    bytes_max: usize,
) -> Result<T, CodecError> {
    match split::<T, MEMORY_MAX>(FORMAT, bytes, bytes_max)? {
        (wire, []) => Ok(wire),
        (_, _) => Err(CodecError::Malformed),
    }
}

/// Reads a record: the bytes, but for what a later version has appended.
fn read_open<T: Decode<()>, const MEMORY_MAX: usize>(
    wanted: u8,
    bytes: &[u8],
    bytes_max: usize,
) -> Result<T, CodecError> {
    split::<T, MEMORY_MAX>(wanted, bytes, bytes_max).map(|(wire, _)| wire)
}

/// Reads what the bytes begin with; returns what follows it, too.
fn split<T: Decode<()>, const MEMORY_MAX: usize>(
    wanted: u8,
    bytes: &[u8],
    bytes_max: usize,
) -> Result<(T, &[u8]), CodecError> {
    if bytes.len() > bytes_max {
        return Err(CodecError::TooLong);
    }
    let (format, rest) = bytes.split_first().ok_or(CodecError::Malformed)?;
    if *format != wanted {
        return Err(CodecError::UnknownFormat);
    }
    // The limit also bounds what a length prefix may make the decoder allocate.
    let config = bincode::config::standard().with_limit::<MEMORY_MAX>();
    let (wire, consumed) =
        bincode::decode_from_slice(rest, config).map_err(|_| CodecError::Malformed)?;
    Ok((wire, rest.get(consumed..).unwrap_or_default()))
}

fn bounded(text: String, bytes_max: usize) -> Result<String, CodecError> {
    match text.len() <= bytes_max {
        true => Ok(text),
        false => Err(CodecError::TooLong),
    }
}

/// A name goes into keys, logs and metrics, none of which may be broken by it.
fn plain(name: &str) -> Result<(), CodecError> {
    match name.chars().any(char::is_control) {
        true => Err(CodecError::Malformed),
        false => Ok(()),
    }
}

/// A counter that grows by one never gets beyond the bound; one beyond it is meant to end all
/// counting, since nothing could be greater.
fn number(number: u64) -> Result<u64, CodecError> {
    match number <= NUMBER_MAX {
        true => Ok(number),
        false => Err(CodecError::OutOfRange),
    }
}

#[cfg(test)]
mod tests;
