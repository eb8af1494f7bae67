//! `retry` and `failover`: after which failures a request is tried again, and where.
//!
//! The two lists answer different questions: whether the same endpoint is asked once more, and whether
//! another one is asked at all. A status that no endpoint would ever bring there is refused, because
//! whoever wrote it relies on it.
//!
//! Invariants: every status of a list has an effect at one endpoint at least.

use std::ops::RangeInclusive;

use crate::config::error::ConfigError;
use crate::config::file::{FailoverSection, File, Given, List, RetrySection, Scalar};
use crate::config::scalar::{Refusal, fraction, whole};
use crate::config::section::Section;
use crate::config::{FailoverOn, Pool, RETRY_ON_MAX, Retry, RetryOn, StatusClass};

const ATTEMPTS: u32 = 3;
/// Beyond ten a failing pool multiplies the load that made it fail.
const ATTEMPTS_MAX: u32 = 10;
/// A fifth more load is what a pool that loses one of its endpoints bears.
const BUDGET: f64 = 0.2;
const BUDGET_FLOOR: u32 = 3;
/// More in any case leaves nothing of the budget.
const BUDGET_FLOOR_MAX: u32 = 1_000;
/// A status that is the client's own will be the same again.
const RETRY_CODES: RangeInclusive<u16> = 500..=599;
/// What is no error is no failure.
const FAILOVER_CODES: RangeInclusive<u16> = 400..=599;
const ONE_ATTEMPT: &str = "one attempt leaves nothing for it";

/// Reads `retry` and `failover`; `pools` say what a status is to their endpoints.
///
/// # Errors
/// A setting is refused, alone or because another leaves it without effect.
pub(super) fn retry(root: &Section<'_>, file: &File, pools: &[Pool]) -> Result<Retry, ConfigError> {
    let section = root.child("retry", &file.retry);
    let none = RetrySection::default();
    let raw = file.retry.get().unwrap_or(&none);
    let max_attempts = section
        .or("max_attempts", &raw.max_attempts, ATTEMPTS, |text| whole(text, 1..=ATTEMPTS_MAX))?;
    let has_class = |code: u16, is_meant: &dyn Fn(StatusClass) -> bool| {
        let mut endpoints = pools.iter().flat_map(|pool| &pool.endpoints);
        endpoints.any(|endpoint| is_meant(endpoint.codes.class(code)))
    };
    let is_fault = |code: u16| has_class(code, &|class| class == StatusClass::Fault);
    let on = retry_on(&section, &raw.on, &is_fault)?;
    if max_attempts == 1 && !raw.on.entries().is_empty() {
        let cure = "remove it or raise max_attempts";
        return Err(section.refuse("on", raw.on.place(), ONE_ATTEMPT, cure));
    }
    let mut on = if max_attempts == 1 { RetryOn { refused: false, codes: Vec::new() } } else { on };
    on.codes.retain(|code| is_fault(*code));
    let is_ours = |code: u16| has_class(code, &|class| class != StatusClass::Neutral);
    Ok(Retry {
        max_attempts,
        budget: section.or("budget", &raw.budget, BUDGET, share)?,
        budget_floor: section.or("budget_floor", &raw.budget_floor, BUDGET_FLOOR, |text| {
            whole(text, 0..=BUDGET_FLOOR_MAX)
        })?,
        on,
        failover_on: failover(root, &file.failover, max_attempts, &is_ours)?,
    })
}

fn share(text: &str) -> Result<f64, Refusal> {
    let share = fraction(text)?;
    if (0.0..=1.0).contains(&share) {
        return Ok(share);
    }
    Err(Refusal::new("is out of range", "use 0 to 1, a share of the requests"))
}

/// Reads `retry.on`: the word `refused`, and statuses that are a fault somewhere.
fn retry_on(
    section: &Section<'_>,
    given: &Given<List<Scalar, RETRY_ON_MAX>>,
    is_fault: &dyn Fn(u16) -> bool,
) -> Result<RetryOn, ConfigError> {
    if given.get().is_none() {
        return Ok(RetryOn { refused: true, codes: vec![502, 503, 529] });
    }
    let mut on = RetryOn { refused: false, codes: Vec::new() };
    for (index, entry) in given.entries().iter().enumerate() {
        let code = section.entry("on", index, entry, |text| match text {
            "refused" => Ok(None),
            _ => whole(text, RETRY_CODES).map(Some).map_err(|refusal| {
                let cure = "write refused, or a status of 500 to 599";
                Refusal::new("is no failure to retry on", cure).of(refusal.form)
            }),
        })?;
        if let Some(code) = code.filter(|code| !is_fault(*code)) {
            let problem = format!("{code} is a fault of no endpoint, so that it is never retried");
            let cure = "remove it, or take it out of the list that says so";
            return Err(section.refuse(&format!("on[{index}]"), Some(entry.place), &problem, cure));
        }
        on.refused |= code.is_none();
        on.codes.extend(code);
    }
    Ok(on)
}

/// One entry of `failover.on`.
#[derive(Clone, Copy)]
enum Failure {
    Refused,
    Cut,
    Timeout,
    Malformed,
    Auth,
    Status(u16),
}

/// Reads `failover`: every failure where it is left out, else those that are named.
fn failover(
    root: &Section<'_>,
    given: &Given<FailoverSection>,
    max_attempts: u32,
    is_ours: &dyn Fn(u16) -> bool,
) -> Result<FailoverOn, ConfigError> {
    let section = root.child("failover", given);
    let Some(raw) = given.get().filter(|raw| raw.on.get().is_some()) else {
        return Ok(FailoverOn::default());
    };
    if max_attempts == 1 && !raw.on.entries().is_empty() {
        let cure = "remove it or raise retry.max_attempts";
        return Err(section.refuse("on", raw.on.place(), ONE_ATTEMPT, cure));
    }
    let mut codes = Vec::new();
    let mut on = FailoverOn {
        refused: false,
        cut: false,
        timeout: false,
        malformed: false,
        auth: false,
        codes: None,
    };
    for (index, entry) in raw.on.entries().iter().enumerate() {
        match section.entry("on", index, entry, failure)? {
            Failure::Refused => on.refused = true,
            Failure::Cut => on.cut = true,
            Failure::Timeout => on.timeout = true,
            Failure::Malformed => on.malformed = true,
            Failure::Auth => on.auth = true,
            Failure::Status(code) if is_ours(code) => codes.push(code),
            Failure::Status(code) => {
                let key = format!("on[{index}]");
                let problem = format!(
                    "{code} is the client's own at every endpoint, so that it is passed on"
                );
                let cure = "remove it, or name it in a list that says otherwise";
                return Err(section.refuse(&key, Some(entry.place), &problem, cure));
            }
        }
    }
    on.codes = Some(codes);
    Ok(on)
}

fn failure(text: &str) -> Result<Failure, Refusal> {
    let words = [
        ("refused", Failure::Refused),
        ("cut", Failure::Cut),
        ("timeout", Failure::Timeout),
        ("malformed", Failure::Malformed),
        ("auth", Failure::Auth),
    ];
    if let Some((_, failure)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*failure);
    }
    whole(text, FAILOVER_CODES).map(Failure::Status).map_err(|refusal| {
        let cure = "write refused, cut, timeout, malformed, auth, or a status of 400 to 599";
        Refusal::new("is no failure to go elsewhere on", cure).of(refusal.form)
    })
}
