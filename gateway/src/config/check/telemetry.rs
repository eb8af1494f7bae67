//! The settings of telemetry: which collector is told of requests, and of how many.
//!
//! Invariants: the collector is one host; no credential stands in its address, so that none is shown.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::Otlp;
use crate::config::address::{self, Scheme};
use crate::config::error::ConfigError;
use crate::config::file::{Given, OtlpSection, TelemetrySection};
use crate::config::scalar::{Refusal, duration, fraction, name};
use crate::config::section::Section;

/// One in ten shows what is usual, and costs little.
const SAMPLE: f64 = 0.1;
const SERVICE_NAME: &str = "quorumgate";
const SERVICE_NAME_BYTES_MAX: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Less, and a collector that is busy for a moment gets nothing; more, and spans pile up.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// Where a collector is told of traces, below its base path.
const PATH: &str = "/v1/traces";

/// Reads `telemetry`; nobody is told of requests where it is left out.
pub(super) fn telemetry(
    root: &Section<'_>,
    given: &Given<TelemetrySection>,
) -> Result<Option<Otlp>, ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(None);
    };
    let section = root.child("telemetry", given);
    let Some(otlp) = raw.otlp.get() else {
        let cure = "name the collector: otlp: { endpoint: http://collector:4318 }";
        return Err(section.refuse("otlp", None, "is missing", cure));
    };
    self::otlp(&section.child("otlp", &raw.otlp), otlp).map(Some)
}

fn otlp(section: &Section<'_>, raw: &OtlpSection) -> Result<Otlp, ConfigError> {
    let cure = "write where the collector is, for example http://collector:4318";
    let found = section.required("endpoint", &raw.endpoint, cure, collector)?;
    let address = format!("{}://{}", found.scheme.as_str(), found.authority);
    Ok(Otlp {
        endpoint: format!("{address}{}", found.base_path),
        path: format!("{}{PATH}", found.base_path),
        is_tls: found.scheme == Scheme::Https,
        authority: found.authority,
        sample: section.or("sample", &raw.sample, SAMPLE, share)?,
        service_name: section.or(
            "service_name",
            &raw.service_name,
            SERVICE_NAME.to_owned(),
            |text| name(text, SERVICE_NAME_BYTES_MAX, "._-"),
        )?,
        timeout: section.or("timeout", &raw.timeout, TIMEOUT, |text| duration(text, TIMEOUTS))?,
    })
}

fn collector(text: &str) -> Result<address::Upstream, Refusal> {
    let cure = "give the collector's address in full, without a user and without /v1/traces";
    let found =
        address::upstream(text).map_err(|refusal| Refusal { cure: cure.to_owned(), ..refusal })?;
    if found.base_path.ends_with(PATH) {
        return Err(Refusal::new("ends in /v1/traces, which is put there", cure));
    }
    Ok(found)
}

fn share(text: &str) -> Result<f64, Refusal> {
    let cure = "write a share of the requests from 0 to 1, for example 0.1";
    let share = fraction(text)?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(Refusal::new("is no share", cure)) }
}
