//! The settings of the process: its listeners, its memory, its first line of defence, its log.
//!
//! These are the settings an operator gets wrong once, at the first start, and that open a door if
//! they pass: an admin listener anyone can reach, a list of paths that admits nothing.
//!
//! Invariants: operators beyond loopback need a token; the listeners do not collide; a limit that
//! is set admits at least one of what it limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::{DURATION_MAX, REPEAT, choice, listen, time};
use crate::config::error::ConfigError;
use crate::config::file::{
    AdminSection, FailClosedSection, Given, List, LogSection, RetrySection, Scalar, ServerSection,
    ServerTimeoutsSection, StateSection,
};
use crate::config::scalar::{Refusal, duration, size, whole};
use crate::config::section::Section;
use crate::config::{
    Admin, FailClosed, FailoverOn, Log, LogFormat, Pool, RETRY_ON_MAX, Retry, RetryOn, Server,
    StateFile, StatusClass,
};

const SERVER_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
const BODY_BYTES: u64 = 10 << 20;
/// A shorter limit refuses requests with a system prompt alone.
const BODY_BYTES_MIN: u64 = 1 << 10;
/// Bodies are held in memory while a request may still be tried elsewhere.
const BODY_BYTES_MAX: u64 = 1 << 30;
const WORKERS_MAX: usize = 1_024;
const ATTEMPTS: u32 = 3;
/// A crash forgets at most this much of what the circuits know.
const STATE_EVERY: Duration = Duration::from_secs(5);
/// Beyond ten a failing pool multiplies the load that made it fail.
const ATTEMPTS_MAX: u32 = 10;
/// A status that is the client's own will be the same again.
const RETRY_CODES: RangeInclusive<u16> = 500..=599;
/// Longest header name, in bytes.
const HEADER_BYTES_MAX: usize = 64;
/// Longest list of log levels, in bytes.
const LEVEL_BYTES_MAX: usize = 256;

/// Reads `server`.
pub(super) fn server(
    root: &Section<'_>,
    given: &Given<ServerSection>,
) -> Result<Server, ConfigError> {
    let section = root.child("server", given);
    let none = ServerSection::default();
    let raw = given.get().unwrap_or(&none);
    let timeouts_section = section.child("timeouts", &raw.timeouts);
    let no_timeouts = ServerTimeoutsSection::default();
    let timeouts = raw.timeouts.get().unwrap_or(&no_timeouts);
    let seconds = Duration::from_secs;
    let or_zero = |key, given, default| {
        section.or(key, given, default, |text| duration(text, Duration::ZERO..=DURATION_MAX))
    };
    let max_body = section.or("max_body", &raw.max_body, BODY_BYTES, |text| {
        size(text, BODY_BYTES_MIN..=BODY_BYTES_MAX)
    })?;
    Ok(Server {
        listen: section.or("listen", &raw.listen, SERVER_LISTEN, listen)?,
        max_body_bytes: usize::try_from(max_body).unwrap_or(usize::MAX),
        workers: section.or("workers", &raw.workers, 0, |text| whole(text, 0..=WORKERS_MAX))?,
        tls: None,
        cors: None,
        heartbeat: Some(seconds(15)),
        write_stall: seconds(60),
        header_timeout: time(&timeouts_section, "headers", &timeouts.headers, seconds(10))?,
        body_idle: time(&timeouts_section, "body_idle", &timeouts.body_idle, seconds(10))?,
        keep_alive: time(&timeouts_section, "keep_alive", &timeouts.keep_alive, seconds(60))?,
        drain_delay: or_zero("drain_delay", &raw.drain_delay, seconds(5))?,
        drain_timeout: or_zero("drain_timeout", &raw.drain_timeout, seconds(600))?,
    })
}

/// Reads `admin`; `server_listen` is the address that is taken already.
pub(super) fn admin(
    root: &Section<'_>,
    given: &Given<AdminSection>,
    server_listen: SocketAddr,
) -> Result<Admin, ConfigError> {
    let section = root.child("admin", given);
    let none = AdminSection::default();
    let raw = given.get().unwrap_or(&none);
    let admin = Admin {
        listen: section.or("listen", &raw.listen, ADMIN_LISTEN, listen)?,
        token: section.secret("token", &raw.token)?,
        read_token: section.secret("read_token", &raw.read_token)?,
    };
    if admin.token.is_none() && !admin.listen.ip().to_canonical().is_loopback() {
        return Err(section.refuse(
            "listen",
            raw.listen.place(),
            "anyone can reach this address and no token is set",
            "set admin.token or listen on 127.0.0.1",
        ));
    }
    if let Some(read_token) = &admin.read_token {
        let place = raw.read_token.place();
        let Some(token) = &admin.token else {
            let problem = "a token for reading without one for everything protects nothing";
            return Err(section.refuse("read_token", place, problem, "set admin.token as well"));
        };
        // The masks of a configuration that was shown are equal and must still be readable.
        if token == read_token && !token.is_mask() {
            let problem = "it equals admin.token and so allows everything";
            return Err(section.refuse("read_token", place, problem, "use a different secret"));
        }
    }
    let (ours, theirs) = (admin.listen, server_listen);
    let is_everywhere = ours.ip().is_unspecified() || theirs.ip().is_unspecified();
    if ours.port() != 0 && ours.port() == theirs.port() && (is_everywhere || ours == theirs) {
        let place = raw.listen.place();
        let problem = "server.listen takes this port already";
        return Err(section.refuse("listen", place, problem, "choose another port"));
    }
    Ok(admin)
}

/// Reads `state`; nothing is kept where it is left out.
pub(super) fn state(
    root: &Section<'_>,
    given: &Given<StateSection>,
) -> Result<Option<StateFile>, ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(None);
    };
    let section = root.child("state", given);
    let cure = "write the file the circuits are kept in, or remove the section";
    Ok(Some(StateFile {
        path: section.required("file", &raw.file, cure, file_path)?,
        every: section.or("every", &raw.every, STATE_EVERY, |text| duration(text, REPEAT))?,
    }))
}

fn file_path(text: &str) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(text);
    if path.file_name().is_none() || text.ends_with('/') {
        return Err(Refusal::new("is no file", "write a path with the name of a file at its end"));
    }
    Ok(path)
}

/// Reads `fail_closed`.
pub(super) fn fail_closed(
    root: &Section<'_>,
    given: &Given<FailClosedSection>,
) -> Result<FailClosed, ConfigError> {
    let section = root.child("fail_closed", given);
    let none = FailClosedSection::default();
    let raw = given.get().unwrap_or(&none);
    let mut paths = Vec::new();
    for (index, entry) in raw.allowed_paths.entries().iter().enumerate() {
        paths.push(section.entry("allowed_paths", index, entry, request_path)?);
    }
    let is_limited = raw.allowed_paths.get().is_some();
    if is_limited && paths.is_empty() {
        let place = raw.allowed_paths.place();
        let problem = "an empty list admits no request at all";
        return Err(section.refuse(
            "allowed_paths",
            place,
            problem,
            "name a path or remove the key",
        ));
    }
    Ok(FailClosed {
        require_header: section.optional("require_header", &raw.require_header, header_name)?,
        allowed_paths: is_limited.then_some(paths),
        max_messages: section
            .optional("max_messages", &raw.max_messages, |text| whole(text, 1..=1_000_000_usize))?,
        max_input_tokens: section.optional("max_input_tokens", &raw.max_input_tokens, |text| {
            whole(text, 1..=1_000_000_000_u64)
        })?,
        ..FailClosed::default()
    })
}

fn request_path(text: &str) -> Result<String, Refusal> {
    let is_path = text.starts_with('/')
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && !text.contains(['?', '#', '*']);
    if is_path {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        "is not the path of a request",
        "write it in full, for example /v1/chat/completions",
    ))
}

pub(super) fn header_name(text: &str) -> Result<String, Refusal> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.len() > HEADER_BYTES_MAX || !text.bytes().all(is_token) {
        return Err(Refusal::new(
            "is not a header name",
            "use letters, digits and -, for example x-agent-id",
        ));
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(Refusal::new(
            "has capital letters",
            "write it in lower case; clients may still use any",
        ));
    }
    Ok(text.to_owned())
}

/// Reads `retry`; `pools` say which statuses are a fault somewhere.
pub(super) fn retry(
    root: &Section<'_>,
    given: &Given<RetrySection>,
    pools: &[Pool],
) -> Result<Retry, ConfigError> {
    let section = root.child("retry", given);
    let none = RetrySection::default();
    let raw = given.get().unwrap_or(&none);
    let max_attempts = section
        .or("max_attempts", &raw.max_attempts, ATTEMPTS, |text| whole(text, 1..=ATTEMPTS_MAX))?;
    let is_fault = |code: u16| {
        let mut endpoints = pools.iter().flat_map(|pool| &pool.endpoints);
        endpoints.any(|endpoint| endpoint.codes.class(code) == StatusClass::Fault)
    };
    let on = retry_on(&section, &raw.on, &is_fault)?;
    if max_attempts == 1 && !raw.on.entries().is_empty() {
        let cure = "remove it or raise max_attempts";
        return Err(section.refuse(
            "on",
            raw.on.place(),
            "one attempt leaves nothing for it",
            cure,
        ));
    }
    let mut on = if max_attempts == 1 { RetryOn { refused: false, codes: Vec::new() } } else { on };
    on.codes.retain(|code| is_fault(*code));
    let failover_on = FailoverOn::default();
    Ok(Retry { max_attempts, budget: 0.2, budget_floor: 3, on, failover_on })
}

/// Reads `retry.on`: the word `refused`, and statuses that are a fault somewhere.
fn retry_on(
    section: &Section<'_>,
    given: &Given<List<Scalar, RETRY_ON_MAX>>,
    is_fault: &dyn Fn(u16) -> bool,
) -> Result<RetryOn, ConfigError> {
    if given.get().is_none() {
        return Ok(RetryOn { refused: true, codes: vec![502, 503, 529] });
    }
    let mut on = RetryOn { refused: false, codes: Vec::new() };
    for (index, entry) in given.entries().iter().enumerate() {
        let code = section.entry("on", index, entry, |text| match text {
            "refused" => Ok(None),
            _ => whole(text, RETRY_CODES).map(Some).map_err(|_| {
                Refusal::new(
                    "is no failure to retry on",
                    "write refused, or a status of 500 to 599",
                )
            }),
        })?;
        if let Some(code) = code.filter(|code| !is_fault(*code)) {
            let problem = format!("{code} is a fault of no endpoint, so that it is never retried");
            let cure = "remove it, or take it out of the list that says so";
            return Err(section.refuse(&format!("on[{index}]"), Some(entry.place), &problem, cure));
        }
        on.refused |= code.is_none();
        on.codes.extend(code);
    }
    Ok(on)
}

/// Reads `log`.
pub(super) fn log(root: &Section<'_>, given: &Given<LogSection>) -> Result<Log, ConfigError> {
    let section = root.child("log", given);
    let none = LogSection::default();
    let raw = given.get().unwrap_or(&none);
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    Ok(Log {
        format: section
            .or("format", &raw.format, LogFormat::default(), |text| choice(text, &formats))?,
        level: section.or("level", &raw.level, "info".to_owned(), levels)?,
    })
}

fn levels(text: &str) -> Result<String, Refusal> {
    let is_level =
        |word: &str| matches!(word, "off" | "error" | "warn" | "info" | "debug" | "trace");
    let is_target = |word: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
        !word.is_empty() && word.bytes().all(is_allowed)
    };
    let is_directive = |part: &str| match part.split_once('=') {
        Some((target, level)) => is_target(target) && is_level(level),
        None => is_level(part),
    };
    if text.len() <= LEVEL_BYTES_MAX && text.split(',').all(is_directive) {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        "is not a log level",
        "use error, warn, info, debug or trace, or a list such as info,quorumgate=debug",
    ))
}
