//! The models and their endpoints, with every name in its place.
//!
//! Names decide where a request goes and which circuit it counts for. Two things of one name, or
//! one address listed twice, would make one endpoint's trouble look like another's.
//!
//! Invariants: a name or alias belongs to one model; a name belongs to one endpoint of its model,
//! and so does an address together with the name the model has there; bounds hold over all models
//! together.

use std::collections::BTreeMap;
use std::time::Duration;

use super::circuit::{Inherited, TENANTS_SUM_MAX};
use super::{DURATION_MAX, DURATION_MIN, REPEAT, choice};
use crate::config::address;
use crate::config::error::ConfigError;
use crate::config::file::{At, EndpointSection, File, Given, ModelSection, Place};
use crate::config::scalar::{Refusal, duration, duration_text, name, whole};
use crate::config::section::Section;
use crate::config::{
    ENDPOINTS_MAX, Endpoint, Health, Kind, Limits, OnAllOpen, Policy, Pool, Protocol, StatusClass,
    TenantScope,
};

/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 128;
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
const FIRST_MODEL: &str = "describe at least one model with one endpoint";

/// Names that are taken, and where.
type Taken = BTreeMap<String, Place>;

/// Reads `models`, with the defaults that stand beside it.
pub(super) fn pools(root: &Section<'_>, file: &File) -> Result<Vec<Pool>, ConfigError> {
    let defaults = Inherited::default().overlaid(root, &file.circuit_breaker, &file.timeouts)?;
    let models = file.models.entries();
    if models.is_empty() {
        return Err(root.refuse("models", file.models.place(), "there is no model", FIRST_MODEL));
    }
    let mut taken = Taken::new();
    let (mut endpoints, mut tenants): (usize, usize) = (0, 0);
    let mut pools = Vec::with_capacity(models.len());
    for (index, model) in models.iter().enumerate() {
        let section = root.item("models", index, model.place, &model.value.name);
        endpoints += model.value.endpoints.entries().len();
        if endpoints > ENDPOINTS_MAX {
            let problem = format!("with this model there are more than {ENDPOINTS_MAX} endpoints");
            return Err(section.refuse("endpoints", None, &problem, "spread them over two fleets"));
        }
        let pool = pool(&section, &model.value, &defaults, &mut taken)?;
        tenants +=
            pool.endpoints.iter().filter_map(|one| one.tenants.as_ref()).map(most).sum::<usize>();
        if tenants > TENANTS_SUM_MAX {
            let problem = format!(
                "with this model up to {tenants} tenants are remembered for all endpoints together"
            );
            let cure = format!("lower it, so that the sum is at most {TENANTS_SUM_MAX}");
            return Err(section.refuse("circuit_breaker.tenant.max", None, &problem, &cure));
        }
        pools.push(pool);
    }
    Ok(pools)
}

fn most(scope: &TenantScope) -> usize {
    scope.most
}

fn pool(
    section: &Section<'_>,
    raw: &ModelSection,
    defaults: &Inherited,
    taken: &mut Taken,
) -> Result<Pool, ConfigError> {
    let name = section.required("name", &raw.name, "write the name clients ask for", model_name)?;
    claim(section, "name", raw.name.place(), &name, taken)?;
    let mut aliases = Vec::new();
    for (index, entry) in raw.aliases.entries().iter().enumerate() {
        let alias = section.entry("aliases", index, entry, model_name)?;
        let key = format!("aliases[{index}]");
        claim(section, &key, Some(entry.place), &alias, taken)?;
        aliases.push(alias);
    }
    let policy = section.or("policy", &raw.policy, Policy::default(), policy)?;
    let ways = [("pass_through", OnAllOpen::PassThrough), ("reject", OnAllOpen::Reject)];
    let on_all_open =
        section.or("on_all_open", &raw.on_all_open, OnAllOpen::default(), |text| {
            choice(text, &ways)
        })?;
    let own = defaults.overlaid(section, &raw.circuit_breaker, &raw.timeouts)?;
    let endpoints = endpoints(section, raw, &own, &name)?;
    Ok(Pool {
        name,
        aliases,
        endpoints,
        on_all_open,
        timeouts: own.timeouts,
        policy,
        fallback: Vec::new(),
        limits: Limits::default(),
        include_usage: false,
    })
}

fn model_name(text: &str) -> Result<String, Refusal> {
    name(text, MODEL_BYTES_MAX, "._:/-")
}

fn policy(text: &str) -> Result<Policy, Refusal> {
    match text {
        "weighted" | "ewma" | "prefix_hash" => Err(Refusal::new(
            "is not supported by this version",
            "write least_request or remove the key",
        )),
        _ => choice(text, &[("least_request", Policy::LeastRequest)]),
    }
}

/// Takes a name for good.
fn claim(
    section: &Section<'_>,
    key: &str,
    place: Option<Place>,
    name: &str,
    taken: &mut Taken,
) -> Result<(), ConfigError> {
    let here = place.unwrap_or(Place::START);
    match taken.insert(name.to_owned(), here) {
        None => Ok(()),
        Some(there) => {
            let problem = format!("this name is taken in line {}", there.line);
            Err(section.refuse(key, place, &problem, "choose another or remove one of them"))
        }
    }
}

fn endpoints(
    section: &Section<'_>,
    raw: &ModelSection,
    own: &Inherited,
    model: &str,
) -> Result<Vec<Endpoint>, ConfigError> {
    let entries = raw.endpoints.entries();
    if entries.is_empty() {
        let place = raw.endpoints.place();
        return Err(section.refuse("endpoints", place, "there is no endpoint", FIRST_MODEL));
    }
    let mut names = Taken::new();
    let mut targets = Taken::new();
    let mut endpoints = Vec::with_capacity(entries.len());
    for (index, At { value, place }) in entries.iter().enumerate() {
        let item = section.item("endpoints", index, *place, &value.name);
        let endpoint = endpoint(&item, value, own)?;
        claim(&item, "name", value.name.place(), &endpoint.name, &mut names)?;
        let upstream_model = endpoint.upstream_model.as_deref().unwrap_or(model);
        let (address, base_path) = (&endpoint.address, &endpoint.base_path);
        let target = format!("{address}{base_path} {upstream_model}");
        let here = value.address.place();
        if let Some(there) = targets.insert(target, here.unwrap_or(*place)) {
            let problem = format!("line {} sends the same model to it already", there.line);
            let cure = "remove one of them and use weight to give it a larger share";
            return Err(item.refuse("address", here, &problem, cure));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

fn endpoint(
    section: &Section<'_>,
    raw: &EndpointSection,
    own: &Inherited,
) -> Result<Endpoint, ConfigError> {
    let name = section.required("name", &raw.name, "write a short name for it", |text| {
        name(text, ENDPOINT_BYTES_MAX, "._-")
    })?;
    let found =
        section.required("address", &raw.address, "write http://host:port", address::upstream)?;
    let own = if raw.circuit_breaker.get().is_some() {
        own.overlaid(section, &raw.circuit_breaker, &Given::default())?
    } else {
        own.clone()
    };
    let kind = section.or("kind", &raw.kind, Kind::default(), |text| choice(text, &Kind::ALL))?;
    super::circuit::probe::fits(section, kind, &own.probe, &own.rule)?;
    // An inherited pause after what is no fault here has no effect, and a written one was refused.
    let mut codes = own.codes;
    let faults =
        codes.pause.iter().copied().filter(|code| codes.class(*code) == StatusClass::Fault);
    codes.pause = faults.collect();
    Ok(Endpoint {
        name,
        address: format!("http://{}", found.authority),
        authority: found.authority,
        base_path: found.base_path,
        upstream_model: section.optional("upstream_model", &raw.upstream_model, upstream_model)?,
        weight: section.or("weight", &raw.weight, 1, |text| whole(text, 1..=WEIGHT_MAX))?,
        priority: 0,
        quota_group: None,
        limits: Limits::default(),
        tls: None,
        protocol: Protocol::default(),
        api_version: None,
        api_key: section.secret("api_key", &raw.api_key)?,
        kind,
        probe: own.probe,
        rule: own.rule,
        tenants: own.tenants,
        codes,
        health: health(section, raw)?,
    })
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
