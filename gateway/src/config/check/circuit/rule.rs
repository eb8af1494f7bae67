//! The rule of a circuit: what a level of the configuration changes about the one it inherits.
//!
//! A preset is a whole set of limits, so it replaces the inherited ones; all other keys change one
//! setting each. What a setting may be is said by the rule's own check, with the value as the file
//! has it and the place where it stands.
//!
//! Invariants: a preset begins afresh from that preset, whatever was inherited, the mode excepted;
//! every key given beside it is put on top; of the two ways back the one setting that each has for
//! itself, `open.ttl` and `ramp.duration`, is refused beside the other. The rungs and the growing
//! cool-down may stand beside a lazy way, which has no use for them, so that a level below can be
//! staged with them; a rule that is returned has passed its own check.

use std::time::Duration;

use breaker::{
    COUNT_MAX, DEADLINE_MARGIN, HALF_OPEN_REQUESTS_MAX, LAZY_TTL, MIN_REQUESTS_MAX, Mode, P95Rule,
    Recovery, Rule, RuleError, SLOW_CONFIRMATIONS_MAX,
};

use crate::config::check::{DURATION_MAX, choice, limit, number_limit, time};
use crate::config::error::{ConfigError, did_you_mean};
use crate::config::file::{
    At, CircuitSection, Given, HalfOpenSection, OpenSection, P95Section, Place, RampSection,
    Scalar, SlowSection,
};
use crate::config::form::Form;
use crate::config::scalar::{Refusal, duration, fraction, whole};
use crate::config::section::Section;

/// The presets a rule can begin from, as `Rule::preset` knows them.
const PRESETS: [&str; 4] = ["default", "slow_api", "critical", "self_healing"];
const MODES: [(&str, Mode); 3] =
    [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];

/// Puts what `raw` says on top of `inherited`; whether the ladder begins with a probe is the
/// caller's to say.
///
/// # Errors
/// A setting is refused, alone or together with the others.
pub(super) fn overlay(
    section: &Section<'_>,
    raw: &CircuitSection,
    inherited: &Rule,
) -> Result<Rule, ConfigError> {
    let mut rule = section.or("preset", &raw.preset, inherited.clone(), preset)?;
    // Whether the breaker is obeyed is no limit: a preset must not arm one that is only watched.
    rule.mode = section.or("mode", &raw.mode, inherited.mode, |text| choice(text, &MODES))?;
    let failures = rule.failure_threshold;
    rule.failure_threshold =
        count(section, "failure_threshold", &raw.failure_threshold, failures, COUNT_MAX)?;
    let ratio = rule.failure_ratio;
    rule.failure_ratio = section.or("failure_ratio", &raw.failure_ratio, ratio, fraction)?;
    rule.window = time(section, "window", &raw.window, rule.window)?;
    let requests = rule.min_requests;
    rule.min_requests =
        count(section, "min_requests", &raw.min_requests, requests, MIN_REQUESTS_MAX)?;
    overlay_slow(section, &raw.slow, &mut rule)?;
    overlay_open(section, &raw.open, &mut rule)?;
    rule.recovery = overlay_recovery(section, raw, rule.recovery)?;
    overlay_half_open(section, &raw.half_open, &mut rule)?;

    let names_deadline =
        raw.half_open.get().is_some_and(|half_open| half_open.deadline.get().is_some());
    if !names_deadline {
        // A request within its limits must not be taken for lost, so whoever allows more time
        // without naming the deadline gets one that fits.
        let fitting = rule.slow.total.saturating_add(DEADLINE_MARGIN);
        rule.half_open.deadline = rule.half_open.deadline.max(fitting);
    }
    rule.check().map_err(|error| refuse_rule(section, raw, &error))?;
    Ok(rule)
}

fn preset(text: &str) -> Result<Rule, Refusal> {
    Rule::preset(text).ok_or_else(|| {
        Refusal::new("is no preset", did_you_mean(text, &PRESETS)).of(Form::words(&PRESETS))
    })
}

fn count(
    section: &Section<'_>,
    key: &str,
    given: &Given<Scalar>,
    default: u32,
    most: u32,
) -> Result<u32, ConfigError> {
    // The bounds are the rule's own and belong to its check.
    section.or(key, given, default, |text| {
        whole(text, 0..=u32::MAX).map_err(|refusal| refusal.of(Form::whole(&(1..=most))))
    })
}

fn overlay_slow(
    circuit: &Section<'_>,
    given: &Given<SlowSection>,
    rule: &mut Rule,
) -> Result<(), ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(());
    };
    let section = circuit.child("slow", given);
    let slow = &mut rule.slow;
    slow.total = time(&section, "total", &raw.total, slow.total)?;
    slow.first_token = limit(&section, "first_token", &raw.first_token, slow.first_token)?;
    slow.min_tokens_per_second = number_limit(
        &section,
        "min_tokens_per_second",
        &raw.min_tokens_per_second,
        slow.min_tokens_per_second,
    )?;
    slow.dedup = time(&section, "dedup", &raw.dedup, slow.dedup)?;
    let confirmations = slow.confirmations;
    let most = SLOW_CONFIRMATIONS_MAX;
    slow.confirmations = count(&section, "confirmations", &raw.confirmations, confirmations, most)?;
    slow.p95 = overlay_p95(&section, &raw.p95, slow.p95)?;
    slow.relative = number_limit(&section, "relative", &raw.relative, slow.relative)?;
    Ok(())
}

fn overlay_p95(
    slow: &Section<'_>,
    given: &Given<P95Section>,
    inherited: Option<P95Rule>,
) -> Result<Option<P95Rule>, ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(inherited);
    };
    let section = slow.child("p95", given);
    let base = inherited.unwrap_or(P95Rule { first_token: None, total: None });
    let first_token = limit(&section, "first_token", &raw.first_token, base.first_token)?;
    let total = limit(&section, "total", &raw.total, base.total)?;
    let is_set = first_token.is_some() || total.is_some();
    Ok(is_set.then_some(P95Rule { first_token, total }))
}

fn overlay_open(
    circuit: &Section<'_>,
    given: &Given<OpenSection>,
    rule: &mut Rule,
) -> Result<(), ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(());
    };
    let section = circuit.child("open", given);
    let open = &mut rule.open;
    open.base = time(&section, "base", &raw.base, open.base)?;
    open.max = time(&section, "max", &raw.max, open.max)?;
    open.reset_after = time(&section, "reset_after", &raw.reset_after, open.reset_after)?;
    Ok(())
}

/// Reads the way back with the one setting that each way has; a way that is chosen anew begins with
/// that setting's default.
fn overlay_recovery(
    circuit: &Section<'_>,
    raw: &CircuitSection,
    inherited: Recovery,
) -> Result<Recovery, ConfigError> {
    let (staged, lazy) = match inherited {
        Recovery::Staged { .. } => (inherited, Recovery::Lazy { ttl: LAZY_TTL }),
        Recovery::Lazy { .. } => (Recovery::default(), inherited),
    };
    let ways = [("staged", staged), ("lazy", lazy)];
    let way = circuit.or("recovery", &raw.recovery, inherited, |text| choice(text, &ways))?;
    let no_open = OpenSection::default();
    let ttl_given = &raw.open.get().unwrap_or(&no_open).ttl;
    let no_ramp = RampSection::default();
    let ramp_given = &raw.ramp.get().unwrap_or(&no_ramp).duration;
    let without_use = |key: &str, given: &Given<Scalar>, way: &str, other: &str| {
        let problem = format!("recovery: {way} has no use for it");
        let cure = format!("remove it or write recovery: {other}");
        circuit.refuse(key, given.place(), &problem, &cure)
    };
    match way {
        Recovery::Staged { .. } if ttl_given.get().is_some() => {
            Err(without_use("open.ttl", ttl_given, "staged", "lazy"))
        }
        Recovery::Lazy { .. } if ramp_given.get().is_some() => {
            Err(without_use("ramp.duration", ramp_given, "lazy", "staged"))
        }
        Recovery::Staged { probe, ramp } => {
            let section = circuit.child("ramp", &raw.ramp);
            let ramp = section.or("duration", ramp_given, ramp, |text| {
                duration(text, Duration::ZERO..=DURATION_MAX)
            })?;
            Ok(Recovery::Staged { probe, ramp })
        }
        Recovery::Lazy { ttl } => {
            let section = circuit.child("open", &raw.open);
            let ttl = time(&section, "ttl", ttl_given, ttl)?;
            Ok(Recovery::Lazy { ttl })
        }
    }
}

fn overlay_half_open(
    circuit: &Section<'_>,
    given: &Given<HalfOpenSection>,
    rule: &mut Rule,
) -> Result<(), ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(());
    };
    let section = circuit.child("half_open", given);
    let half_open = &mut rule.half_open;
    let requests = half_open.max_requests;
    let most = HALF_OPEN_REQUESTS_MAX;
    half_open.max_requests = count(&section, "max_requests", &raw.max_requests, requests, most)?;
    half_open.max_prompt_tokens = section.or(
        "max_prompt_tokens",
        &raw.max_prompt_tokens,
        half_open.max_prompt_tokens,
        |text| {
            whole(text, 0..=u64::MAX).map_err(|refusal| refusal.of(Form::whole(&(1..=u64::MAX))))
        },
    )?;
    let successes = half_open.successes;
    half_open.successes = count(&section, "successes", &raw.successes, successes, COUNT_MAX)?;
    half_open.share = section.or("share", &raw.share, half_open.share, fraction)?;
    half_open.deadline = time(&section, "deadline", &raw.deadline, half_open.deadline)?;
    Ok(())
}

/// Says what the rule says about itself, with the key's path and its place, if this level has it.
fn refuse_rule(section: &Section<'_>, raw: &CircuitSection, error: &RuleError) -> ConfigError {
    let given = given_for(raw, error.key);
    let value = given.and_then(Given::at).map_or_else(|| error.value.clone(), At::shown);
    let place: Option<Place> = given.and_then(Given::place);
    let problem = format!("{value} cannot work");
    section.refuse(error.key, place, &problem, &error.cure)
}

/// Finds what this level says about a key of the rule.
fn given_for<'a>(raw: &'a CircuitSection, key: &str) -> Option<&'a Given<Scalar>> {
    let (group, name) = key.split_once('.').unwrap_or(("", key));
    match group {
        "" => match name {
            "failure_threshold" => Some(&raw.failure_threshold),
            "failure_ratio" => Some(&raw.failure_ratio),
            "window" => Some(&raw.window),
            "min_requests" => Some(&raw.min_requests),
            _ => None,
        },
        "slow" => raw.slow.get().and_then(|slow| match name {
            "total" => Some(&slow.total),
            "first_token" => Some(&slow.first_token),
            "dedup" => Some(&slow.dedup),
            "min_tokens_per_second" => Some(&slow.min_tokens_per_second),
            "confirmations" => Some(&slow.confirmations),
            "p95.first_token" => slow.p95.get().map(|p95| &p95.first_token),
            "p95.total" => slow.p95.get().map(|p95| &p95.total),
            "relative" => Some(&slow.relative),
            _ => None,
        }),
        "open" => raw.open.get().and_then(|open| match name {
            "base" => Some(&open.base),
            "max" => Some(&open.max),
            "reset_after" => Some(&open.reset_after),
            _ => None,
        }),
        "half_open" => raw.half_open.get().and_then(|half_open| match name {
            "max_requests" => Some(&half_open.max_requests),
            "max_prompt_tokens" => Some(&half_open.max_prompt_tokens),
            "successes" => Some(&half_open.successes),
            "share" => Some(&half_open.share),
            "deadline" => Some(&half_open.deadline),
            _ => None,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_that_is_offered_exists() {
        for name in PRESETS {
            assert!(preset(name).is_ok(), "{name}");
        }
        assert_eq!(preset("slow_ap").unwrap_err().cure, "did you mean \"slow_api\"?");
    }
}
