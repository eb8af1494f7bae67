//! The probe: what a level of the configuration changes about the one it inherits, and whether it fits
//! the server it is sent to.

use breaker::Rule;

use crate::config::address::plain_path;
use crate::config::check::{choice, number_limit, time};
use crate::config::error::ConfigError;
use crate::config::file::{Given, ProbeSection};
use crate::config::scalar::{duration_text, truth, whole};
use crate::config::section::Section;
use crate::config::{Kind, Probe, ProbeRoute};

/// A probe asks whether a model answers, not for an essay.
const PROBE_TOKENS_MAX: u32 = 1_024;

/// Puts what `given` says on top of `inherited`.
///
/// # Errors
/// A setting is refused, alone or because another makes it useless.
pub(super) fn overlay(
    circuit: &Section<'_>,
    given: &Given<ProbeSection>,
    inherited: &Probe,
) -> Result<Probe, ConfigError> {
    let none = ProbeSection::default();
    let raw = given.get().unwrap_or(&none);
    let section = circuit.child("probe", given);
    let routes = ProbeRoute::ALL;
    let probe = Probe {
        enabled: section.or("enabled", &raw.enabled, inherited.enabled, truth)?,
        route: section.or("route", &raw.route, inherited.route, |text| choice(text, &routes))?,
        first_token: time(&section, "first_token", &raw.first_token, inherited.first_token)?,
        max_tokens: section.or("max_tokens", &raw.max_tokens, inherited.max_tokens, |text| {
            whole(text, 1..=PROBE_TOKENS_MAX)
        })?,
        prompt: section
            .or("prompt", &raw.prompt, inherited.prompt.clone(), |text| Ok(text.to_owned()))?,
        cache_usage_max: number_limit(
            &section,
            "cache_usage_max",
            &raw.cache_usage_max,
            inherited.cache_usage_max,
        )?,
        metrics_path: section.or(
            "metrics_path",
            &raw.metrics_path,
            inherited.metrics_path.clone(),
            plain_path,
        )?,
    };
    // A comparison with NaN is false, so it is refused as well.
    if let Some(most) = probe.cache_usage_max
        && !(most > 0.0 && most <= 1.0)
    {
        let problem = format!("{most} is no share of a cache");
        let cure = "write a share above 0 and at most 1, for example 0.75";
        return Err(section.refuse("cache_usage_max", raw.cache_usage_max.place(), &problem, cure));
    }
    Ok(probe)
}

/// Refuses a probe that cannot do its work at a server of this kind under this rule; `level` is the
/// section of the endpoint.
///
/// # Errors
/// The probe outlives its permit, or speaks of what such a server does not have.
pub(in crate::config::check) fn fits(
    level: &Section<'_>,
    kind: Kind,
    probe: &Probe,
    rule: &Rule,
) -> Result<(), ConfigError> {
    if !probe.enabled {
        return Ok(());
    }
    let word = kind.as_str();
    let (key, problem, cure) = if probe.first_token >= rule.half_open.deadline {
        let (limit, deadline) =
            (duration_text(probe.first_token), duration_text(rule.half_open.deadline));
        let problem = format!("{limit} is never reached, half_open.deadline ends it at {deadline}");
        ("first_token", problem, format!("use less than {deadline}"))
    } else if probe.cache_usage_max.is_some() && kind.cache_usage_names().is_empty() {
        let problem = format!("a server of kind {word} shows no use of its cache");
        ("cache_usage_max", problem, "write kind: vllm or kind: sglang, or turn it off".to_owned())
    } else if kind == Kind::Anthropic && probe.route != ProbeRoute::Chat {
        let problem = format!("a server of kind {word} has no such route");
        ("route", problem, "write chat, which stands for /v1/messages there".to_owned())
    } else {
        return Ok(());
    };
    Err(level.refuse(&format!("circuit_breaker.probe.{key}"), None, &problem, &cure))
}
