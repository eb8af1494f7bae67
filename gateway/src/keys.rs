//! Who may ask: the callers' keys, known by their digests alone.
//!
//! A key that is shown is hashed whole and looked up by its digest, so that two that begin alike are as
//! different as any. Digests are compared in constant time, and nobody can choose one: the time that a
//! refusal takes says nothing about any key. Every refusal is the same, whatever was shown.
//!
//! Invariants: a key is neither kept nor logged; without any entry nobody has to show one.

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{ApiKey, Pool};
use crate::error::ApiError;

/// Where a key is shown: by clients of `OpenAI`, of Anthropic, and of Azure.
const SHOWN_IN: [&str; 3] = ["authorization", "x-api-key", "api-key"];

/// Somebody who showed a key.
#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// What the configuration calls it.
    pub name: String,
    /// The pools it may ask; `None`: all.
    pools: Option<BTreeSet<String>>,
}

impl Caller {
    /// A caller of this name; `pools` are all it may ask, if given.
    pub fn new(name: impl Into<String>, pools: Option<BTreeSet<String>>) -> Self {
        Self { name: name.into(), pools }
    }

    /// Whether it may ask the pool of this name.
    pub fn may_ask(&self, pool: &str) -> bool {
        self.pools.as_ref().is_none_or(|pools| pools.contains(pool))
    }
}

/// The SHA-256 of a key.
#[derive(Clone, Copy)]
struct Digest([u8; 32]);

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_slice().ct_eq(other.0.as_slice()).into()
    }
}

impl Eq for Digest {}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// All callers, by the digests of their keys; at most [`crate::config::API_KEYS_MAX`].
pub struct Keys {
    callers: HashMap<Digest, Arc<Caller>>,
}

impl Keys {
    /// The callers of a checked configuration. A model that a key names stands for its pool, by
    /// whichever of its names.
    pub fn new(keys: &[ApiKey], pools: &[Pool]) -> Self {
        let mut by_name = HashMap::new();
        for pool in pools {
            let names = std::iter::once(&pool.name).chain(&pool.aliases);
            by_name.extend(names.map(|name| (name.as_str(), pool.name.as_str())));
        }
        let pool_of = |model: &String| by_name.get(model.as_str()).map(|pool| (*pool).to_owned());
        let caller = |key: &ApiKey| {
            let pools =
                key.models.as_ref().map(|models| models.iter().filter_map(pool_of).collect());
            (Digest(key.sha256), Arc::new(Caller::new(&key.name, pools)))
        };
        Self { callers: keys.iter().map(caller).collect() }
    }

    /// Whose key these headers show; `None` where nobody has to show one.
    ///
    /// # Errors
    /// `invalid_api_key`, always the same: no key, an unknown one, or several that differ.
    pub fn caller(&self, headers: &HeaderMap) -> Result<Option<Arc<Caller>>, ApiError> {
        if self.callers.is_empty() {
            return Ok(None);
        }
        let key = shown(headers).ok_or_else(ApiError::invalid_api_key)?;
        let digest = Digest(Sha256::digest(key).into());
        let caller = self.callers.get(&digest).ok_or_else(ApiError::invalid_api_key)?;
        Ok(Some(Arc::clone(caller)))
    }
}

/// The one key that is shown: each header at most once, and all that are there with the same key.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let mut key = None;
    for name in SHOWN_IN {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next().map(HeaderValue::as_bytes) else { continue };
        let value = if name == AUTHORIZATION.as_str() { after_bearer(value)? } else { value };
        if values.next().is_some() || key.is_some_and(|key| key != value) {
            return None;
        }
        key = Some(value);
    }
    key.filter(|key| !key.is_empty())
}

/// The key behind the word, which RFC 9110 lets one write in any case.
fn after_bearer(value: &[u8]) -> Option<&[u8]> {
    let (word, key) = value.split_at_checked("Bearer ".len())?;
    word.eq_ignore_ascii_case(b"Bearer ").then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;

    const FULL: &str = "sk-aaaaaaaaaaaaaaaaaaaaaaaa-full";
    const PART: &str = "sk-aaaaaaaaaaaaaaaaaaaaaaaa-part";

    fn key(name: &str, key: &str, models: Option<&[&str]>) -> ApiKey {
        ApiKey {
            name: name.to_owned(),
            sha256: Sha256::digest(key).into(),
            models: models.map(|models| models.iter().map(|&model| model.to_owned()).collect()),
            limits: Limits::default(),
        }
    }

    fn keys() -> Keys {
        let text = "models:
  - { name: big, aliases: [gpt], endpoints: [{ name: a, address: \"http://127.0.0.1:1\" }] }
  - { name: small, endpoints: [{ name: a, address: \"http://127.0.0.1:2\" }] }
server: { listen: 127.0.0.1:0 }
";
        let config = crate::config::parse(text, "test.yaml", &|_| None).unwrap();
        let keys = [key("all", FULL, None), key("few", PART, Some(&["gpt"]))];
        Keys::new(&keys, &config.pools)
    }

    fn caller(shown: &[(&'static str, &str)]) -> Result<String, ApiError> {
        let mut headers = HeaderMap::new();
        for (name, value) in shown {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        keys().caller(&headers).map(|caller| caller.unwrap().name.clone())
    }

    #[test]
    fn m04_keys_that_begin_alike_are_told_apart_wherever_they_are_shown() {
        assert_eq!(caller(&[("authorization", &format!("Bearer {FULL}"))]).unwrap(), "all");
        assert_eq!(caller(&[("authorization", &format!("bearer {PART}"))]).unwrap(), "few");
        assert_eq!(caller(&[("x-api-key", PART)]).unwrap(), "few");
        assert_eq!(caller(&[("api-key", FULL)]).unwrap(), "all");
        let both = [("x-api-key", PART), ("authorization", &*format!("Bearer {PART}"))];
        assert_eq!(caller(&both).unwrap(), "few");
    }

    #[test]
    fn m01_every_refusal_is_the_same() {
        let full = format!("Bearer {FULL}");
        let part = format!("Bearer {PART}");
        let huge = format!("Bearer {}", "x".repeat(1_000_000));
        let cases: [&[(&'static str, &str)]; 14] = [
            &[],
            &[("authorization", "")],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer wrong")],
            &[("authorization", FULL)],
            &[("authorization", "Basic YTpi")],
            &[("authorization", &full), ("authorization", &full)],
            &[("authorization", &huge)],
            &[("authorization", &full), ("x-api-key", PART)],
            &[("authorization", &part), ("api-key", "")],
            &[("authorization", "Basic YTpi"), ("x-api-key", FULL)],
            &[("x-api-key", FULL), ("x-api-key", FULL)],
            &[("x-api-key", &full)],
        ];
        for shown in cases {
            assert_eq!(caller(shown), Err(ApiError::invalid_api_key()));
        }
    }

    #[test]
    fn a_key_is_confined_to_pools_by_whichever_of_their_names() {
        let keys = keys();
        let few = keys.callers.get(&Digest(Sha256::digest(PART).into())).unwrap();
        assert!(few.may_ask("big") && !few.may_ask("small"));
        let all = keys.callers.get(&Digest(Sha256::digest(FULL).into())).unwrap();
        assert!(all.may_ask("big") && all.may_ask("small"));
    }

    #[test]
    fn without_any_entry_nobody_shows_a_key() {
        let mut headers = HeaderMap::new();
        headers.append("x-api-key", HeaderValue::from_static("whatever"));
        assert_eq!(Keys::new(&[], &[]).caller(&headers), Ok(None));
    }
}
