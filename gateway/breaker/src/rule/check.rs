//! Whether settings can work, alone and together, and what to write if they cannot.
//!
//! [`Rule::check`] refuses what is impossible or defeats itself before it reaches a breaker, so that
//! a mistake is one line at start instead of an endpoint that never opens or never comes back.
//!
//! Invariant: a refusal names the setting, its value and the cure.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::rule::{
    DEADLINE_MARGIN, HALF_OPEN_REQUESTS_MAX, P95Rule, Recovery, Rule, SLOW_CONFIRMATIONS_MAX,
};

/// The longest duration of any setting; more is a slip of the pen.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest duration of any setting, well above the resolution of a tick.
const DURATION_MIN: Duration = Duration::from_millis(1);

/// The largest count of any setting that has no bound of its own.
pub const COUNT_MAX: u32 = 10_000;

/// The fastest rate that can be asked for; no model writes as fast.
const TOKENS_PER_SECOND_MAX: f64 = 100_000.0;

/// The largest multiple of its siblings' time; an endpoint beyond it trips on any other limit.
const RELATIVE_MAX: f64 = 100.0;

/// `min_requests` up to this value is always acceptable, so that whoever lowers the failure
/// threshold alone need not lower it too.
const MIN_REQUESTS_ALWAYS_FINE: u32 = 10;

/// How many times the failure threshold `min_requests` may be; beyond it, an endpoint with little
/// traffic never has enough requests for its failure ratio to be looked at.
const MIN_REQUESTS_PER_THRESHOLD: u32 = 3;

/// The most that `min_requests` can be, beside the largest failure threshold.
pub const MIN_REQUESTS_MAX: u32 = COUNT_MAX * MIN_REQUESTS_PER_THRESHOLD;

impl Rule {
    /// Checks every setting and every pair of settings that could defeat each other.
    ///
    /// # Errors
    /// The first setting that is impossible or self-defeating, with its value and what to do.
    pub fn check(&self) -> Result<(), RuleError> {
        check_count("failure_threshold", self.failure_threshold, COUNT_MAX)?;
        check_share("failure_ratio", self.failure_ratio, "0.5")?;
        check_duration("window", self.window)?;
        let most = self
            .failure_threshold
            .saturating_mul(MIN_REQUESTS_PER_THRESHOLD)
            .max(MIN_REQUESTS_ALWAYS_FINE);
        if !(1..=most).contains(&self.min_requests) {
            let cure = format!(
                "write a whole number from 1 to {most}, or raise failure_threshold ({}): with little \
                 traffic the window would never hold so many",
                self.failure_threshold
            );
            return Err(RuleError::new("min_requests", self.min_requests, cure));
        }
        self.check_slow()?;
        self.check_rates()?;
        self.check_open()?;
        self.check_recovery()?;
        self.check_half_open()
    }

    fn check_slow(&self) -> Result<(), RuleError> {
        let slow = &self.slow;
        check_duration("slow.total", slow.total)?;
        if let Some(first_token) = slow.first_token {
            check_duration("slow.first_token", first_token)?;
            if first_token >= slow.total {
                let cure = format!("make it less than slow.total ({:?})", slow.total);
                return Err(RuleError::duration("slow.first_token", first_token, cure));
            }
        }
        check_duration("slow.dedup", slow.dedup)?;
        check_count("slow.confirmations", slow.confirmations, SLOW_CONFIRMATIONS_MAX)?;
        // The first piece must still count when the last one comes, or none ever trips.
        let spread = slow.dedup.saturating_mul(slow.confirmations.saturating_sub(1));
        if spread >= self.window {
            let cure = format!(
                "{} pieces {:?} apart do not fit into the window ({:?}): ask for fewer, shorten \
                 slow.dedup or widen the window",
                slow.confirmations, slow.dedup, self.window
            );
            return Err(RuleError::new("slow.confirmations", slow.confirmations, cure));
        }
        Ok(())
    }

    /// The limits that compare many requests with each other, or an answer with its length.
    fn check_rates(&self) -> Result<(), RuleError> {
        let slow = &self.slow;
        // A comparison with NaN is false, so it is refused here and below as well.
        if let Some(rate) = slow.min_tokens_per_second
            && !(rate > 0.0 && rate <= TOKENS_PER_SECOND_MAX)
        {
            let cure = "write a rate above 0 and at most 100000, for example 5";
            return Err(RuleError::new("slow.min_tokens_per_second", rate, cure));
        }
        if let Some(multiple) = slow.relative
            && !(multiple > 1.0 && multiple <= RELATIVE_MAX)
        {
            let cure = "write a multiple above 1 and at most 100, for example 3";
            return Err(RuleError::new("slow.relative", multiple, cure));
        }
        let Some(P95Rule { first_token, total }) = slow.p95 else {
            return Ok(());
        };
        if first_token.is_none() && total.is_none() {
            let cure = "name first_token, total or both, or remove slow.p95";
            return Err(RuleError::new("slow.p95", "{}", cure));
        }
        check_p95("slow.p95.first_token", first_token, "slow.first_token", slow.first_token)?;
        check_p95("slow.p95.total", total, "slow.total", Some(slow.total))
    }

    fn check_open(&self) -> Result<(), RuleError> {
        let open = &self.open;
        check_duration("open.base", open.base)?;
        check_duration("open.max", open.max)?;
        if open.base > open.max {
            let cure = format!("make it at most open.max ({:?})", open.max);
            return Err(RuleError::duration("open.base", open.base, cure));
        }
        check_duration("open.reset_after", open.reset_after)
    }

    fn check_recovery(&self) -> Result<(), RuleError> {
        match self.recovery {
            Recovery::Staged { probe: _, ramp } if ramp.is_zero() => Ok(()),
            Recovery::Staged { probe: _, ramp } => check_duration("ramp.duration", ramp),
            Recovery::Lazy { ttl } => check_duration("open.ttl", ttl),
        }
    }

    fn check_half_open(&self) -> Result<(), RuleError> {
        let half_open = &self.half_open;
        check_count("half_open.max_requests", half_open.max_requests, HALF_OPEN_REQUESTS_MAX)?;
        if half_open.max_prompt_tokens == 0 {
            let cure = "write at least 1: no client's request is that short";
            return Err(RuleError::new("half_open.max_prompt_tokens", 0, cure));
        }
        check_count("half_open.successes", half_open.successes, COUNT_MAX)?;
        check_share("half_open.share", half_open.share, "0.05")?;
        check_duration("half_open.deadline", half_open.deadline)?;
        if half_open.deadline <= self.slow.total {
            let total = self.slow.total;
            let cure = format!(
                "make it more than slow.total ({total:?}), for example {:?}: a request within its \
                 limits must not be taken for lost",
                total.saturating_add(DEADLINE_MARGIN)
            );
            return Err(RuleError::duration("half_open.deadline", half_open.deadline, cure));
        }
        Ok(())
    }
}

/// A setting that was refused: which, its value, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The dotted path of the setting below the rule, for example `slow.confirmations`.
    pub key: &'static str,
    /// The refused value.
    pub value: String,
    /// What to write instead.
    pub cure: String,
}

impl RuleError {
    fn new(key: &'static str, value: impl fmt::Display, cure: impl Into<String>) -> Self {
        RuleError { key, value: value.to_string(), cure: cure.into() }
    }

    fn duration(key: &'static str, value: Duration, cure: impl Into<String>) -> Self {
        RuleError::new(key, format_args!("{value:?}"), cure)
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} = {}: {}", self.key, self.value, self.cure)
    }
}

impl Error for RuleError {}

fn check_count(key: &'static str, value: u32, most: u32) -> Result<(), RuleError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(RuleError::new(key, value, format!("write a whole number from 1 to {most}")))
}

fn check_duration(key: &'static str, value: Duration) -> Result<(), RuleError> {
    if (DURATION_MIN..=DURATION_MAX).contains(&value) {
        return Ok(());
    }
    Err(RuleError::duration(key, value, "write a duration from 1ms to 24h"))
}

fn check_share(key: &'static str, value: f64, example: &str) -> Result<(), RuleError> {
    // A comparison with NaN is false, so it is refused here as well.
    if value > 0.0 && value <= 1.0 {
        return Ok(());
    }
    let cure = format!("write a share above 0 and at most 1, for example {example}");
    Err(RuleError::new(key, value, cure))
}

/// A limit for 95 of 100 requests that is not below the limit for each never opens first.
fn check_p95(
    key: &'static str,
    value: Option<Duration>,
    other_key: &str,
    other: Option<Duration>,
) -> Result<(), RuleError> {
    let Some(value) = value else {
        return Ok(());
    };
    check_duration(key, value)?;
    match other {
        Some(other) if value >= other => {
            let cure = format!("make it less than {other_key} ({other:?})");
            Err(RuleError::duration(key, value, cure))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Mode;

    const PRESETS: [&str; 4] = ["default", "slow_api", "critical", "self_healing"];

    fn refused(change: impl FnOnce(&mut Rule)) -> RuleError {
        let mut rule = Rule::default();
        change(&mut rule);
        rule.check().unwrap_err()
    }

    fn p95(first_token: Option<Duration>, total: Option<Duration>) -> Option<P95Rule> {
        Some(P95Rule { first_token, total })
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn every_preset_passes_the_check() {
        for name in PRESETS {
            assert_eq!(Rule::preset(name).unwrap().check(), Ok(()), "{name}");
        }
        assert_eq!(Rule::preset("Default"), None);
    }

    #[test]
    fn a_preset_is_its_threshold_and_its_cool_down() {
        let told = PRESETS.map(|name| {
            let rule = Rule::preset(name).unwrap();
            (rule.failure_threshold, rule.open.base.as_secs(), rule.open.max.as_secs())
        });
        assert_eq!(told, [(4, 5, 120), (7, 120, 120), (2, 30, 120), (5, 180, 180)]);
    }

    #[test]
    fn a_refusal_names_the_setting_its_value_and_the_cure() {
        let error = refused(|rule| rule.slow.confirmations = 17);
        let text = "slow.confirmations = 17: write a whole number from 1 to 16";
        assert_eq!(error.to_string(), text);
        let error = refused(|rule| rule.open.base = Duration::from_millis(120_500));
        assert_eq!(error.to_string(), "open.base = 120.5s: make it at most open.max (120s)");
    }

    #[test]
    fn a_count_of_zero_is_refused() {
        let keys = [
            refused(|rule| rule.failure_threshold = 0),
            refused(|rule| rule.min_requests = 0),
            refused(|rule| rule.slow.confirmations = 0),
            refused(|rule| rule.half_open.max_requests = 0),
            refused(|rule| rule.half_open.max_prompt_tokens = 0),
            refused(|rule| rule.half_open.successes = 0),
        ]
        .map(|error| (error.key, error.value));
        let expected = [
            "failure_threshold",
            "min_requests",
            "slow.confirmations",
            "half_open.max_requests",
            "half_open.max_prompt_tokens",
            "half_open.successes",
        ];
        assert_eq!(keys, expected.map(|key| (key, "0".to_owned())));
    }

    #[test]
    fn a_duration_of_nothing_or_of_days_is_refused() {
        for value in [Duration::ZERO, seconds(100_000), Duration::MAX] {
            let keys = [
                refused(|rule| rule.window = value),
                refused(|rule| rule.slow.total = value),
                refused(|rule| rule.slow.first_token = Some(value)),
                refused(|rule| rule.slow.dedup = value),
                refused(|rule| rule.open.base = value),
                refused(|rule| rule.open.max = value),
                refused(|rule| rule.open.reset_after = value),
                refused(|rule| rule.half_open.deadline = value),
                refused(|rule| rule.recovery = Recovery::Lazy { ttl: value }),
                refused(|rule| rule.slow.p95 = p95(Some(value), None)),
                refused(|rule| rule.slow.p95 = p95(None, Some(value))),
            ]
            .map(|error| error.key);
            let expected = [
                "window",
                "slow.total",
                "slow.first_token",
                "slow.dedup",
                "open.base",
                "open.max",
                "open.reset_after",
                "half_open.deadline",
                "open.ttl",
                "slow.p95.first_token",
                "slow.p95.total",
            ];
            assert_eq!(keys, expected);
        }
        let ramp = seconds(100_000);
        let error = refused(|rule| rule.recovery = Recovery::Staged { probe: true, ramp });
        assert_eq!(error.key, "ramp.duration");
    }

    #[test]
    fn a_duration_from_a_millisecond_to_a_day_is_accepted() {
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(86_400));
        for window in [least * 10_000, most] {
            assert_eq!(Rule { window, ..Rule::default() }.check(), Ok(()));
        }
        for ttl in [least, most] {
            let recovery = Recovery::Lazy { ttl };
            assert_eq!(Rule { recovery, ..Rule::default() }.check(), Ok(()));
        }
        let nanosecond = Duration::from_nanos(1);
        for ttl in [least - nanosecond, most + nanosecond] {
            assert_eq!(refused(|rule| rule.recovery = Recovery::Lazy { ttl }).key, "open.ttl");
        }
    }

    #[test]
    fn a_share_that_is_none_is_refused() {
        for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = refused(|rule| rule.failure_ratio = share);
            assert_eq!(error.key, "failure_ratio", "{share}");
            let error = refused(|rule| rule.half_open.share = share);
            assert_eq!(error.key, "half_open.share", "{share}");
        }
        let whole = Rule { failure_ratio: 1.0, ..Rule::default() };
        assert_eq!(whole.check(), Ok(()));
    }

    #[test]
    fn more_requests_than_little_traffic_brings_are_refused() {
        assert_eq!(refused(|rule| rule.min_requests = 13).key, "min_requests");
        // Lowering the threshold alone is a sound wish.
        let strict = Rule { failure_threshold: 1, ..Rule::default() };
        assert_eq!(strict.check(), Ok(()));
        let patient = Rule { failure_threshold: 100, min_requests: 300, ..Rule::default() };
        assert_eq!(patient.check(), Ok(()));
    }

    #[test]
    fn evidence_that_can_never_gather_is_refused() {
        assert_eq!(refused(|rule| rule.slow.confirmations = 7).key, "slow.confirmations");
        let mut rule = Rule::default();
        rule.slow.confirmations = 6;
        assert_eq!(rule.check(), Ok(()));
    }

    #[test]
    fn a_limit_that_another_limit_hides_is_refused() {
        let first_token = refused(|rule| rule.slow.first_token = Some(seconds(70)));
        assert_eq!(first_token.key, "slow.first_token");
        let deadline = refused(|rule| rule.half_open.deadline = seconds(70));
        assert_eq!(deadline.key, "half_open.deadline");
        let mut rule = Rule::default();
        rule.slow.first_token = None;
        rule.half_open.deadline = seconds(71);
        assert_eq!(rule.check(), Ok(()));
    }

    #[test]
    fn a_p95_that_a_single_request_would_trip_first_is_refused() {
        let first_token = refused(|rule| rule.slow.p95 = p95(Some(seconds(30)), None));
        assert_eq!(first_token.key, "slow.p95.first_token");
        let total = refused(|rule| rule.slow.p95 = p95(Some(seconds(5)), Some(seconds(70))));
        assert_eq!(total.key, "slow.p95.total");
        let nothing = refused(|rule| rule.slow.p95 = p95(None, None));
        let text = "slow.p95 = {}: name first_token, total or both, or remove slow.p95";
        assert_eq!(nothing.to_string(), text);
        let mut rule = Rule::default();
        rule.slow.first_token = None;
        rule.slow.p95 = p95(Some(seconds(40)), Some(seconds(60)));
        assert_eq!(rule.check(), Ok(()));
    }

    #[test]
    fn a_rate_or_multiple_that_is_none_is_refused() {
        for number in [0.0, -1.0, 1e6, f64::NAN, f64::INFINITY] {
            let rate = refused(|rule| rule.slow.min_tokens_per_second = Some(number));
            assert_eq!(rate.key, "slow.min_tokens_per_second", "{number}");
            let multiple = refused(|rule| rule.slow.relative = Some(number));
            assert_eq!(multiple.key, "slow.relative", "{number}");
        }
        assert_eq!(refused(|rule| rule.slow.relative = Some(1.0)).key, "slow.relative");
    }

    #[test]
    fn every_way_back_and_every_mode_passes_the_check() {
        let ttl = crate::rule::LAZY_TTL;
        let without_ramp = Recovery::Staged { probe: false, ramp: Duration::ZERO };
        for recovery in [Recovery::default(), without_ramp, Recovery::Lazy { ttl }] {
            for mode in [Mode::Enforce, Mode::Shadow, Mode::Off] {
                let rule = Rule { recovery, mode, ..Rule::default() };
                assert_eq!(rule.check(), Ok(()));
            }
        }
    }
}
