//! Which trace a request belongs to, as W3C's `traceparent` says it.
//!
//! Version 00: `00-<32 hex: trace>-<16 hex: span>-<2 hex: flags>`, in lower case. Of a later version only
//! what is like it is read, as the recommendation has it; 0 is no trace and no span.

use std::fmt::Write;

use hyper::header::HeaderValue;

const TRACE_DIGITS: usize = 32;
const SPAN_DIGITS: usize = 16;
/// The length of version 00.
const LENGTH: usize = 3 + TRACE_DIGITS + 1 + SPAN_DIGITS + 3;
const SAMPLED: u8 = 1;

/// The trace, the span in it that asks, and whether somebody records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) is_sampled: bool,
}

impl Context {
    /// Reads a header; `None` if it is not one.
    pub(super) fn read(value: &HeaderValue) -> Option<Self> {
        let text = value.as_bytes();
        let version = hex::<1>(text.get(..2)?)?;
        let is_known = version == [0];
        let has_end = match text.get(LENGTH) {
            None => true,
            Some(more) => !is_known && *more == b'-',
        };
        let dashes = [2, 3 + TRACE_DIGITS, LENGTH - 3];
        let is_parted = dashes.iter().all(|place| text.get(*place) == Some(&b'-'));
        if version == [0xff] || !has_end || !is_parted {
            return None;
        }
        let trace = hex::<16>(text.get(3..3 + TRACE_DIGITS)?)?;
        let span = hex::<8>(text.get(4 + TRACE_DIGITS..LENGTH - 3)?)?;
        let [flags] = hex::<1>(text.get(LENGTH - 2..LENGTH)?)?;
        let is_there = trace != [0; 16] && span != [0; 8];
        is_there.then_some(Self { trace, span, is_sampled: flags & SAMPLED != 0 })
    }

    /// Writes the header.
    pub(super) fn write(self) -> Option<HeaderValue> {
        let mut text = String::with_capacity(LENGTH);
        text.push_str("00-");
        push(&mut text, &self.trace);
        text.push('-');
        push(&mut text, &self.span);
        text.push_str(if self.is_sampled { "-01" } else { "-00" });
        HeaderValue::from_str(&text).ok()
    }
}

fn push(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing into memory cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

/// Reads digits in lower case.
fn hex<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

#[cfg(any(test, feature = "fuzzing"))]
/// A context that is read is written as it stands, version and further flags apart, and reads the same
/// again.
pub(crate) fn promise(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let Some(context) = Context::read(&value) else { return };
    let written = context.write();
    assert_eq!(written.as_ref().and_then(Context::read), Some(context));
    let ids = |value: &HeaderValue| value.as_bytes().get(3..LENGTH - 2).map(<[u8]>::to_vec);
    assert_eq!(written.as_ref().and_then(ids), ids(&value));
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(text: &str) -> Option<Context> {
        Context::read(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn what_is_read_is_written_again() {
        let context = read(GOOD).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.write().unwrap(), GOOD);
        let quiet = GOOD.replace("-01", "-00");
        assert_eq!(read(&quiet).unwrap().write().unwrap(), quiet);
        // Other flags say nothing about sampling.
        assert!(!read(&GOOD.replace("-01", "-fe")).unwrap().is_sampled);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_like_this_one() {
        assert!(read(&GOOD.replacen("00", "cc", 1)).is_some());
        assert!(read(&format!("{}-more", GOOD.replacen("00", "cc", 1))).is_some());
        assert!(read(&format!("{}more", GOOD.replacen("00", "cc", 1))).is_none());
        assert!(read(&GOOD.replacen("00", "ff", 1)).is_none());
    }

    #[test]
    fn what_is_malformed_is_none() {
        let zeros = GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let no_span = GOOD.replace("00f067aa0ba902b7", &"0".repeat(16));
        let upper = GOOD.replace("4bf9", "4BF9");
        let more = format!("{GOOD}-");
        for text in ["", "00", "00-1-2-01", &zeros, &no_span, &upper, &more, &GOOD[..54]] {
            assert_eq!(read(text), None, "{text}");
        }
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        for _ in 0..20_000 {
            let mut bytes = GOOD.as_bytes().to_vec();
            for _ in 0..chance.usize(1..4) {
                let place = chance.usize(..bytes.len());
                bytes[place] = chance.u8(33..127);
            }
            bytes.truncate(chance.usize(40..=bytes.len()));
            let value = HeaderValue::from_bytes(&bytes).unwrap();
            // Whatever it is, it does not panic, and is read as it stands or not at all.
            if let Some(context) = Context::read(&value) {
                let written = context.write().unwrap();
                assert_eq!(written.as_bytes()[3..53], bytes[3..53]);
            }
        }
    }
}
