//! The words of the stories and what they mean to the breaker.

use std::time::Duration;

use breaker::{
    Cause, Errand, LAZY_TTL, Mode, Outcome, P95Rule, Recovery, Refusal, Rule, SlowKind, Timing,
};

/// The rule a story begins with: the default with nothing but the canary rung, which admits every
/// small request that asks, so that a story need not climb a ladder that it is not about.
pub(crate) fn plain_rule() -> Rule {
    let recovery = Recovery::Staged { probe: false, ramp: Duration::ZERO };
    let mut rule = Rule { recovery, ..Rule::default() };
    rule.half_open.share = 1.0;
    rule
}

pub(crate) fn is_name(word: &str) -> bool {
    word.len() == 1 && word.chars().all(|letter| letter.is_ascii_uppercase())
}

/// Reads `a request`, `4 forced requests`, `a request of 300 tokens`, and returns the rest.
pub(crate) fn errand(text: &str) -> Result<(usize, Errand, &str), String> {
    let (count, text) = text.split_once(' ').ok_or("how many?")?;
    let count = if count == "a" { 1 } else { count.parse().map_err(|_| "how many?")? };
    for (kind, errand) in [
        ("forced request", Errand::PassThrough),
        ("request", Errand::Request { prompt_tokens: 100 }),
        ("probe", Errand::Probe),
    ] {
        let Some(rest) = text.strip_prefix(kind) else {
            continue;
        };
        let rest = rest.strip_prefix('s').unwrap_or(rest).trim_start();
        let Some(size) = rest.strip_prefix("of ") else {
            return Ok((count, errand, rest));
        };
        let (tokens, rest) = size.split_once(" tokens ").ok_or("how many tokens?")?;
        let prompt_tokens = tokens.parse().map_err(|_| "how many tokens?")?;
        return Ok((count, Errand::Request { prompt_tokens }, rest));
    }
    Err("what kind of request?".to_owned())
}

/// Reads `succeeds (first token 2s, total 5s)`, `fails (500, weight 0.5)`, `is slow (total)`,
/// `is neutral (a remark)`; the latter three can end in `, total 5s` too.
pub(crate) fn outcome(deed: &str) -> Result<(Outcome, Option<Timing>), String> {
    let (deed, remark) = deed.split_once(" (").unwrap_or((deed, ""));
    let remark = remark.trim_end_matches(')');
    if let "succeeds" | "succeed" = deed {
        return Ok((Outcome::Success, timing(remark)?));
    }
    let (remark, total) = remark.split_once(", total ").unwrap_or((remark, ""));
    let outcome = match deed {
        "is neutral" | "are neutral" => Outcome::Neutral,
        "is slow" | "are slow" => Outcome::Slow(slow_kind(remark)?),
        "fails" | "fail" => {
            let (word, weight) = remark.split_once(", weight ").unwrap_or((remark, "1"));
            let weight = weight.parse().map_err(|_| "what weight?")?;
            Outcome::Fault { weight, cause: cause(word)? }
        }
        _ => return Err(format!("what does {deed:?} mean?")),
    };
    let total = if total.is_empty() { None } else { Some(duration(total)?) };
    Ok((outcome, total.map(|total| Timing { first_token: None, total })))
}

/// Reads `first token 2s, total 5s` or `total 5s`.
fn timing(remark: &str) -> Result<Option<Timing>, String> {
    if remark.is_empty() {
        return Ok(None);
    }
    let (first_token, total) = match remark.split_once(", ") {
        Some((first_token, total)) => {
            let time = first_token.strip_prefix("first token ").ok_or("what time?")?;
            (Some(duration(time)?), total)
        }
        None => (None, remark),
    };
    let total = duration(total.strip_prefix("total ").ok_or("what time?")?)?;
    Ok(Some(Timing { first_token, total }))
}

fn cause(word: &str) -> Result<Cause, String> {
    match word {
        "refused" => Ok(Cause::Refused),
        "timeout" => Ok(Cause::Timeout),
        "malformed" => Ok(Cause::Malformed),
        "cut" => Ok(Cause::Cut),
        "other" => Ok(Cause::Other),
        code => Ok(Cause::Status(code.parse().map_err(|_| "what fault?")?)),
    }
}

pub(crate) fn slow_kind(word: &str) -> Result<SlowKind, String> {
    match word {
        "total" => Ok(SlowKind::Total),
        "first token" => Ok(SlowKind::FirstToken),
        "tokens per second" => Ok(SlowKind::TokensPerSecond),
        _ => Err("slow in what way?".to_owned()),
    }
}

pub(crate) fn refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Open { remaining } => {
            assert!(!remaining.is_zero(), "an open circuit says for how long");
            "open"
        }
        Refusal::HalfOpenFull => "full",
        Refusal::PromptTooLarge => "too large",
        Refusal::ShareSpent => "share spent",
        Refusal::AwaitsProbe => "awaits a probe",
        Refusal::Held => "held",
    }
}

pub(crate) fn set(rule: &mut Rule, key: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u32>().map_err(|_| format!("{value:?} is no number"));
    let fraction = || value.parse::<f64>().map_err(|_| format!("{value:?} is no number"));
    match key {
        "failure_threshold" => rule.failure_threshold = number()?,
        "min_requests" => rule.min_requests = number()?,
        "window" => rule.window = duration(value)?,
        "failure_ratio" => rule.failure_ratio = fraction()?,
        "slow.total" => rule.slow.total = duration(value)?,
        "slow.first_token" => rule.slow.first_token = Some(duration(value)?),
        "slow.dedup" => rule.slow.dedup = duration(value)?,
        "slow.confirmations" => rule.slow.confirmations = number()?,
        "slow.min_tokens_per_second" => rule.slow.min_tokens_per_second = Some(fraction()?),
        "open.base" => rule.open.base = duration(value)?,
        "open.max" => rule.open.max = duration(value)?,
        "half_open.max_requests" => rule.half_open.max_requests = number()?,
        "open.reset_after" => rule.open.reset_after = duration(value)?,
        "half_open.max_prompt_tokens" => rule.half_open.max_prompt_tokens = number()?.into(),
        "half_open.deadline" => rule.half_open.deadline = duration(value)?,
        "half_open.successes" => rule.half_open.successes = number()?,
        "half_open.share" => rule.half_open.share = fraction()?,
        "slow.relative" => rule.slow.relative = Some(fraction()?),
        "slow.p95.first_token" => {
            let total = rule.slow.p95.and_then(|p95| p95.total);
            rule.slow.p95 = Some(P95Rule { first_token: Some(duration(value)?), total });
        }
        "slow.p95.total" => {
            let first_token = rule.slow.p95.and_then(|p95| p95.first_token);
            rule.slow.p95 = Some(P95Rule { first_token, total: Some(duration(value)?) });
        }
        "mode" => rule.mode = mode(value)?,
        "recovery" | "probe" | "ramp.duration" | "open.ttl" => set_recovery(rule, key, value)?,
        _ => return Err("no such setting".to_owned()),
    }
    Ok(())
}

fn mode(word: &str) -> Result<Mode, String> {
    match word {
        "enforce" => Ok(Mode::Enforce),
        "shadow" => Ok(Mode::Shadow),
        "off" => Ok(Mode::Off),
        _ => Err("no such mode".to_owned()),
    }
}

fn set_recovery(rule: &mut Rule, key: &str, value: &str) -> Result<(), String> {
    rule.recovery = match (key, value, rule.recovery) {
        ("recovery", "lazy", _) => Recovery::Lazy { ttl: LAZY_TTL },
        ("recovery", "staged", _) => Recovery::default(),
        ("open.ttl", ttl, Recovery::Lazy { .. }) => Recovery::Lazy { ttl: duration(ttl)? },
        ("probe", "on", Recovery::Staged { ramp, .. }) => Recovery::Staged { probe: true, ramp },
        ("probe", "off", Recovery::Staged { ramp, .. }) => Recovery::Staged { probe: false, ramp },
        ("ramp.duration", ramp, Recovery::Staged { probe, .. }) => {
            Recovery::Staged { probe, ramp: duration(ramp)? }
        }
        _ => return Err("this recovery has no such setting".to_owned()),
    };
    Ok(())
}

/// `is none`, `is about 2s`: within the six per cent of the histogram.
pub(crate) fn claim_about(got: Option<Duration>, expected: &str) -> Result<(), String> {
    let is_true = match (got, expected.strip_prefix("about ")) {
        (None, _) => expected == "none",
        (Some(_), None) => false,
        (Some(got), Some(nominal)) => {
            let nominal = duration(nominal)?;
            (nominal.mul_f64(0.94)..=nominal.mul_f64(1.06)).contains(&got)
        }
    };
    if is_true { Ok(()) } else { Err(format!("it is {got:?}")) }
}

/// Reads nothing, ` after 1 success`, ` after 3 successes`.
pub(crate) fn successes(text: &str) -> Result<u32, String> {
    let Some(count) = text.strip_prefix(" after ") else {
        return if text.is_empty() { Ok(0) } else { Err("after what?".to_owned()) };
    };
    let count = count.strip_suffix(" successes").or(count.strip_suffix(" success"));
    count.ok_or("after what?")?.parse().map_err(|_| "how many?".to_owned())
}

/// Takes `the pooled requests are 4` and `the gathered streak is 4` apart.
pub(crate) fn about_evidence(claim: &str) -> Option<(&str, &str)> {
    let claim = claim.strip_prefix("the ")?;
    let is_evidence = claim.starts_with("pooled ") || claim.starts_with("gathered ");
    is_evidence.then(|| claim.split_once(" is ").or(claim.split_once(" are "))).flatten()
}

/// Tells `1s 7s`, or `none`.
pub(crate) fn ages<'a>(ages: impl Iterator<Item = &'a Duration>) -> String {
    let ages: Vec<String> = ages.map(|age| format!("{age:?}").replace("0ns", "0s")).collect();
    if ages.is_empty() { "none".to_owned() } else { ages.join(" ") }
}

pub(crate) fn age(age: Option<Duration>) -> String {
    age.map_or("none".to_owned(), |age| format!("{age:?}"))
}

/// Reads one number with one unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    for (unit, milliseconds) in [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)] {
        if let Some(Ok(number)) = text.strip_suffix(unit).map(str::parse::<u64>) {
            return Ok(Duration::from_millis(number * milliseconds));
        }
    }
    Err(format!("{text:?} is no time"))
}
