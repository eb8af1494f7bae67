//! FNV-1a of 64 bits (Fowler, Noll, Vo; RFC 9923): tells bytes apart, and protects nothing.
//!
//! Each step is invertible, so that one byte that differs always shows.

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The digest of nothing.
pub(crate) const EMPTY: u64 = OFFSET_BASIS;

/// The digest of `bytes`.
pub(crate) fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(OFFSET_BASIS, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(PRIME))
}
