//! How long an upstream asks to be left alone, in each of the ways in which providers say so.
//!
//! Nobody agrees on the name or the unit, so every dialect is read, the most exact one first. What is
//! not understood says nothing: a pause is a courtesy and never a reason to fail.
//!
//! Invariants: a pause is at most [`PAUSE_MAX`]; no input panics.

use std::time::{Duration, UNIX_EPOCH};

use hyper::header::HeaderMap;

/// The longest pause that is believed.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);
/// A number of seconds beyond this is a date, in seconds since 1970; beyond a thousand times this, in
/// milliseconds.
const EPOCH_FROM: f64 = 1e9;
/// Longest value that is read.
const BYTES_MAX: usize = 64;

/// How a value is to be read.
#[derive(Clone, Copy)]
enum Dialect {
    Millis,
    /// Seconds, or a date as HTTP writes it.
    Http,
    /// Seconds, a date in seconds or milliseconds since 1970, a text like `6m0s`, or RFC 3339.
    Reset,
}

/// What asks for a pause by itself, the most exact first.
const ASKED: [(&str, Dialect); 3] = [
    ("retry-after-ms", Dialect::Millis),
    ("x-ms-retry-after-ms", Dialect::Millis),
    ("retry-after", Dialect::Http),
];

/// What says when a quota is full again. Of several the nearest holds: which of the quotas is spent is
/// not said, and one that is asked too early says so again.
const RESETS: [&str; 7] = [
    "x-ratelimit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-reset",
];

/// How long the upstream asks to be left alone; `wall` is the time since 1970. `None`: it does not say.
pub fn retry_after(headers: &HeaderMap, wall: Duration) -> Option<Duration> {
    let read = |(name, dialect)| read(headers, name, dialect, wall);
    ASKED.into_iter().find_map(read).map(|pause| pause.min(PAUSE_MAX))
}

/// How long an upstream that is at a limit is to be left alone: as long as it asks, or until the quota
/// that is spent is full again. Providers tell of their quotas in every answer, a good one included, so
/// that this means something only where a limit is the reason.
pub fn quota_pause(headers: &HeaderMap, wall: Duration) -> Option<Duration> {
    retry_after(headers, wall).or_else(|| {
        let spent = RESETS.into_iter().filter(|name: &&str| !is_left(headers, name));
        let pauses = spent.filter_map(|name| read(headers, name, Dialect::Reset, wall));
        pauses.min().map(|pause| pause.min(PAUSE_MAX))
    })
}

fn read(headers: &HeaderMap, name: &str, dialect: Dialect, wall: Duration) -> Option<Duration> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (value.len() <= BYTES_MAX).then(|| pause(value, dialect, wall)).flatten()
}

/// Whether the quota that this header speaks of is said to have something left, in which case it is not
/// what is waited for.
fn is_left(headers: &HeaderMap, reset: &str) -> bool {
    let name = if reset.starts_with("anthropic") {
        reset.replace("-reset", "-remaining")
    } else {
        reset.replace("ratelimit-reset", "ratelimit-remaining")
    };
    let left = headers.get(name).and_then(|left| left.to_str().ok());
    left.and_then(|left| left.trim().parse::<f64>().ok()).is_some_and(|left| left > 0.0)
}

fn pause(value: &str, dialect: Dialect, wall: Duration) -> Option<Duration> {
    let number = value.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    match (dialect, number) {
        (Dialect::Millis, number) => duration(number? / 1_000.0),
        (Dialect::Http, Some(seconds)) => duration(seconds),
        (Dialect::Http, None) => {
            let date = httpdate::parse_http_date(value).ok()?;
            Some(date.duration_since(UNIX_EPOCH).ok()?.saturating_sub(wall))
        }
        (Dialect::Reset, Some(number)) if number >= EPOCH_FROM * 1_000.0 => {
            Some(duration(number / 1_000.0)?.saturating_sub(wall))
        }
        (Dialect::Reset, Some(number)) if number >= EPOCH_FROM => {
            Some(duration(number)?.saturating_sub(wall))
        }
        (Dialect::Reset, Some(seconds)) => duration(seconds),
        (Dialect::Reset, None) => {
            spelled(value).or_else(|| Some(date(value)?.saturating_sub(wall)))
        }
    }
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// A text like `1h2m3.5s` or `20ms`, as OpenAI writes it.
fn spelled(text: &str) -> Option<Duration> {
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|one: char| !one.is_ascii_digit() && one != '.')?;
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|one: char| !one.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = behind;
    }
    if text.is_empty() { None } else { duration(seconds) }
}

/// A date by RFC 3339 as time since 1970; fractions of a second are left out.
fn date(text: &str) -> Option<Duration> {
    let (day, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(day, '-')?;
    let cut = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(cut);
    let [hour, minute, second] =
        numbers(clock.split_once('.').map_or(clock, |(whole, _)| whole), ':')?;
    let offset = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign, zone) => {
            let (hours, minutes) = zone.split_once(':')?;
            let (hours, minutes) = (part(hours, 24)?, part(minutes, 60)?);
            let seconds = hours * 3_600 + minutes * 60;
            if sign == "-" { -seconds } else { seconds }
        }
    };
    let is_in_range = (1_970..=9_999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !is_in_range {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    Some(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// A number of two digits below `end`.
fn part(text: &str, end: i64) -> Option<i64> {
    let is_number = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number < end)
}

fn numbers(text: &str, sign: char) -> Option<[i64; 3]> {
    let mut parts = text.split(sign);
    let mut next = || {
        let part = parts.next()?;
        let is_number = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| part.parse().ok()).flatten()
    };
    let found = [next()?, next()?, next()?];
    parts.next().is_none().then_some(found)
}

/// Days from 1970 to a date of the Gregorian calendar, counted in years that begin in March so that the
/// leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leaps = year / 4 - year / 100 + year / 400;
    year * 365 + leaps + (month * 306 + 5) / 10 + day - 1 - 719_468
}

#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod promise;
#[cfg(test)]
mod tests;
