//! A moment as the log writes it, RFC 3339 in UTC, and as the breaker counts it, time since 1970.
//!
//! The calendar is the proleptic Gregorian one, by Howard Hinnant's `days_from_civil` and
//! `civil_from_days`: years that begin in March, so that the leap day is the last of its year.
//!
//! Invariants: a moment lies in the years from 1970 to 2199, which 64 bits of nanoseconds hold with
//! ease, so that one damaged line cannot push the others out of a breaker's reach; what is parsed
//! and rendered again is the same to the microsecond.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The years that are believed.
const YEARS: RangeInclusive<u64> = 1970..=2199;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
/// Days in 400 years, after which the calendar repeats.
const DAYS_PER_ERA: u64 = 146_097;
/// Days from the 1st of March of the year 0 to the 1st of January 1970.
const DAYS_TO_1970: u64 = 719_468;
/// Digits of a second that count: microseconds.
const FRACTION_DIGITS: usize = 6;

/// Reads a timestamp such as `2026-01-31T23:59:59.123456Z`; finer digits are dropped, a leap second
/// is the first of the next minute. `None` for anything else, another offset than UTC included.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let (date, time) = text.split_once(['T', 't'])?;
    let time = time.strip_suffix(['Z', 'z']).or_else(|| time.strip_suffix("+00:00"))?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let is_date = YEARS.contains(&year)
        && (1..=12).contains(&month)
        && (1..=month_days(year, month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * SECONDS_PER_DAY + (hour * 60 + minute) * 60 + second;
    // A leap second of the last year is one of a year that is not believed.
    if seconds >= days(*YEARS.end() + 1, 1, 1) * SECONDS_PER_DAY {
        return None;
    }
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros(fraction)?)))
}

/// Writes a moment as the log does, with microseconds.
pub(super) fn render(moment: Duration) -> String {
    let (days, seconds) = (moment.as_secs() / SECONDS_PER_DAY, moment.as_secs() % SECONDS_PER_DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let micros = moment.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Reads three numbers of exactly these widths.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width && is_digits(part))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads the digits behind the point as microseconds.
fn micros(fraction: &str) -> Option<u64> {
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(FRACTION_DIGITS);
    let micros = digits.fold(0, |sum, digit| sum * 10 + u64::from(digit.saturating_sub(b'0')));
    is_digits(fraction).then_some(micros)
}

fn month_days(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to a date within [`YEARS`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year / 400, year % 400);
    let day = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_PER_ERA + year * 365 + year / 4 - year / 100 + day - DAYS_TO_1970
}

/// The date so many days after 1970 began. No moment that was parsed has more than 84,006.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days.saturating_add(DAYS_TO_1970);
    let (era, day) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        parse(text).map(|moment| moment.as_secs())
    }

    #[test]
    fn known_moments_are_read() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-02-29T00:00:00Z"), Some(951_782_400));
        assert_eq!(seconds("2001-09-09T01:46:40.999Z"), Some(1_000_000_000));
        assert_eq!(seconds("2038-01-19T03:14:08+00:00"), Some(1 << 31));
        assert_eq!(parse("1970-01-01T00:00:00.0000019z"), Some(Duration::from_micros(1)));
        assert_eq!(parse("1970-01-01t00:00:01.5Z"), Some(Duration::from_millis(1_500)));
        assert_eq!(seconds("2016-12-31T23:59:60Z"), seconds("2017-01-01T00:00:00Z"));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "T",
            "Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+01:00",
            "2026-01-01 00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-32T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1x3Z",
            "2026-01-01T00:00:00.1.3Z",
            "2026-1-01T00:00:00Z",
            "2026-01-01-01T00:00:00Z",
            "+026-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2200-01-01T00:00:00Z",
            "\u{0662}026-01-01T00:00:00Z",
            "2026-01-01T00:00:00.\u{0661}Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_is_read_and_written_alike() {
        for day in 0..84_006 {
            let moment = Duration::from_secs(day * SECONDS_PER_DAY + day % SECONDS_PER_DAY);
            let moment = moment + Duration::from_micros(day * 11);
            assert_eq!(parse(&render(moment)), Some(moment), "{day}");
        }
        assert_eq!(
            render(Duration::from_secs(84_005 * SECONDS_PER_DAY)),
            "2199-12-31T00:00:00.000000Z"
        );
    }

    #[test]
    fn the_last_leap_second_is_of_a_year_that_is_not_believed() {
        assert!(parse("2199-12-31T23:59:59.999999Z").is_some());
        assert_eq!(parse("2199-12-31T23:59:60Z"), None);
    }

    #[test]
    fn any_duration_is_written_without_a_panic() {
        assert!(render(Duration::MAX).ends_with('Z'));
    }
}
