//! A pause is read in every dialect, and garbage is none.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::*;

/// 2015-10-21 07:28:00 UTC.
const WALL: Duration = Duration::from_secs(1_445_412_480);

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect()
}

fn read(pairs: &[(&'static str, &str)]) -> Option<Duration> {
    quota_pause(&headers(pairs), WALL)
}

#[test]
fn u10_each_dialect_is_understood() {
    for (name, value, millis) in [
        ("retry-after", "1", 1_000),
        ("retry-after", " 120 ", 120_000),
        ("retry-after", "0.25", 250),
        ("retry-after", "0", 0),
        ("retry-after", "99999", 3_600_000),
        ("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT", 30_000),
        ("retry-after", "Wed, 21 Oct 2015 07:27:30 GMT", 0),
        ("retry-after", "Thu, 31 Dec 2099 23:59:59 GMT", 3_600_000),
        ("retry-after-ms", "250", 250),
        ("x-ms-retry-after-ms", "1500", 1_500),
        ("x-ratelimit-reset", "12", 12_000),
        ("x-ratelimit-reset", "1445412500", 20_000),
        ("x-ratelimit-reset", "1445412500500", 20_500),
        ("x-ratelimit-reset", "1445412400", 0),
        ("x-ratelimit-reset-requests", "6m0s", 360_000),
        ("x-ratelimit-reset-requests", "1h2m3.5s", 3_600_000),
        ("x-ratelimit-reset-tokens", "20ms", 20),
        ("x-ratelimit-reset-tokens", "1.5s", 1_500),
        ("anthropic-ratelimit-requests-reset", "2015-10-21T07:28:07Z", 7_000),
        ("anthropic-ratelimit-tokens-reset", "2015-10-21T09:28:07.5+02:00", 7_000),
        ("anthropic-ratelimit-input-tokens-reset", "2015-10-21T02:28:09-05:00", 9_000),
    ] {
        assert_eq!(read(&[(name, value)]), Some(Duration::from_millis(millis)), "{name}: {value}");
    }
}

#[test]
fn u10_garbage_is_none() {
    let long = "1".repeat(400);
    for value in [
        "",
        "soon",
        "-1",
        "NaN",
        "inf",
        "1e999",
        "6m0",
        "5x",
        "m",
        "1..2s",
        "2015-10-21",
        "2015-13-21T07:28:00Z",
        "2015-10-21T07:28:00",
        "2015-10-21T07:28:00+99999999999:00",
        "2015-10-21T07:28:00+4294967295:00",
        "2015-10-21T07:28:00-71582789:00",
        "2015-10-21T07:28:00+24:00",
        "2015-10-21T07:28:00+00:60",
        "2015-10-21T07:28:00++1:00",
        "2015-10-21T25:28:00Z",
        "99999-10-21T07:28:00Z",
        "1969-10-21T07:28:00Z",
        "Wed, 99 Oct 2015 07:28:00 GMT",
        "ÿ",
        long.as_str(),
    ] {
        for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset"] {
            assert_eq!(read(&[(name, value)]), None, "{name}: {value}");
        }
    }
}

#[test]
fn the_most_exact_dialect_holds_and_of_several_quotas_the_one_that_is_spent() {
    let both = [("retry-after", "9"), ("retry-after-ms", "250")];
    assert_eq!(read(&both), Some(Duration::from_millis(250)));
    let odd = [("retry-after", "9"), ("retry-after-ms", "soon")];
    assert_eq!(read(&odd), Some(Duration::from_secs(9)));
    let two = [("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "30s")];
    assert_eq!(read(&two), Some(Duration::from_secs(1)));
    let tokens = [
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-tokens", "30s"),
        ("x-ratelimit-remaining-tokens", "0"),
    ];
    assert_eq!(read(&tokens), Some(Duration::from_secs(30)));
}

#[test]
fn what_is_told_of_quotas_asks_for_no_pause_by_itself() {
    let told = [("x-ratelimit-reset-tokens", "6m0s"), ("x-ratelimit-reset", "12")];
    assert_eq!(retry_after(&headers(&told), WALL), None);
    assert_eq!(retry_after(&headers(&[("retry-after", "2")]), WALL), Some(Duration::from_secs(2)));
}

#[test]
fn a_date_is_the_day_it_says() {
    for (text, seconds) in [
        ("1970-01-01T00:00:00Z", 0),
        ("2000-02-29T00:00:00Z", 951_782_400),
        ("2000-03-01T00:00:00Z", 951_868_800),
        ("2024-12-31T23:59:59Z", 1_735_689_599),
        ("2100-03-01T00:00:00Z", 4_107_542_400),
    ] {
        assert_eq!(date(text), Some(Duration::from_secs(seconds)), "{text}");
    }
}
