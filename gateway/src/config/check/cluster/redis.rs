//! The settings of Redis: where it is, of what kind, whose rights, and what decides while it is away.
//!
//! Invariants: no credential stands in an address, so that none is shown; all addresses are spoken to
//! alike; a fleet that does not gossip says itself what decides while Redis is away.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::address::host_and_port_or;
use crate::config::check::{choice, file_path};
use crate::config::error::ConfigError;
use crate::config::file::{Given, RedisSection, RedisTlsSection};
use crate::config::scalar::{Refusal, duration, name};
use crate::config::section::Section;
use crate::config::{OnUnavailable, Redis, RedisMode, RedisTls, Secret};

/// The port of a Redis where none is given.
const PORT: u16 = 6379;
/// The port of a sentinel where none is given.
const SENTINEL_PORT: u16 = 26379;
const PREFIX: &str = "quorumgate";
const PREFIX_BYTES_MAX: usize = 64;
const MASTER_BYTES_MAX: usize = 128;
const TIMEOUT: Duration = Duration::from_millis(100);
/// Less, and a healthy Redis is late every now and then; more, and a sick one is noticed too late.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(1);
const FORM: &str = "write redis://host:port, or rediss://host:port for TLS";

const MODES: [(&str, Word); 3] =
    [("standalone", Word::Standalone), ("sentinel", Word::Sentinel), ("cluster", Word::Cluster)];
const UNAVAILABLE: [(&str, OnUnavailable); 3] = [
    ("gossip", OnUnavailable::Gossip),
    ("local", OnUnavailable::Local),
    ("fail_closed", OnUnavailable::FailClosed),
];

/// What `mode` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Standalone,
    Sentinel,
    Cluster,
}

/// Makes sure that there is no Redis where nothing would ask it.
pub(super) fn of_no_use(
    root: &Section<'_>,
    given: &Given<RedisSection>,
    where_: &str,
) -> Result<(), ConfigError> {
    let Some(place) = given.place() else { return Ok(()) };
    let problem = format!("is of no use {where_}");
    Err(root.refuse("redis", Some(place), &problem, "write cluster.backend: redis, or remove it"))
}

/// Reads `redis`.
pub(super) fn redis(
    root: &Section<'_>,
    given: &Given<RedisSection>,
    is_gossiping: bool,
) -> Result<Redis, ConfigError> {
    let Some(raw) = given.get() else {
        let cure = "say where it is: redis: { urls: [redis://host:6379] }";
        return Err(root.refuse("redis", None, "is missing with cluster.backend: redis", cure));
    };
    let section = root.child("redis", given);
    let word = section.or("mode", &raw.mode, Word::Standalone, |text| choice(text, &MODES))?;
    let urls = urls(&section, raw, word)?;
    let mode = match word {
        Word::Standalone => RedisMode::Standalone,
        Word::Sentinel => RedisMode::Sentinel { master: master(&section, raw)? },
        Word::Cluster => RedisMode::Cluster,
    };
    only_for_sentinels(&section, raw, word)?;
    Ok(Redis {
        urls: urls.iter().map(Url::origin).collect(),
        mode,
        prefix: section.or("prefix", &raw.prefix, PREFIX.to_owned(), |text| {
            name(text, PREFIX_BYTES_MAX, "._:-")
        })?,
        timeout: section.or("timeout", &raw.timeout, TIMEOUT, |text| duration(text, TIMEOUTS))?,
        username: username(&section, raw)?,
        password: password(&section, "password", &raw.password)?,
        sentinel_password: password(&section, "sentinel_password", &raw.sentinel_password)?,
        tls: tls(&section, &raw.tls, urls.first().is_some_and(|url| url.is_tls))?,
        on_unavailable: on_unavailable(&section, raw, is_gossiping)?,
    })
}

/// One address, taken apart.
#[derive(PartialEq, Eq)]
struct Url {
    is_tls: bool,
    authority: String,
}

impl Url {
    fn origin(&self) -> String {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        format!("{scheme}://{}", self.authority)
    }
}

fn urls(section: &Section<'_>, raw: &RedisSection, mode: Word) -> Result<Vec<Url>, ConfigError> {
    let mut urls: Vec<Url> = Vec::new();
    for (index, entry) in raw.urls.entries().iter().enumerate() {
        let url = section.entry("urls", index, entry, |text| url(text, mode))?;
        let refuse = |problem: &str, cure: &str| {
            Err(section.refuse(&format!("urls[{index}]"), Some(entry.place), problem, cure))
        };
        match urls.first() {
            None => {}
            Some(_) if mode == Word::Standalone => {
                let cure = "keep one address, or write mode: sentinel or mode: cluster";
                return refuse("is one too many for a Redis that stands alone", cure);
            }
            Some(first) if first.is_tls != url.is_tls => {
                let cure = "give all addresses the same scheme";
                return refuse("differs in its kind from the first address", cure);
            }
            Some(_) if urls.contains(&url) => return refuse("stands twice", "remove one of them"),
            Some(_) => {}
        }
        urls.push(url);
    }
    if urls.is_empty() {
        let cure = "write where Redis is: urls: [redis://host:6379]";
        return Err(section.refuse("urls", raw.urls.place(), "is missing or empty", cure));
    }
    Ok(urls)
}

fn url(text: &str, mode: Word) -> Result<Url, Refusal> {
    let (scheme, rest) =
        text.split_once("://").ok_or_else(|| Refusal::new("has no scheme", FORM))?;
    let is_tls = match scheme.to_ascii_lowercase().as_str() {
        "redis" => false,
        "rediss" => true,
        _ => return Err(Refusal::new("has a scheme that is neither redis nor rediss", FORM)),
    };
    if rest.contains('@') {
        let cure = "remove them and use redis.username and redis.password";
        return Err(Refusal::new("has a user or a password before the host", cure));
    }
    if rest.contains(['?', '#']) {
        return Err(Refusal::new("has a query or fragment", FORM));
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('/') {
        let cure = "end it after the port; database 0 is used, and redis.prefix keeps fleets apart";
        return Err(Refusal::new("has a path", cure));
    }
    let usual = if mode == Word::Sentinel { SENTINEL_PORT } else { PORT };
    let authority = host_and_port_or(authority, usual)?;
    Ok(Url { is_tls, authority })
}

fn master(section: &Section<'_>, raw: &RedisSection) -> Result<String, ConfigError> {
    let master =
        section.optional("master", &raw.master, |text| name(text, MASTER_BYTES_MAX, "._-"))?;
    let cure = "write what the sentinels call the server, for example mymaster";
    master.ok_or_else(|| section.refuse("master", None, "is missing with mode: sentinel", cure))
}

fn only_for_sentinels(
    section: &Section<'_>,
    raw: &RedisSection,
    mode: Word,
) -> Result<(), ConfigError> {
    let given =
        [("master", raw.master.place()), ("sentinel_password", raw.sentinel_password.place())];
    let found = given.into_iter().find_map(|(key, place)| place.map(|place| (key, place)));
    match found {
        Some((key, place)) if mode != Word::Sentinel => {
            let problem = "is of no use without mode: sentinel";
            Err(section.refuse(key, Some(place), problem, "write that, or remove it"))
        }
        Some(_) | None => Ok(()),
    }
}

/// A user without a password has no way to prove itself.
fn username(section: &Section<'_>, raw: &RedisSection) -> Result<Option<String>, ConfigError> {
    let user = section.optional("username", &raw.username, |text| {
        match text.contains(char::is_whitespace) {
            false => Ok(text.to_owned()),
            true => Err(Refusal::new("holds a space", "write the name of an ACL user")),
        }
    })?;
    if user.is_some() && raw.password.get().is_none() {
        let cure = "write the password of that user, for example ${REDIS_PASSWORD}";
        return Err(section.refuse("password", None, "is missing beside username", cure));
    }
    Ok(user)
}

fn password(
    section: &Section<'_>,
    key: &str,
    given: &Given<crate::config::file::Scalar>,
) -> Result<Option<Secret>, ConfigError> {
    section.hidden(key, given, |text| Ok(Secret::new(text)))
}

fn tls(
    section: &Section<'_>,
    given: &Given<RedisTlsSection>,
    is_tls: bool,
) -> Result<Option<RedisTls>, ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(is_tls.then(RedisTls::default));
    };
    let tls = section.child("tls", given);
    let file = |key, given| tls.optional(key, given, file_path);
    let (ca, cert, key): (Option<PathBuf>, _, _) =
        (file("ca", &raw.ca)?, file("cert", &raw.cert)?, file("key", &raw.key)?);
    if !is_tls {
        let cure = "write rediss:// in redis.urls, or remove it";
        return Err(tls.refuse("", None, "is of no use without TLS", cure));
    }
    if cert.is_some() != key.is_some() {
        let problem = "has only one of cert and key";
        return Err(tls.refuse("", None, problem, "name both, or neither"));
    }
    Ok(Some(RedisTls { ca, cert, key }))
}

fn on_unavailable(
    section: &Section<'_>,
    raw: &RedisSection,
    is_gossiping: bool,
) -> Result<OnUnavailable, ConfigError> {
    let given =
        section.or("on_unavailable", &raw.on_unavailable, OnUnavailable::Gossip, |text| {
            choice(text, &UNAVAILABLE)
        })?;
    if is_gossiping || given != OnUnavailable::Gossip {
        return Ok(given);
    }
    let problem = match raw.on_unavailable.place() {
        None => "is missing, and its default, gossip, is not there with cluster.gossip: false",
        Some(_) => "gossip is not there with cluster.gossip: false",
    };
    let cure = "write local, for each node's own breaker, or fail_closed, to refuse all requests";
    Err(section.refuse("on_unavailable", raw.on_unavailable.place(), problem, cure))
}
