//! The models and their endpoints, with every name in its place.
//!
//! Names decide where a request goes and which circuit it counts for. Two things of one name, or
//! one address listed twice, would make one endpoint's trouble look like another's.
//!
//! Invariants: a name or alias belongs to one model; a name belongs to one endpoint of its model,
//! and so does an address together with the name the model has there; whatever names another model
//! names one that exists; bounds hold over all models together.

use std::collections::BTreeMap;

use self::endpoint::endpoint;
use super::choice;
use super::circuit::{Inherited, TENANTS_SUM_MAX};
use super::limits::limits;
use crate::config::error::{ConfigError, nearest};
use crate::config::file::{At, File, ModelSection, Place};
use crate::config::scalar::{Refusal, name, truth};
use crate::config::section::Section;
use crate::config::{ENDPOINTS_MAX, Endpoint, OnAllOpen, Policy, Pool, TenantScope};

mod endpoint;

/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 128;
const POLICIES: [(&str, Policy); 4] = [
    ("least_request", Policy::LeastRequest),
    ("weighted", Policy::Weighted),
    ("ewma", Policy::Ewma),
    ("prefix_hash", Policy::PrefixHash),
];
const FIRST_MODEL: &str = "describe at least one model with one endpoint";

/// Names that are taken, and where.
type Taken = BTreeMap<String, Place>;
/// What clients may ask for, and the name of the pool that it means.
pub(super) type Names<'a> = BTreeMap<&'a str, &'a str>;

/// Every name and alias of `pools`.
pub(super) fn named(pools: &[Pool]) -> Names<'_> {
    let mut names = Names::new();
    for pool in pools {
        let called = std::iter::once(&pool.name).chain(&pool.aliases);
        names.extend(called.map(|one| (one.as_str(), pool.name.as_str())));
    }
    names
}

/// Finds the pool that `text` means.
///
/// # Errors
/// None does.
pub(super) fn find<'a>(text: &str, names: &Names<'a>) -> Result<&'a str, Refusal> {
    names.get(text).copied().ok_or_else(|| {
        let known: Vec<&str> = names.keys().copied().collect();
        let cure = nearest(text, &known).map_or_else(
            || "write the name or an alias of a model in this file".to_owned(),
            |candidate| format!("did you mean \"{candidate}\"?"),
        );
        Refusal::new("is no model", cure)
    })
}

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
    let fallbacks = fallbacks(root, models, &pools)?;
    for (pool, fallback) in pools.iter_mut().zip(fallbacks) {
        pool.fallback = fallback;
    }
    Ok(pools)
}

/// Reads `fallback` of every model: only when all are known can one name another.
fn fallbacks(
    root: &Section<'_>,
    models: &[At<ModelSection>],
    pools: &[Pool],
) -> Result<Vec<Vec<String>>, ConfigError> {
    let names = named(pools);
    let mut fallbacks = Vec::with_capacity(pools.len());
    for (index, (model, pool)) in models.iter().zip(pools).enumerate() {
        let section = root.item("models", index, model.place, &model.value.name);
        fallbacks.push(fallback(&section, &model.value, pool, &names)?);
    }
    Ok(fallbacks)
}

fn fallback(
    section: &Section<'_>,
    raw: &ModelSection,
    pool: &Pool,
    names: &Names<'_>,
) -> Result<Vec<String>, ConfigError> {
    let mut fallback: Vec<String> = Vec::new();
    for (index, entry) in raw.fallback.entries().iter().enumerate() {
        let other = section.entry("fallback", index, entry, |text| find(text, names))?;
        let problem = if other == pool.name {
            "it is this model itself"
        } else if fallback.iter().any(|earlier| earlier == other) {
            "the model it means stands in the list already"
        } else {
            fallback.push(other.to_owned());
            continue;
        };
        let key = format!("fallback[{index}]");
        return Err(section.refuse(&key, Some(entry.place), problem, "remove it or name another"));
    }
    Ok(fallback)
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
    let policy =
        section.or("policy", &raw.policy, Policy::default(), |text| choice(text, &POLICIES))?;
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
        limits: limits(section, &raw.limits)?,
        include_usage: section.or("include_usage", &raw.include_usage, false, truth)?,
    })
}

fn model_name(text: &str) -> Result<String, Refusal> {
    name(text, MODEL_BYTES_MAX, "._:/-")
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
        let endpoint = endpoint(&item, value, own, model)?;
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
