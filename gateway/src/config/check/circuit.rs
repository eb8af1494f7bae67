//! What opens a circuit and how long an attempt may take: defaults, changed by each model and
//! endpoint.
//!
//! A limit that can never be reached is worse than none, because somebody relies on it. So the
//! settings of a circuit are checked together, and against the timeouts that could end an attempt
//! before the circuit sees it.
//!
//! Invariants: a rule that is handed on has passed its own check; its ladder begins with a probe
//! exactly if the endpoint has one.

use std::time::Duration;

use breaker::{Recovery, Rule};

use super::{limit, time};
use crate::config::error::ConfigError;
use crate::config::file::{CircuitSection, Given, SlowSection, TimeoutsSection};
use crate::config::scalar::duration_text;
use crate::config::section::Section;
use crate::config::{Probe, StatusCodes, TenantScope, Timeouts};

mod codes;
pub(super) mod probe;
mod rule;
mod tenant;

pub(super) use self::tenant::TENANTS_SUM_MAX;

/// What a level of the configuration passes on to the level below.
#[derive(Clone)]
pub(super) struct Inherited {
    pub(super) rule: Rule,
    pub(super) probe: Probe,
    pub(super) timeouts: Timeouts,
    pub(super) codes: StatusCodes,
    pub(super) tenants: Option<TenantScope>,
}

impl Default for Inherited {
    fn default() -> Self {
        Self {
            rule: Rule::default(),
            probe: Probe::default(),
            timeouts: Timeouts {
                connect: Duration::from_secs(5),
                first_byte: Duration::from_secs(30),
                first_token: None,
                idle: Duration::from_secs(60),
                total: Duration::from_secs(600),
            },
            codes: StatusCodes::default(),
            tenants: None,
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
            next.rule = rule::overlay(&section, raw, &self.rule)?;
            next.probe = probe::overlay(&section, &raw.probe, &self.probe)?;
            next.codes = codes::overlay(&section, raw, &self.codes)?;
            next.tenants = tenant::overlay(&section, raw, self.tenants.as_ref())?;
        }
        if let Recovery::Staged { probe, ramp: _ } = &mut next.rule.recovery {
            *probe = next.probe.enabled;
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
        let none = SlowSection::default();
        let raw = circuit.get().and_then(|raw| raw.slow.get()).unwrap_or(&none);
        let no_ends = TimeoutsSection::default();
        let ends = timeouts.get().map_or(&no_ends, Box::as_ref);
        let total = ("total", Some(self.timeouts.total), ends.total.place());
        let first_token = ("first_token", self.timeouts.first_token, ends.first_token.place());
        let slow = &self.rule.slow;
        self.agree_first_byte(level, raw, ends)?;
        let p95_place = raw.p95.get().and_then(|raw| raw.first_token.place());
        let p95 = slow.p95.and_then(|p95| p95.first_token);
        // The other limits end below `slow.total` or `slow.first_token`, by the rule's own check.
        let pairs = [
            ("total", Some(slow.total), raw.total.place(), total),
            ("first_token", slow.first_token, raw.first_token.place(), first_token),
            ("p95.first_token", p95, p95_place, first_token),
            ("p95.first_token", p95, p95_place, total),
        ];
        for (key, slow, slow_place, (end_key, end, end_place)) in pairs {
            let (Some(slow), Some(end)) = (slow, end) else {
                continue;
            };
            if slow < end {
                continue;
            }
            let path = format!("circuit_breaker.slow.{key}");
            let (slow, end) = (duration_text(slow), duration_text(end));
            let problem =
                format!("{slow} is never seen, timeouts.{end_key} ends the request at {end}");
            let cure = format!("set it below {end} or raise timeouts.{end_key}");
            return Err(level.refuse(&path, slow_place.or(end_place), &problem, &cure));
        }
        Ok(())
    }
    /// As `agree`, where the first token has no limit of its own and is waited for as long as the
    /// first byte. The default of `slow.first_token` is nobody's wish, so that whoever shortens the
    /// wait alone need not repeat it.
    fn agree_first_byte(
        &self,
        level: &Section<'_>,
        raw: &SlowSection,
        ends: &TimeoutsSection,
    ) -> Result<(), ConfigError> {
        if self.timeouts.first_token.is_some() {
            return Ok(());
        }
        let end = self.timeouts.first_byte;
        let end_place = ends.first_byte.place().or(ends.first_token.place());
        let slow = &self.rule.slow;
        let is_default = slow.first_token == Rule::default().slow.first_token;
        let place = raw.first_token.place().or(end_place.filter(|_| !is_default));
        let beyond = slow.first_token.filter(|limit| *limit > end);
        let p95_place = raw.p95.get().and_then(|raw| raw.first_token.place()).or(end_place);
        let p95 = slow.p95.and_then(|p95| p95.first_token).filter(|limit| *limit >= end);
        // At the very end a slow limit is still seen, while times reach up to it and not beyond.
        let pairs = [
            ("first_token", place, beyond, "at most"),
            ("p95.first_token", p95_place, p95, "less than"),
        ];
        for (key, place, limit, bound) in pairs {
            let (Some(place), Some(limit)) = (place, limit) else {
                continue;
            };
            let (limit, end) = (duration_text(limit), duration_text(end));
            let problem =
                format!("{limit} is never seen, timeouts.first_byte ends the request at {end}");
            let cure = format!("use {bound} {end}, or set timeouts.first_token");
            let path = format!("circuit_breaker.slow.{key}");
            return Err(level.refuse(&path, Some(place), &problem, &cure));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_agree_with_each_other() {
        let defaults = Inherited::default();
        assert!(defaults.rule.check().is_ok());
        assert!(defaults.rule.slow.total < defaults.timeouts.total);
    }
}
