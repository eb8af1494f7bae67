//! Who may call: the keys of the callers, and the pages in browsers.
//!
//! Whoever keeps the file must not be able to call with what stands in it, so a key stands there as
//! its digest alone. A key written out by mistake is refused without being repeated.
//!
//! Invariants: a name and a digest belong to one key; every model that a key names exists; a list
//! that lets nobody in, or everybody, is never written by being empty.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::limits::limits;
use super::models::{Names, find, named};
use crate::config::address::origin;
use crate::config::error::ConfigError;
use crate::config::file::{ApiKeySection, At, CorsSection, File, Given, Place};
use crate::config::scalar::{Refusal, duration, name};
use crate::config::section::Section;
use crate::config::{ApiKey, Cors, Pool};

/// Longest name of a caller, in bytes; it becomes a label of metrics.
const CALLER_BYTES_MAX: usize = 64;
const CORS_MAX_AGE: u32 = 600;
/// Browsers remember a permission for a day at most.
const CORS_MAX_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// SHA-256 of an empty key: what comes out where the variable that should hold the key was not set.
const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const DIGEST_CURE: &str = "write what sha256sum makes of the key, 64 hexadecimal digits";

/// Reads `api_keys`; `pools` are the models that a key may name.
///
/// # Errors
/// A key is refused, alone or because of another.
pub(super) fn api_keys(
    root: &Section<'_>,
    file: &File,
    pools: &[Pool],
) -> Result<Vec<ApiKey>, ConfigError> {
    let entries = file.api_keys.entries();
    if entries.is_empty() && file.api_keys.get().is_some() {
        let problem = "an empty list lets everyone in";
        let cure = "name a key, or remove the section if that is meant";
        return Err(root.refuse("api_keys", file.api_keys.place(), problem, cure));
    }
    let known = named(pools);
    let mut names: BTreeMap<String, Place> = BTreeMap::new();
    let mut digests: BTreeMap<[u8; 32], Place> = BTreeMap::new();
    let mut keys = Vec::with_capacity(entries.len());
    for (index, At { value, place }) in entries.iter().enumerate() {
        let section = root.item("api_keys", index, *place, &value.name);
        let key = api_key(&section, value, &known)?;
        let here = value.name.place();
        if let Some(there) = names.insert(key.name.clone(), here.unwrap_or(*place)) {
            let problem = format!("this name is taken in line {}", there.line);
            let cure = "choose another or remove one of them";
            return Err(section.refuse("name", here, &problem, cure));
        }
        let here = value.sha256.place();
        if let Some(there) = digests.insert(key.sha256, here.unwrap_or(*place)) {
            let problem = format!("this key is the one in line {}", there.line);
            let cure = "give each caller a key of its own, or remove one of them";
            return Err(section.refuse("sha256", here, &problem, cure));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn api_key(
    section: &Section<'_>,
    raw: &ApiKeySection,
    known: &Names<'_>,
) -> Result<ApiKey, ConfigError> {
    let called =
        section.required("name", &raw.name, "write what the caller is called", |text| {
            name(text, CALLER_BYTES_MAX, "._-")
        })?;
    let Some(sha256) = section.hidden("sha256", &raw.sha256, digest)? else {
        return Err(section.refuse("sha256", None, "is missing", DIGEST_CURE));
    };
    Ok(ApiKey {
        name: called,
        sha256,
        models: models(section, raw, known)?,
        limits: limits(section, &raw.limits)?,
    })
}

fn digest(text: &str) -> Result<[u8; 32], Refusal> {
    let refusal = || Refusal::new("is no SHA-256 digest", DIGEST_CURE);
    if text.eq_ignore_ascii_case(OF_NOTHING) {
        let cure = "check that the key was set when its digest was taken";
        return Err(Refusal::new("is the digest of an empty key", cure));
    }
    let mut digest = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return Err(refusal());
    }
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        let value =
            |digit: &u8| char::from(*digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let (high, low) = value(high).zip(value(low)).ok_or_else(refusal)?;
        *byte = high << 4 | low;
    }
    Ok(digest)
}

fn models(
    section: &Section<'_>,
    raw: &ApiKeySection,
    known: &Names<'_>,
) -> Result<Option<Vec<String>>, ConfigError> {
    if raw.models.get().is_none() {
        return Ok(None);
    }
    let entries = raw.models.entries();
    if entries.is_empty() {
        let (place, problem) = (raw.models.place(), "an empty list admits no model at all");
        return Err(section.refuse("models", place, problem, "name a model or remove the key"));
    }
    let mut seen = BTreeSet::new();
    let mut models = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let model = section
            .entry("models", index, entry, |text| find(text, known).map(|_| text.to_owned()))?;
        if !seen.insert(model.clone()) {
            let key = format!("models[{index}]");
            let problem = "this name stands in the list already";
            return Err(section.refuse(&key, Some(entry.place), problem, "keep one of them"));
        }
        models.push(model);
    }
    Ok(Some(models))
}

/// Reads `server.cors`; no page may call where it is left out.
///
/// # Errors
/// An origin is refused, alone or because of another, or there is none.
pub(super) fn cors(
    server: &Section<'_>,
    given: &Given<CorsSection>,
) -> Result<Option<Cors>, ConfigError> {
    const CURE: &str = "name the origins of the pages that may call, or remove the section";
    let Some(raw) = given.get() else {
        return Ok(None);
    };
    let section = server.child("cors", given);
    let entries = raw.origins.entries();
    if raw.origins.get().is_none() {
        return Err(section.refuse("origins", None, "is missing", CURE));
    }
    if entries.is_empty() {
        let problem = "an empty list lets no page call";
        return Err(section.refuse("origins", raw.origins.place(), problem, CURE));
    }
    let mut seen = BTreeSet::new();
    let mut origins = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let one = section.entry("origins", index, entry, |text| match text {
            "*" => Ok(text.to_owned()),
            _ => origin(text),
        })?;
        let refuse = |problem: &str, cure: &str| {
            Err(section.refuse(&format!("origins[{index}]"), Some(entry.place), problem, cure))
        };
        if one == "*" && entries.len() > 1 {
            return refuse("it lets all pages call and makes the others useless", "write it alone");
        }
        if !seen.insert(one.clone()) {
            return refuse("this origin stands in the list already", "keep one of them");
        }
        origins.push(one);
    }
    let max_age_seconds = section.or("max_age", &raw.max_age, CORS_MAX_AGE, whole_seconds)?;
    Ok(Some(Cors { origins, max_age_seconds }))
}

fn whole_seconds(text: &str) -> Result<u32, Refusal> {
    let value = duration(text, Duration::ZERO..=CORS_MAX_AGE_MAX)?;
    u32::try_from(value.as_secs())
        .ok()
        .filter(|_| value.subsec_nanos() == 0)
        .ok_or_else(|| Refusal::new("has a part of a second", "write whole seconds, as in 600s"))
}
