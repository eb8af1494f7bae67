//! Turns the sections of a file into a `Config`, or says the first thing that is wrong.
//!
//! The order is that of the file's own importance: the process, the fleet, the defaults, then each
//! model with what it changes about the defaults.
//!
//! Invariants: nothing is read from anywhere but the sections and the variables they name; a
//! configuration comes out whole or not at all.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::Config;
use super::error::{ConfigError, did_you_mean};
use super::file::{File, Given, Scalar};
use super::form::{Form, Forms};
use super::given::{Look, Missing};
use super::overrides::Overrides;
use super::scalar::{Refusal, duration, fraction};
use super::section::{Section, Source};

mod callers;
mod circuit;
mod cluster;
mod limits;
mod models;
mod process;
mod retry;
mod telemetry;

/// Longest duration of any setting; more is a slip of the pen.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Shortest duration where none would mean nothing.
const DURATION_MIN: Duration = Duration::from_millis(1);
/// Bounds of what is done again and again beside the requests: more often is load, more seldom is
/// too late to be of use.
const REPEAT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60 * 60);

/// Checks `file`, on which `overrides` were put, with variables answered by `env`.
///
/// # Errors
/// The first setting that is refused.
pub(super) fn check(
    file: &File,
    source_name: &str,
    env: &Look<'_>,
    overrides: &Overrides,
) -> Result<Config, ConfigError> {
    checked(&Source { file: source_name, env, overrides, forms: None }, file)
}

/// Checks `file`, which must be accepted, and says of each setting that is looked at what it takes.
pub(super) fn forms(file: &File) -> Forms {
    let forms = RefCell::default();
    let overrides = Overrides::default();
    let source = Source {
        file: "forms",
        env: &|_| Err(Missing::Unset),
        overrides: &overrides,
        forms: Some(&forms),
    };
    let checked = checked(&source, file);
    debug_assert!(checked.is_ok(), "{checked:?}");
    forms.into_inner()
}

fn checked(source: &Source<'_>, file: &File) -> Result<Config, ConfigError> {
    let root = Section::root(source);
    let server = process::server(&root, &file.server)?;
    let admin = process::admin(&root, &file.admin, server.listen)?;
    let pools = models::pools(&root, file)?;
    Ok(Config {
        server,
        admin,
        cluster: cluster::cluster(&root, file)?,
        state: process::state(&root, &file.state)?,
        fail_closed: process::fail_closed(&root, &file.fail_closed)?,
        api_keys: callers::api_keys(&root, file, &pools)?,
        retry: retry::retry(&root, file, &pools)?,
        log: process::log(&root, &file.log)?,
        telemetry: telemetry::telemetry(&root, &file.telemetry)?,
        pools,
    })
}

/// Reads a duration of at least 1 ms under `key`.
fn time(
    section: &Section<'_>,
    key: &str,
    given: &Given<Scalar>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    section.or(key, given, default, |text| duration(text, DURATION_MIN..=DURATION_MAX))
}

/// Reads a limit of time under `key`; `off` sets none.
fn limit(
    section: &Section<'_>,
    key: &str,
    given: &Given<Scalar>,
    default: Option<Duration>,
) -> Result<Option<Duration>, ConfigError> {
    section.or(key, given, default, |text| match text {
        "off" => Ok(None),
        _ => duration(text, DURATION_MIN..=DURATION_MAX).map(Some),
    })
}

/// Reads a limit without a unit under `key`; `off` sets none.
fn number_limit(
    section: &Section<'_>,
    key: &str,
    given: &Given<Scalar>,
    default: Option<f64>,
) -> Result<Option<f64>, ConfigError> {
    section.or(key, given, default, |text| match text {
        "off" => Ok(None),
        _ => fraction(text).map(Some),
    })
}

/// Reads an address to listen on.
fn listen(text: &str) -> Result<SocketAddr, Refusal> {
    text.parse().map_err(|_| {
        Refusal::new("is not an address to listen on", "write IP:PORT, for example 127.0.0.1:8080")
    })
}

/// Takes one of the words in `known`.
fn choice<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, Refusal> {
    known.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        Refusal::new("is not known", did_you_mean(text, &words)).of(Form::words(&words))
    })
}

/// Reads the path of a file.
fn file_path(text: &str) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(text);
    if path.file_name().is_none() || text.ends_with('/') {
        return Err(Refusal::new("is no file", "write a path with the name of a file at its end"));
    }
    Ok(path)
}
