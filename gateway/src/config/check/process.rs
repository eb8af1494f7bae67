//! The settings of the process: its listeners, its memory, its first line of defence, its log.
//!
//! These are the settings an operator gets wrong once, at the first start, and that open a door if
//! they pass: an admin listener anyone can reach, a list of paths that admits nothing.
//!
//! Invariants: operators beyond loopback need a token; the listeners do not collide; a limit that
//! is set admits at least one of what it limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::callers::cors;
use super::{DURATION_MAX, REPEAT, choice, file_path, listen, time};
use crate::config::error::ConfigError;
use crate::config::file::{
    AdminSection, FailClosedSection, Given, LogSection, Scalar, ServerSection,
    ServerTimeoutsSection, ServerTlsSection, StateSection,
};
use crate::config::scalar::{Refusal, duration, size, truth, whole};
use crate::config::section::Section;
use crate::config::{Admin, FailClosed, Log, LogFormat, Server, ServerTls, StateFile, Tokenizer};
use crate::memory;

const SERVER_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
const BODY_BYTES: u64 = 10 << 20;
/// A shorter limit refuses requests with a system prompt alone.
const BODY_BYTES_MIN: u64 = 1 << 10;
/// Bodies are held in memory while a request may still be tried elsewhere.
const BODY_BYTES_MAX: u64 = 1 << 30;
const BODY_MEMORY_MAX: u64 = 1 << 40;
const WORKERS_MAX: usize = 1_024;
/// Each costs a file descriptor and some memory, even if it is idle.
const CONNECTIONS: usize = 10_000;
const CONNECTIONS_MAX: usize = 1_000_000;
/// Proxies on the way to a client take a connection for dead after half a minute at the earliest.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A crash forgets at most this much of what the circuits know.
const STATE_EVERY: Duration = Duration::from_secs(5);
const ANSWERS_MAX: u32 = 16;
/// Beyond that one request is many, whatever the limits say.
const ANSWERS: RangeInclusive<u32> = 1..=128;
/// Longest header name, in bytes.
const HEADER_BYTES_MAX: usize = 64;
/// By what prompts can be counted.
const TOKENIZERS: [(&str, Option<Tokenizer>); 3] = [
    ("off", None),
    ("cl100k_base", Some(Tokenizer::Cl100kBase)),
    ("o200k_base", Some(Tokenizer::O200kBase)),
];
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
        max_body_memory_bytes: body_memory(&section, &raw.max_body_memory, max_body)?,
        workers: section.or("workers", &raw.workers, 0, |text| whole(text, 0..=WORKERS_MAX))?,
        max_connections: section.or(
            "max_connections",
            &raw.max_connections,
            CONNECTIONS,
            |text| whole(text, 1..=CONNECTIONS_MAX),
        )?,
        tls: tls(&section, &raw.tls)?,
        cors: cors(&section, &raw.cors)?,
        heartbeat: section.or("heartbeat", &raw.heartbeat, Some(HEARTBEAT), |text| match text {
            "off" => Ok(None),
            _ => duration(text, REPEAT).map(Some),
        })?,
        write_stall: time(&timeouts_section, "write_stall", &timeouts.write_stall, seconds(60))?,
        first_byte_timeout: time(
            &timeouts_section,
            "first_byte",
            &timeouts.first_byte,
            seconds(10),
        )?,
        header_timeout: time(&timeouts_section, "headers", &timeouts.headers, seconds(10))?,
        body_idle: time(&timeouts_section, "body_idle", &timeouts.body_idle, seconds(10))?,
        keep_alive: time(&timeouts_section, "keep_alive", &timeouts.keep_alive, seconds(60))?,
        drain_delay: or_zero("drain_delay", &raw.drain_delay, seconds(5))?,
        drain_timeout: or_zero("drain_timeout", &raw.drain_timeout, seconds(600))?,
    })
}

/// What all bodies together may take. A single one must fit in the part that is not for small ones alone,
/// and beside another.
fn body_memory(
    section: &Section<'_>,
    given: &Given<Scalar>,
    max_body: u64,
) -> Result<usize, ConfigError> {
    let least = max_body.saturating_mul(2);
    let default = memory::default_bytes().max(least);
    let bytes = section.or("max_body_memory", given, default, |text| {
        size(text, BODY_BYTES_MIN * 2..=BODY_MEMORY_MAX)
    })?;
    if bytes < least {
        let problem = "it does not hold two bodies of server.max_body";
        let cure = "raise it to twice that, or lower server.max_body";
        return Err(section.refuse("max_body_memory", given.place(), problem, cure));
    }
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn tls(
    server: &Section<'_>,
    given: &Given<ServerTlsSection>,
) -> Result<Option<ServerTls>, ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(None);
    };
    let section = server.child("tls", given);
    let cure = "name cert and key, the files of a certificate chain and its key";
    Ok(Some(ServerTls {
        cert: section.required("cert", &raw.cert, cure, file_path)?,
        key: section.required("key", &raw.key, cure, file_path)?,
    }))
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
        protect_metrics: section.or("protect_metrics", &raw.protect_metrics, false, truth)?,
    };
    if admin.protect_metrics && admin.token.is_none() {
        let problem = "there is no token that a scraper could show";
        let place = raw.protect_metrics.place();
        return Err(section.refuse("protect_metrics", place, problem, "set admin.token as well"));
    }
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
    let max_input_tokens = section.optional("max_input_tokens", &raw.max_input_tokens, |text| {
        whole(text, 1..=1_000_000_000_u64)
    })?;
    let tokenizer =
        section.or("tokenizer", &raw.tokenizer, None, |text| choice(text, &TOKENIZERS))?;
    if tokenizer.is_some() && max_input_tokens.is_none() {
        let problem = "without max_input_tokens nothing is counted";
        let cure = "set max_input_tokens as well, or remove it";
        return Err(section.refuse("tokenizer", raw.tokenizer.place(), problem, cure));
    }
    Ok(FailClosed {
        require_header: section.optional("require_header", &raw.require_header, header_name)?,
        allowed_paths: is_limited.then_some(paths),
        max_messages: section
            .optional("max_messages", &raw.max_messages, |text| whole(text, 1..=1_000_000_usize))?,
        max_input_tokens,
        tokenizer,
        max_n: section.or("max_n", &raw.max_n, ANSWERS_MAX, |text| whole(text, ANSWERS))?,
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
    // Some readers take it for `-`, so that no field with one is taken from a client.
    if text.contains('_') {
        let problem = "has _ in it, and headers of clients that do are dropped";
        return Err(Refusal::new(problem, "use -, for example x-agent-id"));
    }
    Ok(text.to_owned())
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
