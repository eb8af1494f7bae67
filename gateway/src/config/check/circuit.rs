//! What opens a circuit and how long an attempt may take: defaults, changed by each model and
//! endpoint.
//!
//! A limit that can never be reached is worse than none, because somebody relies on it. So the
//! settings of a circuit are checked together, and against the timeouts that could end an attempt
//! before the circuit sees it.
//!
//! Invariants: a preset begins afresh from that preset, whatever was inherited; every key given
//! beside it is put on top; a rule that is returned has passed its own check.

use std::time::Duration;

use breaker::{DEADLINE_MARGIN, Rule, RuleError};

use super::{choice, limit, time};
use crate::config::error::{ConfigError, did_you_mean};
use crate::config::file::{
    CircuitSection, Given, HalfOpenSection, OpenSection, Place, ProbeSection, Scalar, SlowSection,
    TimeoutsSection,
};
use crate::config::scalar::{Refusal, duration_text, fraction, shown, truth, whole};
use crate::config::section::Section;
use crate::config::{Probe, ProbeRoute, Timeouts};

/// The presets a rule can begin from, as `Rule::preset` knows them.
const PRESETS: [&str; 4] = ["default", "slow_api", "critical", "self_healing"];
/// A probe asks whether a model answers, not for an essay.
const PROBE_TOKENS_MAX: u32 = 1_024;

/// What a level of the configuration passes on to the level below.
#[derive(Clone)]
pub(super) struct Inherited {
    pub(super) rule: Rule,
    pub(super) probe: Probe,
    pub(super) timeouts: Timeouts,
}

impl Default for Inherited {
    fn default() -> Self {
        Self {
            rule: Rule::default(),
            probe: Probe {
                enabled: true,
                route: ProbeRoute::default(),
                first_token: Duration::from_secs(10),
                max_tokens: 16,
                prompt: "ping".to_owned(),
            },
            timeouts: Timeouts {
                connect: Duration::from_secs(5),
                first_byte: Duration::from_secs(30),
                first_token: None,
                idle: Duration::from_secs(60),
                total: Duration::from_secs(600),
            },
        }
    }
}

impl Inherited {
    /// Puts `circuit_breaker` and `timeouts` of `level` on top.
    ///
    /// # Errors
    /// A setting is refused, alone or together with the others.
    pub(super) fn overlaid(
        &self,
        level: &Section<'_>,
        circuit: &Given<Box<CircuitSection>>,
        timeouts: &Given<Box<TimeoutsSection>>,
    ) -> Result<Self, ConfigError> {
        let mut next = self.clone();
        if let Some(raw) = timeouts.get() {
            let section = level.child("timeouts", timeouts);
            next.timeouts = overlay_timeouts(&section, raw, &self.timeouts)?;
        }
        if let Some(raw) = circuit.get() {
            let section = level.child("circuit_breaker", circuit);
            next.rule = overlay_rule(&section, raw, &self.rule)?;
            next.probe = overlay_probe(&section, &raw.probe, &self.probe)?;
        }
        next.agree(level, circuit, timeouts)?;
        Ok(next)
    }

    /// Refuses a slow limit that no request lives long enough to cross.
    fn agree(
        &self,
        level: &Section<'_>,
        circuit: &Given<Box<CircuitSection>>,
        timeouts: &Given<Box<TimeoutsSection>>,
    ) -> Result<(), ConfigError> {
        let slow = circuit.get().and_then(|raw| raw.slow.get());
        let ends = timeouts.get();
        let totals = (Some(self.rule.slow.total), Some(self.timeouts.total));
        let first_tokens = (self.rule.slow.first_token, self.timeouts.first_token);
        let pairs = [
            (
                "total",
                totals,
                slow.and_then(|raw| raw.total.place()),
                ends.and_then(|raw| raw.total.place()),
            ),
            (
                "first_token",
                first_tokens,
                slow.and_then(|raw| raw.first_token.place()),
                ends.and_then(|raw| raw.first_token.place()),
            ),
        ];
        for (key, limits, slow_place, end_place) in pairs {
            let (Some(slow), Some(end)) = limits else {
                continue;
            };
            if slow < end {
                continue;
            }
            let path = format!("circuit_breaker.slow.{key}");
            let (slow, end) = (duration_text(slow), duration_text(end));
            let problem = format!("{slow} is never seen, timeouts.{key} ends the request at {end}");
            let cure = format!("set it below {end} or raise timeouts.{key}");
            return Err(level.refuse(&path, slow_place.or(end_place), &problem, &cure));
        }
        Ok(())
    }
}

fn overlay_timeouts(
    section: &Section<'_>,
    raw: &TimeoutsSection,
    inherited: &Timeouts,
) -> Result<Timeouts, ConfigError> {
    let next = Timeouts {
        connect: time(section, "connect", &raw.connect, inherited.connect)?,
        first_byte: time(section, "first_byte", &raw.first_byte, inherited.first_byte)?,
        first_token: limit(section, "first_token", &raw.first_token, inherited.first_token)?,
        idle: time(section, "idle", &raw.idle, inherited.idle)?,
        total: time(section, "total", &raw.total, inherited.total)?,
    };
    // Only what is written here is held against the total: whoever shortens the total alone need
    // not repeat every limit within it.
    let parts = [
        ("connect", &raw.connect, Some(next.connect)),
        ("first_byte", &raw.first_byte, Some(next.first_byte)),
        ("first_token", &raw.first_token, next.first_token),
        ("idle", &raw.idle, Some(next.idle)),
    ];
    for (key, given, value) in parts {
        if given.get().is_some() && value.is_some_and(|value| value > next.total) {
            let total = duration_text(next.total);
            let problem = format!("it is longer than timeouts.total ({total}) and never reached");
            let cure = format!("use at most {total} or raise timeouts.total");
            return Err(section.refuse(key, given.place(), &problem, &cure));
        }
    }
    Ok(next)
}

fn overlay_probe(
    circuit: &Section<'_>,
    given: &Given<ProbeSection>,
    inherited: &Probe,
) -> Result<Probe, ConfigError> {
    let none = ProbeSection::default();
    let raw = given.get().unwrap_or(&none);
    let section = circuit.child("probe", given);
    let routes = [
        ("chat", ProbeRoute::Chat),
        ("completions", ProbeRoute::Completions),
        ("embeddings", ProbeRoute::Embeddings),
    ];
    Ok(Probe {
        enabled: section.or("enabled", &raw.enabled, inherited.enabled, truth)?,
        route: section.or("route", &raw.route, inherited.route, |text| choice(text, &routes))?,
        first_token: time(&section, "first_token", &raw.first_token, inherited.first_token)?,
        max_tokens: section.or("max_tokens", &raw.max_tokens, inherited.max_tokens, |text| {
            whole(text, 1..=PROBE_TOKENS_MAX)
        })?,
        prompt: section
            .or("prompt", &raw.prompt, inherited.prompt.clone(), |text| Ok(text.to_owned()))?,
    })
}

fn overlay_rule(
    section: &Section<'_>,
    raw: &CircuitSection,
    inherited: &Rule,
) -> Result<Rule, ConfigError> {
    let mut rule = section.or("preset", &raw.preset, inherited.clone(), preset)?;
    let failures = rule.failure_threshold;
    rule.failure_threshold = count(section, "failure_threshold", &raw.failure_threshold, failures)?;
    let ratio = rule.failure_ratio;
    rule.failure_ratio = section.or("failure_ratio", &raw.failure_ratio, ratio, fraction)?;
    rule.window = time(section, "window", &raw.window, rule.window)?;
    let requests = rule.min_requests;
    rule.min_requests = count(section, "min_requests", &raw.min_requests, requests)?;
    overlay_slow(section, &raw.slow, &mut rule)?;
    overlay_open(section, &raw.open, &mut rule)?;
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
    Rule::preset(text).ok_or_else(|| Refusal::new("is no preset", did_you_mean(text, &PRESETS)))
}

fn count(
    section: &Section<'_>,
    key: &str,
    given: &Given<Scalar>,
    default: u32,
) -> Result<u32, ConfigError> {
    // The bounds are the rule's own and belong to its check.
    section.or(key, given, default, |text| whole(text, 0..=u32::MAX))
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
    slow.dedup = time(&section, "dedup", &raw.dedup, slow.dedup)?;
    let confirmations = slow.confirmations;
    slow.confirmations = count(&section, "confirmations", &raw.confirmations, confirmations)?;
    Ok(())
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
    half_open.max_requests = count(&section, "max_requests", &raw.max_requests, requests)?;
    half_open.max_prompt_tokens = section.or(
        "max_prompt_tokens",
        &raw.max_prompt_tokens,
        half_open.max_prompt_tokens,
        |text| whole(text, 0..=u64::MAX),
    )?;
    half_open.successes = count(&section, "successes", &raw.successes, half_open.successes)?;
    half_open.deadline = time(&section, "deadline", &raw.deadline, half_open.deadline)?;
    Ok(())
}

/// Says what the rule says about itself, with the key's path and its place, if this level has it.
fn refuse_rule(section: &Section<'_>, raw: &CircuitSection, error: &RuleError) -> ConfigError {
    let given = given_for(raw, error.key);
    let value =
        given.and_then(Given::get).map_or_else(|| error.value.clone(), |text| shown(&text.0));
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
            "confirmations" => Some(&slow.confirmations),
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

    #[test]
    fn the_defaults_agree_with_each_other() {
        let defaults = Inherited::default();
        assert!(defaults.rule.check().is_ok());
        assert!(defaults.rule.slow.total < defaults.timeouts.total);
    }
}
