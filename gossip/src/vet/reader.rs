//! Reads chitchat's numbers, strings, addresses and packed blocks, and never beyond the frame.
//!
//! # Invariants
//! - Each method either returns what it promises or an error; none panics on any bytes.
//! - Unpacking stops at the limit, before the memory is taken.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::stats::Reject;

const BLOCKS_END: u8 = 0;
const BLOCK_PACKED: u8 = 1;
const BLOCK_PLAIN: u8 = 2;

/// chitchat's own decoder takes blocks of up to this size; its encoder makes 16 KiB.
const BLOCK_BYTES_MAX: usize = 65_535;

/// A place in a frame.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Succeeds at the end only.
    pub(super) fn end(&self) -> Result<(), Reject> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(Reject::Undecodable),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Reject> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Reject::Undecodable)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Reject> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Reject::Undecodable)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Reject> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Reject> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Reject> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self, bytes_max: usize) -> Result<&'a str, Reject> {
        let count = usize::from(self.u16()?);
        if count > bytes_max {
            return Err(Reject::Oversize);
        }
        std::str::from_utf8(self.take(count)?).map_err(|_| Reject::Undecodable)
    }

    pub(super) fn address(&mut self) -> Result<SocketAddr, Reject> {
        let ip = match self.u8()? {
            4 => Ipv4Addr::from(self.array::<4>()?).into(),
            6 => Ipv6Addr::from(self.array::<16>()?).into(),
            _ => return Err(Reject::Undecodable),
        };
        Ok(SocketAddr::new(ip, self.u16()?))
    }
}

/// Unpacks the blocks of a delta.
///
/// # Errors
/// If they are not of the form or hold more than `bytes_max` together.
pub(super) fn unpack(reader: &mut Reader<'_>, bytes_max: usize) -> Result<Vec<u8>, Reject> {
    let mut unpacked = Vec::new();
    let mut buffer = Vec::new();
    loop {
        let kind = reader.u8()?;
        if kind == BLOCKS_END {
            return Ok(unpacked);
        }
        let count = usize::from(reader.u16()?);
        let block = reader.take(count)?;
        match kind {
            BLOCK_PLAIN => unpacked.extend_from_slice(block),
            BLOCK_PACKED => {
                buffer.resize(BLOCK_BYTES_MAX, 0);
                let count = zstd::bulk::decompress_to_buffer(block, buffer.as_mut_slice())
                    .map_err(|_| Reject::Undecodable)?;
                unpacked.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
            _ => return Err(Reject::Undecodable),
        }
        if unpacked.len() > bytes_max {
            return Err(Reject::Oversize);
        }
    }
}
