//! One statement on the wire: its number, its key among the writer's statements, its text form.
//!
//! chitchat carries strings under string keys, a push carries bytes; both carry the same records.
//!
//! # Invariants
//! - The key follows from the record, so that two records never meet under one key by mistake.
//! - A record replaces another one only if its number is greater.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use quorum::{Card, Statement};

use crate::codec::{self, CodecError};

/// Keys longer than this are none of ours: two bytes and an endpoint's name.
pub(crate) const KEY_BYTES_MAX: usize = 2 + codec::ENDPOINT_BYTES_MAX;

/// A record in base64 is never longer than this.
pub(crate) const VALUE_BYTES_MAX: usize = codec::RECORD_BYTES_MAX.div_ceil(3) * 4;

/// The key of a member's card.
pub(crate) const CARD_KEY: &str = "c";

/// The key of a member's pulse.
pub(crate) const PULSE_KEY: &str = "p";

/// One thing that a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Grows with every stating; apart for the card and the statements. A pulse carries the
    /// greatest number of a statement that was made before it.
    pub(crate) seq: u64,
    pub(crate) body: Body,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// What the node says of itself.
    Card(Card),
    /// What it says of an endpoint.
    Statement(Statement),
    /// That it stands by all it has stated.
    Pulse(u64),
}

impl Record {
    /// The key of the record among the statements of its writer.
    pub(crate) fn key(&self) -> String {
        match &self.body {
            Body::Card(_) => CARD_KEY.to_owned(),
            Body::Pulse(_) => PULSE_KEY.to_owned(),
            Body::Statement(statement) => statement_key(statement),
        }
    }

    /// The text form of an encoded record.
    pub(crate) fn to_value(encoded: &[u8]) -> String {
        STANDARD_NO_PAD.encode(encoded)
    }

    /// Reads the text form found under a key.
    ///
    /// # Errors
    /// If it is no record, or a record of another key.
    pub(crate) fn from_value(key: &str, value: &str) -> Result<Self, CodecError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(CodecError::TooLong);
        }
        let bytes = STANDARD_NO_PAD.decode(value).map_err(|_| CodecError::Malformed)?;
        let record = codec::decode(&bytes)?;
        match record.key() == key {
            true => Ok(record),
            false => Err(CodecError::Malformed),
        }
    }
}

/// The key of a statement among the statements of its writer.
pub(crate) fn statement_key(statement: &Statement) -> String {
    let letter = match statement {
        Statement::Vote(..) => 'v',
        Statement::Step(..) => 's',
        Statement::Override(..) => 'o',
        Statement::Window(..) => 'w',
    };
    format!("{letter}/{}", statement.endpoint())
}
