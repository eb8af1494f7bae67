//! A snapshot as bytes: a word to know it by, a format byte, a checksum, and the data.
//!
//! A version that cannot read a snapshot must say so and not guess, so the format byte stands before
//! anything that could change, and changes with everything in [`wire`](super::wire).
//!
//! Invariants:
//! - Nothing is decoded before the checksum is right, and the checksum covers all that follows it.
//! - Decoding takes no more memory than a few times the file, whatever its lengths claim.

use std::io;

use super::wire::WireFile;
use super::{Saved, SnapshotError};
use crate::fnv;

/// What a snapshot begins with.
const MAGIC: [u8; 3] = *b"QGS";

/// The version of everything after this byte.
const FORMAT: u8 = 1;

/// The most bytes of a file: ten thousand endpoints whose times of the window are kept, with room
/// to spare.
pub(super) const FILE_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// Why a file is no snapshot that this version can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// It cannot be opened or read.
    #[error("it cannot be read ({kind})")]
    Unreadable {
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// It leads elsewhere.
    #[error("it is a symbolic link")]
    Link,
    /// It is a folder, a pipe, a socket or a device.
    #[error("it is no regular file")]
    NoFile,
    /// It is larger than [`FILE_BYTES_MAX`].
    #[error("it is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It begins with something else.
    #[error("it is no snapshot")]
    OtherFile,
    /// It ends before its data begins.
    #[error("it is cut short")]
    CutShort,
    /// Another version wrote it.
    #[error("its format is {format}, and this version reads {FORMAT}")]
    OtherFormat {
        /// The format byte.
        format: u8,
    },
    /// It is damaged.
    #[error("its checksum does not match")]
    Checksum,
    /// The data is not of the form, longer than a bound, or more than it.
    #[error("its data is malformed")]
    Malformed,
    /// A number is beyond its range.
    #[error("a number in it is out of range")]
    OutOfRange,
}

/// Turns breakers into the bytes of a file.
///
/// # Errors
/// If something is longer than a reader accepts.
pub(super) fn encode(wall_millis: u64, saved: &[Saved]) -> Result<Vec<u8>, SnapshotError> {
    let wire = WireFile::new(wall_millis, saved)?;
    let payload = bincode::encode_to_vec(&wire, bincode::config::standard())
        .map_err(SnapshotError::Encode)?;
    let checksum = checksum(&payload).to_le_bytes();
    let bytes = [MAGIC.as_slice(), &[FORMAT], &checksum, &payload].concat();
    match bytes.len() <= FILE_BYTES_MAX {
        true => Ok(bytes),
        false => Err(SnapshotError::FitFile { bytes: bytes.len() }),
    }
}

/// Reads the bytes of a file: when it was written, and the breakers.
///
/// # Errors
/// If the bytes are no snapshot of this format within the bounds.
pub(super) fn decode(bytes: &[u8]) -> Result<(u64, Vec<Saved>), Unfit> {
    if bytes.is_empty() {
        return Err(Unfit::Empty);
    }
    let rest = bytes.strip_prefix(&MAGIC).ok_or(match MAGIC.starts_with(bytes) {
        true => Unfit::CutShort,
        false => Unfit::OtherFile,
    })?;
    let (format, rest) = rest.split_first().ok_or(Unfit::CutShort)?;
    if *format != FORMAT {
        return Err(Unfit::OtherFormat { format: *format });
    }
    let (sum, payload) = rest.split_first_chunk().ok_or(Unfit::CutShort)?;
    if u64::from_le_bytes(*sum) != checksum(payload) {
        return Err(Unfit::Checksum);
    }
    // The limit bounds what the length of a text may make the decoder allocate.
    let config = bincode::config::standard().with_limit::<FILE_BYTES_MAX>();
    let decoded = bincode::decode_from_slice::<WireFile, _>(payload, config);
    match decoded {
        Ok((wire, consumed)) if consumed == payload.len() => wire.into_saved(),
        Ok(_) | Err(_) => Err(Unfit::Malformed),
    }
}

/// It guards against a failing disk and not against an attacker, who could write a whole snapshot as
/// well.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    fnv::digest(bytes.iter().copied())
}
