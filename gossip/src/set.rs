//! All that a node states as one value, for carriers that bring whole sets.
//!
//! Gossip carries records one by one, each sealed. A carrier that keeps one value for each node
//! carries the same records behind each other; who may write there is the carrier's affair.
//!
//! # Invariants
//! - A set is read within the bounds of its records, or not at all; a record of a format that is not
//!   known is left out, and takes no other with it.
//! - What does not fit is left out from the end: orders about members come first in what a node
//!   states.

use std::collections::HashSet;

use quorum::{Card, Heard, Stated, Statement};

use crate::codec;
use crate::push::RECORDS_MAX;
use crate::records::{Body, Record, is_next, statement_key};

/// The first byte of a set: one of another version is not read.
const FORMAT: u8 = 1;

/// The most bytes of a set.
pub const SET_BYTES_MAX: usize = 256 * 1_024;

/// Room for the length of a record.
const LENGTH_BYTES: usize = 2;

/// A set that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// What the node says of itself.
    pub card: Option<Card>,
    /// What it states.
    pub heard: Vec<Heard>,
    /// Records that are of no use: of a format that is not known, out of bounds, or twice there.
    pub ignored: usize,
}

/// Why bytes are no set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// It is of another version of the format.
    #[error("the format is not known")]
    UnknownFormat,
    /// It has more than [`SET_BYTES_MAX`] bytes.
    #[error("it is too long")]
    TooLong,
    /// The lengths in it do not add up.
    #[error("it is damaged")]
    Malformed,
}

/// Turns a set into bytes, at most [`SET_BYTES_MAX`]. Returns them, and how many statements are left
/// out: those that are out of bounds, and the last ones if there are too many.
pub fn encode(card: Option<&Card>, stated: &[Stated]) -> (Vec<u8>, usize) {
    let mut bytes = vec![FORMAT];
    if let Some(card) = card {
        // A card is cut to its bounds and always fits.
        append(&mut bytes, &Record { seq: 0, body: Body::Card(card.clone()) });
    }
    let mut left_out = stated.len().saturating_sub(RECORDS_MAX);
    for Stated { seq, statement, .. } in stated.iter().take(RECORDS_MAX) {
        let record = Record { seq: *seq, body: Body::Statement(statement.clone()) };
        left_out += usize::from(!append(&mut bytes, &record));
    }
    (bytes, left_out)
}

/// Appends a record. Returns whether it could be.
fn append(bytes: &mut Vec<u8>, record: &Record) -> bool {
    let Ok(encoded) = codec::encode(record) else { return false };
    let Ok(length) = u16::try_from(encoded.len()) else { return false };
    let has_room = bytes.len() + LENGTH_BYTES + encoded.len() <= SET_BYTES_MAX;
    if has_room {
        bytes.extend(length.to_be_bytes());
        bytes.extend(encoded);
    }
    has_room
}

/// Reads a set.
///
/// # Errors
/// [`SetError`]; a single record that is of no use is counted and left out.
pub fn decode(bytes: &[u8]) -> Result<Set, SetError> {
    if bytes.len() > SET_BYTES_MAX {
        return Err(SetError::TooLong);
    }
    let (format, mut rest) = bytes.split_first().ok_or(SetError::Malformed)?;
    if *format != FORMAT {
        return Err(SetError::UnknownFormat);
    }
    let mut set = Set::default();
    let mut keys = HashSet::new();
    while let Some((length, tail)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (encoded, tail) = tail.split_at_checked(length).ok_or(SetError::Malformed)?;
        rest = tail;
        match codec::decode(encoded) {
            Ok(record) => set.ignored += usize::from(!set.take(record, &mut keys)),
            Err(_) => set.ignored += 1,
        }
    }
    match rest.is_empty() {
        true => Ok(set),
        false => Err(SetError::Malformed),
    }
}

impl Set {
    /// Takes a record in. Returns whether it is of use.
    fn take(&mut self, record: Record, keys: &mut HashSet<String>) -> bool {
        let is_plausible = is_next(&record, 0);
        match record.body {
            Body::Card(card) if self.card.is_none() => {
                self.card = Some(card);
                true
            }
            Body::Statement(statement) if is_plausible && self.has_room(&statement, keys) => {
                self.heard.push(Heard { seq: record.seq, statement });
                true
            }
            Body::Card(_) | Body::Statement(_) | Body::Pulse(_) | Body::Certificate(_) => false,
        }
    }

    fn has_room(&self, statement: &Statement, keys: &mut HashSet<String>) -> bool {
        self.heard.len() < RECORDS_MAX && keys.insert(statement_key(statement))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorum::{EndpointKey, NodeId, Stage, Standing, Step};

    use super::*;

    fn card() -> Card {
        Card {
            version: "0.1.0".to_owned(),
            config_hash: "abc".to_owned(),
            standing: Standing::Draining,
            is_suspect: true,
        }
    }

    fn step(seq: u64, endpoint: &str) -> Stated {
        let step = Step {
            incident: 3,
            failures: 1,
            level: 2,
            stage: Stage::Waiting { remaining: Duration::from_millis(1_500) },
            steward: NodeId::new("gw-1"),
            age: Duration::from_millis(250),
            is_held: true,
        };
        let statement = Statement::Step(EndpointKey::new(endpoint), step);
        Stated { seq, fresh: true, statement }
    }

    #[test]
    fn what_is_written_is_read() {
        let stated = [step(7, "chat/a"), step(9, "chat/b")];
        let (bytes, left_out) = encode(Some(&card()), &stated);
        assert_eq!(left_out, 0);
        let set = decode(&bytes).unwrap();
        assert_eq!((set.card, set.ignored), (Some(card()), 0));
        let heard: Vec<_> =
            stated.map(|Stated { seq, statement, .. }| Heard { seq, statement }).into();
        assert_eq!(set.heard, heard);
        assert_eq!(decode(&encode(None, &[]).0), Ok(Set::default()));
    }

    #[test]
    fn a_set_that_is_too_large_loses_its_end() {
        let stated: Vec<_> =
            (1..=5_000).map(|seq| step(seq, &format!("{}/{seq}", "p".repeat(200)))).collect();
        let (bytes, left_out) = encode(Some(&card()), &stated);
        assert!(bytes.len() <= SET_BYTES_MAX, "{}", bytes.len());
        let heard = decode(&bytes).unwrap().heard;
        assert_eq!(heard.len() + left_out, stated.len());
        assert_eq!(heard.last().map(|heard| heard.seq), Some(heard.len() as u64));
    }

    #[test]
    fn the_bytes_of_a_set_are_golden() {
        let (bytes, _) = encode(Some(&card()), &[step(7, "chat/a")]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "01000f02000005302e312e30036162630101001802070206636861742f6103010200fbdc050467772d31fa01";
        assert_eq!(hex, expected);
    }

    #[test]
    fn a_record_of_another_version_takes_no_other_with_it() {
        let (mut bytes, _) = encode(Some(&card()), &[]);
        bytes.extend([0, 3, 200, 1, 2]);
        bytes.extend(encode(None, &[step(4, "chat/a"), step(5, "chat/a")]).0.into_iter().skip(1));
        let set = decode(&bytes).unwrap();
        // The second statement under one key is none.
        assert_eq!((set.card.is_some(), set.heard.len(), set.ignored), (true, 1, 2));
    }

    #[test]
    fn what_is_no_set_is_refused() {
        assert_eq!(decode(&[]), Err(SetError::Malformed));
        assert_eq!(decode(&[9]), Err(SetError::UnknownFormat));
        assert_eq!(decode(&vec![FORMAT; SET_BYTES_MAX + 1]), Err(SetError::TooLong));
        let (bytes, _) = encode(Some(&card()), &[step(7, "chat/a")]);
        for end in 2..bytes.len() {
            let cut = decode(&bytes[..end]);
            // Cut between two records it is a shorter set.
            assert!(cut.is_err() || cut.is_ok_and(|set| set.heard.is_empty()), "{end}");
        }
    }

    #[test]
    fn noise_is_read_without_harm() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        let (whole, _) = encode(Some(&card()), &[step(7, "chat/a"), step(9, "chat/b")]);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..chance.usize(1..6) {
                let at = chance.usize(..bytes.len());
                bytes[at] = chance.u8(..);
            }
            if let Ok(set) = decode(&bytes) {
                assert!(set.heard.len() <= 3);
            }
        }
    }
}
