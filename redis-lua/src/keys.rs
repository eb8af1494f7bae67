//! What our keys are called, so that all keys of one endpoint lie in one slot of a cluster.
//!
//! A cluster places a key by what stands between its first pair of braces, the tag. The tag is
//! `pool/endpoint`, with every byte that could end it or be misread in a log written as `%` and two
//! hexadecimal digits.
//!
//! Invariant: two endpoints never share a key, and one endpoint's keys always share a slot.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorum::EndpointKey;

/// The prefix where none is configured.
pub const PREFIX: &str = "quorumgate";

/// Names of keys, with the count of values in them that could not be read.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: Arc<str>,
    unread: Arc<AtomicU64>,
}

impl Keys {
    /// Makes the names under `prefix`, which is made safe like a tag.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self { prefix: Arc::from(safe(prefix)), unread: Arc::default() }
    }

    /// The key named `what` among those that share `tag`, which is made safe.
    #[must_use]
    pub fn tagged(&self, tag: &str, what: &str) -> String {
        format!("{}{{{}}}:{what}", self.prefix, safe(tag))
    }

    /// The keys of an endpoint, in the order in which every script takes them: its state, its votes,
    /// and its lease.
    #[must_use]
    pub fn of(&self, endpoint: &EndpointKey) -> Vec<String> {
        ["state", "votes", "lease"].map(|what| self.tagged(endpoint.as_str(), what)).into()
    }

    /// How many values of our keys could not be read so far, each counted whenever it was met:
    /// somebody else writes to them. They were taken for absent.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    pub(crate) fn count_unread(&self, values: u64) {
        self.unread.fetch_add(values, Ordering::Relaxed);
    }
}

/// `text` as it may stand in a key: printable ASCII but spaces, braces and `%`, the rest as `%XX`.
/// Never empty, since an empty tag is none.
#[must_use]
pub fn safe(text: &str) -> String {
    if text.is_empty() {
        return "%".to_owned();
    }
    escaped(text, b"{}")
}

/// The text that [`safe`] has made `text` of; `None` if it has made it of none.
#[must_use]
pub fn plain(text: &str) -> Option<String> {
    if text == "%" {
        return Some(String::new());
    }
    let plain = unescaped(text)?;
    (safe(&plain) == text).then_some(plain)
}

/// `text` with spaces, `%`, all of `special` and all that is not printable ASCII as `%XX`.
pub(crate) fn escaped(text: &str, special: &[u8]) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' && !special.contains(&byte) {
            safe.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(safe, "%{byte:02X}");
        }
    }
    safe
}

/// The text that [`escaped`] has made `text` of.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoints_keys_share_its_tag() {
        let keys = Keys::new("quorumgate").of(&EndpointKey::new("llama/gpu-a"));
        let expected =
            ["state", "votes", "lease"].map(|what| format!("quorumgate{{llama/gpu-a}}:{what}"));
        assert_eq!(keys, expected);
    }

    #[test]
    fn no_name_ends_the_tag_before_its_end() {
        for name in ["a}b", "{", "}", "", " ", "%", "%7B", "ü/ß", "a\r\nb", "\0"] {
            let key = Keys::new("q{x}").tagged(name, "state");
            assert_eq!(key.matches('{').count(), 1, "{key}");
            assert_eq!(key.matches('}').count(), 1, "{key}");
            assert!(!key.contains("{}"), "{key}");
            assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
            assert_eq!(plain(&safe(name)).as_deref(), Some(name));
        }
    }

    #[test]
    fn only_what_was_made_safe_is_made_plain() {
        for text in ["", "%7", "%zz", "a b", "%61", "%7b", "%FF", "{"] {
            assert_eq!(plain(text), None, "{text}");
        }
    }
}
