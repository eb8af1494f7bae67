//! What opens a circuit, for how long, and what closes it: the settings and their check.
//!
//! A setting is a number with a unit, a default and a range, and [`Rule::check`] refuses what is
//! impossible or defeats itself before it reaches a breaker, so that a mistake is one line at start
//! instead of an endpoint that never opens or never comes back.
//!
//! Invariants:
//! - The default and every preset pass the check.
//! - A breaker given an unchecked rule still keeps its own bounds; it is merely of little use.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// How far a cool-down strays from its nominal length, either way, as a share of it.
///
/// Nodes that opened together must not come back together, or the endpoint falls over again.
pub const JITTER: f64 = 0.2;

/// The most half-open permits that can be out at once, whatever the rule says.
pub const HALF_OPEN_REQUESTS_MAX: u32 = 16;

/// The most pieces of slow evidence a rule can ask for.
pub const SLOW_CONFIRMATIONS_MAX: u32 = 16;

/// What the default half-open deadline leaves beyond [`SlowRule::total`], so that a request which is
/// merely slow is seen as slow before it is taken for lost. Whoever raises `slow.total` without
/// naming a deadline does well to put the deadline this far behind it.
pub const DEADLINE_MARGIN: Duration = Duration::from_secs(20);

/// The longest duration of any setting; more is a slip of the pen.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest duration of any setting, well above the resolution of a tick.
const DURATION_MIN: Duration = Duration::from_millis(1);

/// The largest count of any setting that has no bound of its own.
const COUNT_MAX: u32 = 10_000;

/// `min_requests` up to this value is always acceptable, so that whoever lowers the failure
/// threshold alone need not lower it too.
const MIN_REQUESTS_ALWAYS_FINE: u32 = 10;

/// How many times the failure threshold `min_requests` may be; beyond it, an endpoint with little
/// traffic never has enough requests for its failure ratio to be looked at.
const MIN_REQUESTS_PER_THRESHOLD: u32 = 3;

/// All settings of one breaker. Any one of the three ways of tripping opens the circuit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Faults in a row that open; 1 to 10,000, default 4.
    pub failure_threshold: u32,
    /// Weighted share of faults in the window that opens; above 0 to 1, default 0.5.
    pub failure_ratio: f64,
    /// How far back the share of faults and slow evidence reach; 1 ms to 24 h, default 30 s.
    pub window: Duration,
    /// Requests the window must hold before the share of faults means anything; 1 to three times
    /// the failure threshold (or 10), default 10.
    pub min_requests: u32,
    /// What is slow, and how much of it opens.
    pub slow: SlowRule,
    /// How long the circuit stays open.
    pub open: OpenRule,
    /// What closes it again.
    pub half_open: HalfOpenRule,
}

/// What is slow, and how much of it opens. The caller measures; the breaker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRule {
    /// A request that runs this long is slow; 1 ms to 24 h, default 70 s.
    pub total: Duration,
    /// A request without a first token by then is slow; below `total`, default 30 s, `None` for no
    /// such limit.
    pub first_token: Option<Duration>,
    /// Slow requests of one kind within this time are one piece of evidence; default 5 s.
    pub dedup: Duration,
    /// Pieces of evidence within the window that open; 1 to 16, default 2.
    pub confirmations: u32,
}

/// How long the circuit stays open: `base` × 2ⁿ, [`JITTER`] either way, at most `max`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRule {
    /// The first cool-down; 1 ms to `max`, default 5 s.
    pub base: Duration,
    /// The longest cool-down; up to 24 h, default 120 s.
    pub max: Duration,
    /// How long a recovery must hold before the next cool-down is `base` again; default 300 s.
    pub reset_after: Duration,
}

/// What half-open admits and what closes the circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfOpenRule {
    /// Permits out at once; 1 to 16, default 1.
    pub max_requests: u32,
    /// The longest prompt admitted, in tokens; at least 1, default 256.
    pub max_prompt_tokens: u64,
    /// Successes in a row that close; 1 to 10,000, default 5.
    pub successes: u32,
    /// A permit not settled this long after it was given is lost, and the circuit opens again;
    /// beyond `slow.total`, default 90 s.
    pub deadline: Duration,
}

impl Default for Rule {
    fn default() -> Self {
        let slow = SlowRule {
            total: Duration::from_secs(70),
            first_token: Some(Duration::from_secs(30)),
            dedup: Duration::from_secs(5),
            confirmations: 2,
        };
        let half_open = HalfOpenRule {
            max_requests: 1,
            max_prompt_tokens: 256,
            successes: 5,
            deadline: slow.total.saturating_add(DEADLINE_MARGIN),
        };
        Rule {
            failure_threshold: 4,
            failure_ratio: 0.5,
            window: Duration::from_secs(30),
            min_requests: 10,
            slow,
            open: OpenRule {
                base: Duration::from_secs(5),
                max: Duration::from_secs(120),
                reset_after: Duration::from_secs(300),
            },
            half_open,
        }
    }
}

impl Rule {
    /// Returns the rule called `name`: `default`, `slow_api`, `critical` or `self_healing`.
    ///
    /// The other three are the default with another failure threshold and first cool-down; the
    /// longest cool-down is raised where the first one needs it.
    pub fn preset(name: &str) -> Option<Rule> {
        let (failure_threshold, base) = match name {
            "default" => return Some(Rule::default()),
            "slow_api" => (7, Duration::from_secs(120)),
            "critical" => (2, Duration::from_secs(30)),
            "self_healing" => (5, Duration::from_secs(180)),
            _ => return None,
        };
        let mut rule = Rule { failure_threshold, ..Rule::default() };
        rule.open.base = base;
        rule.open.max = rule.open.max.max(base);
        Some(rule)
    }

    /// Checks every setting and every pair of settings that could defeat each other.
    ///
    /// # Errors
    /// The first setting that is impossible or self-defeating, with its value and what to do.
    pub fn check(&self) -> Result<(), RuleError> {
        check_count("failure_threshold", self.failure_threshold, COUNT_MAX)?;
        // A comparison with NaN is false, so it is refused here as well.
        if !(self.failure_ratio > 0.0 && self.failure_ratio <= 1.0) {
            let cure = "write a share above 0 and at most 1, for example 0.5";
            return Err(RuleError::new("failure_ratio", self.failure_ratio, cure));
        }
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
        self.check_open()?;
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

    fn check_half_open(&self) -> Result<(), RuleError> {
        let half_open = &self.half_open;
        check_count("half_open.max_requests", half_open.max_requests, HALF_OPEN_REQUESTS_MAX)?;
        if half_open.max_prompt_tokens == 0 {
            let cure = "write at least 1: no client's request is that short";
            return Err(RuleError::new("half_open.max_prompt_tokens", 0, cure));
        }
        check_count("half_open.successes", half_open.successes, COUNT_MAX)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const PRESETS: [&str; 4] = ["default", "slow_api", "critical", "self_healing"];

    fn refused(change: impl FnOnce(&mut Rule)) -> RuleError {
        let mut rule = Rule::default();
        change(&mut rule);
        rule.check().unwrap_err()
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
            ];
            assert_eq!(keys, expected);
        }
    }

    #[test]
    fn a_share_that_is_none_is_refused() {
        for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = refused(|rule| rule.failure_ratio = share);
            assert_eq!(error.key, "failure_ratio", "{share}");
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
}
