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

use crate::codec::{self, CodecError, Sealed};
use crate::seal::Chain;

/// Keys longer than this are none of ours: two bytes and an endpoint's name, which may
/// be longer than a member's.
pub(crate) const KEY_BYTES_MAX: usize = 2 + codec::ENDPOINT_BYTES_MAX;

/// A sealed record in base64 is never longer than this.
pub(crate) const VALUE_BYTES_MAX: usize = codec::SEALED_BYTES_MAX.div_ceil(3) * 4;

/// The key of a member's card.
pub(crate) const CARD_KEY: &str = "c";

/// The key of a member's certificate.
pub(crate) const CERTIFICATE_KEY: &str = "k";

/// The key of a member's pulse.
pub(crate) const PULSE_KEY: &str = "p";

/// One thing that a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Grows with every stating; apart for the card, the certificate and the statements. A pulse carries the
    /// greatest number of a statement that was made before it.
    pub(crate) seq: u64,
    pub(crate) body: Body,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// What the node says of itself.
    Card(Card),
    /// What it says of an endpoint or a member.
    Statement(Statement),
    /// That it stands by all it has stated.
    Pulse(u64),
    /// With which certificate it signs.
    Certificate(Chain),
}

impl Record {
    /// The key of the record among the statements of its writer.
    pub(crate) fn key(&self) -> String {
        match &self.body {
            Body::Card(_) => CARD_KEY.to_owned(),
            Body::Pulse(_) => PULSE_KEY.to_owned(),
            Body::Certificate(_) => CERTIFICATE_KEY.to_owned(),
            Body::Statement(statement) => statement_key(statement),
        }
    }
}

/// The greatest number of a statement: at ten thousand a second a life takes three years to get
/// there.
const SEQ_MAX: u64 = 1 << 40;

/// How far a number may be beyond the greatest that is known of the same life. Whoever jumps further
/// is broken, and would not be heard again by readers that take greater numbers only.
const SEQ_GAP_MAX: u64 = 1 << 32;

/// Whether the number of a record may follow the greatest number of a statement that is known of
/// its writer's life; zero is none.
pub(crate) fn is_next(record: &Record, known: u64) -> bool {
    match record.body {
        Body::Card(_) | Body::Certificate(_) => record.seq <= SEQ_GAP_MAX,
        Body::Statement(_) | Body::Pulse(_) => {
            record.seq <= SEQ_MAX && (known == 0 || record.seq <= known + SEQ_GAP_MAX)
        }
    }
}

/// The text form of a sealed record.
pub(crate) fn to_value(sealed: &[u8]) -> String {
    STANDARD_NO_PAD.encode(sealed)
}

/// Reads the text form, and not yet what is in it.
///
/// # Errors
/// If it is no sealed record.
pub(crate) fn from_value(value: &str) -> Result<Sealed, CodecError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(CodecError::TooLong);
    }
    let bytes = STANDARD_NO_PAD.decode(value).map_err(|_| CodecError::Malformed)?;
    codec::decode_sealed(&bytes)
}

/// The key of a statement among the statements of its writer.
pub(crate) fn statement_key(statement: &Statement) -> String {
    let letter = match statement {
        Statement::Vote(..) => 'v',
        Statement::Step(..) => 's',
        Statement::Override(..) => 'o',
        Statement::Window(..) => 'w',
        Statement::Member(..) => 'm',
    };
    format!("{letter}/{}", statement.subject())
}
