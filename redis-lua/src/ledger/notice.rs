//! The word that an entry has changed: `<endpoint> <version>`, the endpoint as in its keys.
//!
//! A notice that is lost is made up for by reading from time to time, so that one that cannot be read
//! is passed over.

use quorum::EndpointKey;

use crate::keys::{plain, safe};

/// Longer ones are not ours.
const BYTES_MAX: usize = 2_048;

/// An entry has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which.
    pub endpoint: EndpointKey,
    /// The version that it has from there on.
    pub version: u64,
}

impl Notice {
    /// The notice as it is published.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("{} {}", safe(self.endpoint.as_str()), self.version).into_bytes()
    }

    /// Reads a notice; `None` if it is none of ours.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= BYTES_MAX)?;
        let (endpoint, version) = text.split_once(' ')?;
        let endpoint = EndpointKey::new(&plain(endpoint)?);
        Some(Self { endpoint, version: version.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_as_it_was_written() {
        let notice = Notice { endpoint: EndpointKey::new("pool/a {b}"), version: 7 };
        assert_eq!(notice.to_bytes(), b"pool/a%20%7Bb%7D 7");
        assert_eq!(Notice::read(&notice.to_bytes()), Some(notice));
    }

    #[test]
    fn what_is_no_notice_is_passed_over() {
        for bytes in [&b""[..], b"a", b"a b", b"a 1 2", b"a 99999999999999999999", b"\xff 1"] {
            assert_eq!(Notice::read(bytes), None);
        }
        assert_eq!(Notice::read(&[b'a'; 4_096]), None);
    }
}
