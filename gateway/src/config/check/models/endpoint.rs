//! One endpoint of a model: where it is, how it is spoken to, and what may be asked of it.
//!
//! What only makes sense beside something else is refused without it: TLS at an address in the clear,
//! a version of Azure's interface elsewhere, an interval between questions that nobody asks.
//!
//! Invariants: an endpoint whose address is `https` is known by TLS, and no other is; what becomes part
//! of a path is plain.

use std::time::Duration;

use crate::config::address::{self, Scheme};
use crate::config::check::circuit::{Inherited, probe};
use crate::config::check::limits::limits;
use crate::config::check::{DURATION_MAX, DURATION_MIN, REPEAT, choice, file_path};
use crate::config::error::ConfigError;
use crate::config::file::{EndpointSection, Given, UpstreamTlsSection};
use crate::config::scalar::{Refusal, duration, duration_text, name, whole};
use crate::config::section::Section;
use crate::config::{Endpoint, Health, Kind, Protocol, StatusClass, UpstreamTls};

/// Longest name of an endpoint, in bytes; it becomes a label of every metric.
const ENDPOINT_BYTES_MAX: usize = 64;
/// Longest name an endpoint has for a model, in bytes.
const UPSTREAM_MODEL_BYTES_MAX: usize = 256;
/// A larger share of one endpoint leaves nothing for its siblings.
const WEIGHT_MAX: u32 = 1_000;
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// What `HEALTH_TIMEOUT` becomes beside an interval that is not longer, if nobody says another.
const HEALTH_TIMEOUT_SHORT: Duration = Duration::from_millis(500);
/// Groups beyond these are no order anyone keeps in mind.
const PRIORITY_MAX: u8 = 15;
/// Longest name of a quota group, in bytes.
const QUOTA_GROUP_BYTES_MAX: usize = 64;
/// Longest version of an interface, in bytes.
const API_VERSION_BYTES_MAX: usize = 64;
/// Longest name of a deployment, in bytes (Azure's own bound).
const DEPLOYMENT_BYTES_MAX: usize = 64;
const PROTOCOLS: [(&str, Protocol); 2] = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];

/// Reads an endpoint of the pool `model`, with what it inherits.
///
/// # Errors
/// A setting is refused, alone or because of another.
pub(super) fn endpoint(
    section: &Section<'_>,
    raw: &EndpointSection,
    own: &Inherited,
    model: &str,
) -> Result<Endpoint, ConfigError> {
    let name = section.required("name", &raw.name, "write a short name for it", |text| {
        name(text, ENDPOINT_BYTES_MAX, "._-")
    })?;
    let found = section.required("address", &raw.address, address::FORM, address::upstream)?;
    let own = if raw.circuit_breaker.get().is_some() {
        own.overlaid(section, &raw.circuit_breaker, &Given::default())?
    } else {
        own.clone()
    };
    let kind = section.or("kind", &raw.kind, Kind::default(), |text| choice(text, &Kind::ALL))?;
    probe::fits(section, kind, &own.probe, &own.rule)?;
    // An inherited pause after what is no fault here has no effect, and a written one was refused.
    let mut codes = own.codes;
    let faults =
        codes.pause.iter().copied().filter(|code| codes.class(*code) == StatusClass::Fault);
    codes.pause = faults.collect();
    let upstream_model = section.optional("upstream_model", &raw.upstream_model, upstream_model)?;
    let called = upstream_model.as_deref().unwrap_or(model);
    let api_version = api_version(section, raw, kind, called)?;
    Ok(Endpoint {
        name,
        address: format!("{}://{}", found.scheme.as_str(), found.authority),
        authority: found.authority,
        base_path: found.base_path,
        upstream_model,
        weight: section.or("weight", &raw.weight, 1, |text| whole(text, 1..=WEIGHT_MAX))?,
        priority: section.or("priority", &raw.priority, 0, |text| whole(text, 0..=PRIORITY_MAX))?,
        quota_group: section.optional("quota_group", &raw.quota_group, quota_group)?,
        limits: limits(section, &raw.limits)?,
        tls: tls(section, &raw.tls, found.scheme)?,
        protocol: section
            .or("protocol", &raw.protocol, Protocol::default(), |text| choice(text, &PROTOCOLS))?,
        api_version,
        api_key: section.secret("api_key", &raw.api_key)?,
        kind,
        probe: own.probe,
        rule: own.rule,
        tenants: own.tenants,
        codes,
        health: health(section, raw)?,
    })
}

fn quota_group(text: &str) -> Result<String, Refusal> {
    name(text, QUOTA_GROUP_BYTES_MAX, "._-")
}

/// Reads `tls`; an endpoint in the clear has none.
fn tls(
    endpoint: &Section<'_>,
    given: &Given<UpstreamTlsSection>,
    scheme: Scheme,
) -> Result<Option<UpstreamTls>, ConfigError> {
    if scheme == Scheme::Http {
        let problem = "the address is http, where there is no TLS";
        return match given.place() {
            None => Ok(None),
            Some(place) => {
                Err(endpoint.refuse("tls", Some(place), problem, "write https or remove it"))
            }
        };
    }
    let Some(raw) = given.get() else {
        return Ok(Some(UpstreamTls::default()));
    };
    let section = endpoint.child("tls", given);
    let tls = UpstreamTls {
        ca: section.optional("ca", &raw.ca, file_path)?,
        cert: section.optional("cert", &raw.cert, file_path)?,
        key: section.optional("key", &raw.key, file_path)?,
        server_name: section.optional(
            "server_name",
            &raw.server_name,
            address::certificate_name,
        )?,
    };
    let (key, place, other) = match (&tls.cert, &tls.key) {
        (Some(_), None) => ("cert", raw.cert.place(), "key"),
        (None, Some(_)) => ("key", raw.key.place(), "cert"),
        (Some(_), Some(_)) | (None, None) => return Ok(Some(tls)),
    };
    let problem = format!("it proves nothing without {other}");
    Err(section.refuse(key, place, &problem, &format!("name {other} as well, or remove it")))
}

/// Reads `api_version`; with it the path names the deployment, which is what the endpoint calls the
/// model.
fn api_version(
    section: &Section<'_>,
    raw: &EndpointSection,
    kind: Kind,
    deployment: &str,
) -> Result<Option<String>, ConfigError> {
    let Some(version) = section.optional("api_version", &raw.api_version, |text| {
        name(text, API_VERSION_BYTES_MAX, ".-")
    })?
    else {
        return Ok(None);
    };
    if kind != Kind::Azure {
        let problem = format!("a server of kind {} has no such version", kind.as_str());
        let cure = "write kind: azure or remove it";
        return Err(section.refuse("api_version", raw.api_version.place(), &problem, cure));
    }
    if name(deployment, DEPLOYMENT_BYTES_MAX, "._-").is_ok() {
        return Ok(Some(version));
    }
    let problem = match raw.upstream_model.place() {
        None => "is missing, and the model's own name is no name of a deployment",
        Some(_) => "is no name of a deployment, as which api_version puts it into the path",
    };
    let cure = format!("write the deployment, 1 to {DEPLOYMENT_BYTES_MAX} letters, digits and ._-");
    Err(section.refuse("upstream_model", raw.upstream_model.place(), problem, &cure))
}

fn health(section: &Section<'_>, raw: &EndpointSection) -> Result<Option<Health>, ConfigError> {
    let Some(path) = section.optional("health_path", &raw.health_path, address::plain_path)? else {
        let details =
            [("health_interval", &raw.health_interval), ("health_timeout", &raw.health_timeout)];
        return match details.iter().find(|(_, given)| given.get().is_some()) {
            None => Ok(None),
            Some((key, given)) => Err(section.refuse(
                key,
                given.place(),
                "without health_path nothing is asked",
                "write health_path as well, for example /health, or remove it",
            )),
        };
    };
    let (interval_given, timeout_given) = (&raw.health_interval, &raw.health_timeout);
    let interval = section
        .or("health_interval", interval_given, HEALTH_INTERVAL, |text| duration(text, REPEAT))?;
    // Whoever asks more often without naming the time to wait gets one that fits.
    let fitting = if interval > HEALTH_TIMEOUT { HEALTH_TIMEOUT } else { HEALTH_TIMEOUT_SHORT };
    let timeout = section.or("health_timeout", timeout_given, fitting, |text| {
        duration(text, DURATION_MIN..=DURATION_MAX)
    })?;
    if timeout >= interval {
        let (timeout, interval) = (duration_text(timeout), duration_text(interval));
        let problem = format!("{timeout} is not over when health_interval ({interval}) is");
        let cure = format!("use less than {interval} or raise health_interval");
        return Err(section.refuse("health_timeout", timeout_given.place(), &problem, &cure));
    }
    Ok(Some(Health { path, interval, timeout }))
}

fn upstream_model(text: &str) -> Result<String, Refusal> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if text.len() <= UPSTREAM_MODEL_BYTES_MAX && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        "is not a model name",
        format!("use at most {UPSTREAM_MODEL_BYTES_MAX} visible ASCII characters"),
    ))
}
