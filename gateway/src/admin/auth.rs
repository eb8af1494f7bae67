//! Who may look and who may act: bearer tokens, compared by hash in constant time.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::config::{Admin, Secret};

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Look and act.
    Full,
    /// Look.
    Read,
}

impl Role {
    /// The role as the API names it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Read => "read",
        }
    }
}

/// Why somebody is nobody known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// No token was shown.
    Silent,
    /// One was, and it is not known.
    Wrong,
}

/// The tokens of the moment, which a reload replaces.
pub struct Tokens(ArcSwap<Keys>);

impl Tokens {
    /// As configured.
    pub fn new(config: &Admin) -> Self {
        Self(ArcSwap::from_pointee(Keys::of(config)))
    }

    /// From the next request on others count.
    pub fn replace(&self, config: &Admin) {
        self.0.store(Arc::new(Keys::of(config)));
    }

    /// Those of the moment.
    pub(super) fn keys(&self) -> Arc<Keys> {
        self.0.load_full()
    }
}

/// The hashes of the configured tokens. Without any token everyone may act, which the configuration
/// allows on a loopback address only.
pub(super) struct Keys {
    full: Option<[u8; 32]>,
    read: Option<[u8; 32]>,
    protect_metrics: bool,
}

impl Keys {
    fn of(config: &Admin) -> Self {
        let hash = |secret: &Secret| -> [u8; 32] { Sha256::digest(secret.expose()).into() };
        Self {
            full: config.token.as_ref().map(hash),
            read: config.read_token.as_ref().map(hash),
            protect_metrics: config.protect_metrics,
        }
    }

    /// Whether the page of metrics wants a token.
    pub(super) fn protect_metrics(&self) -> bool {
        self.protect_metrics
    }

    /// Whether any token is configured.
    pub(super) fn are_set(&self) -> bool {
        self.full.is_some() || self.read.is_some()
    }

    /// The hash of the token that has this role, if there is one.
    pub(super) fn hash(&self, role: Role) -> Option<&[u8; 32]> {
        match role {
            Role::Full => self.full.as_ref(),
            Role::Read => self.read.as_ref(),
        }
    }

    /// The role of a caller. Both hashes are always compared whole, so that the time taken says
    /// nothing of how close a guess was.
    pub(super) fn role(&self, headers: &HeaderMap) -> Result<Role, Stranger> {
        if !self.are_set() {
            return Ok(Role::Full);
        }
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let token = match (given.next(), given.next()) {
            (None, _) => return Err(Stranger::Silent),
            (Some(value), None) => value.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default(),
            (Some(_), Some(_)) => b"",
        };
        let hash: [u8; 32] = Sha256::digest(token).into();
        let equals = |key: &Option<[u8; 32]>| {
            key.as_ref().map_or(Choice::from(0), |key| key.as_slice().ct_eq(hash.as_slice()))
        };
        let (is_full, is_read) = (equals(&self.full), equals(&self.read));
        if bool::from(is_full) {
            Ok(Role::Full)
        } else if bool::from(is_read) {
            Ok(Role::Read)
        } else {
            Err(Stranger::Wrong)
        }
    }
}

/// Whether a browser sends this on behalf of a page of another origin. Without a token, on loopback,
/// this is all that keeps any page that an operator visits from giving orders.
pub(super) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let authority = origin.as_bytes().strip_prefix(b"http://");
    authority.is_none() || authority != headers.get(HOST).map(HeaderValue::as_bytes)
}

/// Whether the host that is asked for is a name of the whole world's. Without a token such a name may
/// be anybody's that leads to this machine's loopback address for the moment, so that a page of that
/// name would be no page of another origin.
pub(super) fn is_worldly(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return false };
    let Ok(host) = host.to_str() else { return true };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_address = host.starts_with('[') || name.parse::<std::net::IpAddr>().is_ok();
    let is_local = name.ends_with(".localhost") || !name.contains('.');
    !is_address && !is_local
}

#[cfg(test)]
mod timing;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::of(&Admin {
            listen: ([127, 0, 0, 1], 0).into(),
            token: Some(Secret::new("aaaaaaaaaaaaaaaaaaaaaaaa-full")),
            read_token: Some(Secret::new("aaaaaaaaaaaaaaaaaaaaaaaa-read")),
            protect_metrics: false,
        })
    }

    fn role(values: &[&str]) -> Option<Role> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        keys().role(&headers).ok()
    }

    #[test]
    fn m04_tokens_that_begin_alike_are_told_apart() {
        assert_eq!(role(&["Bearer aaaaaaaaaaaaaaaaaaaaaaaa-full"]), Some(Role::Full));
        assert_eq!(role(&["Bearer aaaaaaaaaaaaaaaaaaaaaaaa-read"]), Some(Role::Read));
        assert_eq!(role(&["Bearer aaaaaaaaaaaaaaaaaaaaaaaa"]), None);
    }

    #[test]
    fn m01_no_empty_wrong_or_doubled_token_is_let_in() {
        let huge = format!("Bearer {}", "x".repeat(1_000_000));
        for values in [&[][..], &[""], &["Bearer "], &["Basic abc"], &[huge.as_str()]] {
            assert_eq!(role(values), None);
        }
        let full = "Bearer aaaaaaaaaaaaaaaaaaaaaaaa-full";
        assert_eq!(role(&[full, full]), None);
    }

    #[test]
    fn without_a_token_no_name_of_the_world_s_is_this_machine() {
        let worldly = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            is_worldly(&headers)
        };
        for host in ["127.0.0.1:9090", "[::1]:9090", "localhost:9090", "gw.localhost", "gateway"] {
            assert!(!worldly(host), "{host}");
        }
        for host in ["evil.example:9090", "evil.example", "127.0.0.1.evil.example:9090"] {
            assert!(worldly(host), "{host}");
        }
        assert!(!is_worldly(&HeaderMap::new()));
    }

    #[test]
    fn a_page_of_another_origin_is_told_apart_from_curl_and_from_our_own() {
        let from = |origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("127.0.0.1:9090"));
            if let Some(origin) = origin {
                headers.insert(ORIGIN, HeaderValue::from_static(origin));
            }
            is_from_elsewhere(&headers)
        };
        assert!(!from(None));
        assert!(!from(Some("http://127.0.0.1:9090")));
        assert!(from(Some("http://evil.example")));
        assert!(from(Some("null")));
    }
}
