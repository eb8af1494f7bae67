//! A body in chunks, followed from its first size to its last line.
//!
//! Invariants: what surrounds the data is bounded: sizes by their digits, extensions and trailers by
//! their bytes in the whole body; every line ends by CR LF.

use super::Violation;
use super::signs;

/// Digits of a size, leading zeros included: 2^56 is beyond any body.
const DIGITS_MAX: u8 = 14;
/// Extensions of all chunks of a body, in bytes.
const EXTENSION_BYTES_MAX: u16 = 1_024;
/// Trailers of a body, in bytes with their line ends.
const TRAILER_BYTES_MAX: u16 = 4 * 1_024;
/// Trailers of a body.
const TRAILERS_MAX: u8 = 32;

/// How far a body was read.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    /// What is left of the chunk, or what was read of its size.
    left: u64,
    digits: u8,
    extension_bytes: u16,
    trailer_bytes: u16,
    trailers: u8,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum At {
    Size,
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    /// The first byte of a trailer, or of the last line's end.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
}

impl Default for Chunks {
    fn default() -> Self {
        let (digits, extension_bytes, trailer_bytes, trailers) = (0, 0, 0, 0);
        Self { at: At::Size, left: 0, digits, extension_bytes, trailer_bytes, trailers }
    }
}

impl Chunks {
    /// Reads on. Returns how many of the bytes belong to the body once it has ended.
    ///
    /// # Errors
    /// The first violation.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, Violation> {
        let mut rest = bytes;
        while let Some((byte, behind)) = rest.split_first() {
            if matches!(self.at, At::Data) {
                let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                self.left -= length as u64;
                rest = rest.get(length..).unwrap_or_default();
                if self.left == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            if matches!((self.at, byte), (At::LastLineFeed, b'\n')) {
                return Ok(Some(bytes.len() - behind.len()));
            }
            self.at = self.step(*byte)?;
            rest = behind;
        }
        Ok(None)
    }

    /// Takes one byte that is no data.
    fn step(&mut self, byte: u8) -> Result<At, Violation> {
        match (self.at, byte) {
            (At::Size, b'\r') if self.digits > 0 => Ok(At::SizeLineFeed),
            (At::Size, b';') if self.digits > 0 => Ok(At::Extension),
            (At::Size, _) => self.digit(byte),
            (At::Extension, b'\r') => Ok(At::SizeLineFeed),
            (At::Extension, _) => self.extension(byte),
            (At::SizeLineFeed, b'\n') => {
                self.digits = 0;
                Ok(if self.left == 0 { At::Trailer } else { At::Data })
            }
            (At::Data | At::DataReturn, b'\r') => Ok(At::DataLineFeed),
            (At::DataLineFeed, b'\n') => Ok(At::Size),
            (At::Trailer, b'\r') => Ok(At::LastLineFeed),
            (At::Trailer | At::TrailerName | At::TrailerValue | At::TrailerLineFeed, _) => {
                self.trailer(byte)
            }
            (
                At::SizeLineFeed | At::Data | At::DataReturn | At::DataLineFeed | At::LastLineFeed,
                _,
            ) => Err(Violation::Chunk),
        }
    }

    fn digit(&mut self, byte: u8) -> Result<At, Violation> {
        let digit = char::from(byte).to_digit(16).ok_or(Violation::Chunk)?;
        self.digits += 1;
        if self.digits > DIGITS_MAX {
            return Err(Violation::Chunk);
        }
        self.left = self.left * 16 + u64::from(digit);
        Ok(At::Size)
    }

    fn extension(&mut self, byte: u8) -> Result<At, Violation> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX || !signs::is_in_value(byte) {
            return Err(Violation::Chunk);
        }
        Ok(At::Extension)
    }

    fn trailer(&mut self, byte: u8) -> Result<At, Violation> {
        self.trailer_bytes += 1;
        self.trailers += u8::from(matches!(self.at, At::Trailer));
        if self.trailer_bytes > TRAILER_BYTES_MAX || self.trailers > TRAILERS_MAX {
            return Err(Violation::Trailer);
        }
        match (self.at, byte) {
            (At::TrailerName, b':') => Ok(At::TrailerValue),
            (At::Trailer | At::TrailerName, _) if signs::token(&[byte]).0 == 1 => {
                Ok(At::TrailerName)
            }
            (At::TrailerValue, b'\r') => Ok(At::TrailerLineFeed),
            (At::TrailerValue, _) if signs::is_in_value(byte) => Ok(At::TrailerValue),
            (At::TrailerLineFeed, b'\n') => Ok(At::Trailer),
            _ => Err(Violation::Trailer),
        }
    }
}
