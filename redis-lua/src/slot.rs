//! Which of a cluster's 16,384 slots a key is in.
//!
//! Only what stands in the first braces of a key counts, if anything does, so that all keys with one
//! tag are in one slot (Redis Cluster specification, "Key distribution model" and "Hash tags").

/// How many slots there are.
pub const SLOTS: u16 = 16_384;

/// The slot of a key, below [`SLOTS`].
#[must_use]
pub fn of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// What counts of a key: all of it without braces, or with nothing in them.
fn tag(key: &[u8]) -> &[u8] {
    let inner = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|inner| !inner.is_empty())
    };
    inner().unwrap_or(key)
}

/// CRC-16/XMODEM: polynomial 0x1021, beginning with 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{crc16, of};

    #[test]
    fn keys_are_in_the_slots_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(of(b"foo"), 12_182);
        assert_eq!(of(b"{user1000}.following"), of(b"{user1000}.followers"));
        assert_eq!(of(b"foo{}{bar}"), of(b"foo{}{bar}"));
        assert_ne!(of(b"foo{}{bar}"), of(b"bar"));
        assert_eq!(of(b"foo{{bar}}zap"), of(b"{bar"));
        assert_eq!(of(b"foo{bar}{zap}"), of(b"bar"));
    }
}
