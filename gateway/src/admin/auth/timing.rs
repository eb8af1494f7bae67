//! M02: the time that a wrong token takes says nothing of how close it was.

use std::hint::black_box;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::Keys;
use crate::clock;
use crate::config::{Admin, Secret};

const TOKEN: &str = "sk-0123456789012345678901234567890123456789012345678901234567890123";
/// Tries of each kind in one measurement.
const TRIES: usize = 10_000;
/// Measurements; what is there is there in most of them, and what the machine does is not.
const MEASUREMENTS: usize = 5;
/// More than this says that two kinds differ.
const DIFFERS: f64 = 4.5;

fn headers(token: &str) -> HeaderMap {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

fn took(deed: &impl Fn(&HeaderMap) -> bool, headers: &HeaderMap) -> f64 {
    let began = clock::instant();
    for _ in 0..2 {
        assert!(!black_box(deed(black_box(headers))));
    }
    began.elapsed().as_secs_f64()
}

/// The quickest nine tenths: what is interrupted says nothing of the token.
fn trimmed(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times.truncate(times.len() * 9 / 10);
    times
}

/// Welch's t of two samples.
fn welch(one: &[f64], other: &[f64]) -> f64 {
    let mean = |sample: &[f64]| sample.iter().sum::<f64>() / sample.len() as f64;
    let spread = |sample: &[f64]| {
        let mean = mean(sample);
        let squares: f64 = sample.iter().map(|time| (time - mean).powi(2)).sum();
        squares / (sample.len() - 1) as f64 / sample.len() as f64
    };
    (mean(one) - mean(other)).abs() / (spread(one) + spread(other)).sqrt()
}

/// The median t over all measurements of tokens that are nearly right against tokens that are not.
fn difference(deed: &impl Fn(&HeaderMap) -> bool) -> f64 {
    let near = headers(&format!("{}x", &TOKEN[..TOKEN.len() - 1]));
    let far = headers(&"x".repeat(TOKEN.len()));
    let mut differences: Vec<f64> = (0..MEASUREMENTS)
        .map(|_| {
            let (mut nearly, mut not): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
            for round in 0..TRIES {
                // In turns, each first as often as the other.
                if round % 2 == 0 {
                    nearly.push(took(deed, &near));
                    not.push(took(deed, &far));
                } else {
                    not.push(took(deed, &far));
                    nearly.push(took(deed, &near));
                }
            }
            welch(&trimmed(nearly), &trimmed(not))
        })
        .collect();
    differences.sort_by(f64::total_cmp);
    differences[MEASUREMENTS / 2]
}

#[test]
fn m02_a_token_that_is_nearly_right_takes_as_long_as_one_that_is_not() {
    let keys = Keys::of(&Admin {
        listen: ([127, 0, 0, 1], 0).into(),
        token: Some(Secret::new(TOKEN)),
        read_token: None,
        protect_metrics: false,
    });
    // What compares byte after byte is seen by the same measure.
    let careless = |headers: &HeaderMap| {
        let given = headers[AUTHORIZATION].as_bytes();
        let wanted = TOKEN.bytes();
        given.iter().skip("Bearer ".len()).zip(wanted).all(|(one, other)| black_box(*one) == other)
    };
    let seen = difference(&careless);
    assert!(seen > DIFFERS, "the measure is blind: {seen}");
    let told = difference(&|headers: &HeaderMap| keys.role(headers).is_ok());
    assert!(told < DIFFERS, "{told}");
}
