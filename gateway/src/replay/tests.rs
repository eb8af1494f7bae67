//! Logs written by hand and what a breaker would have made of them.
//!
//! The moments count from noon of a day in 2026, so that a test reads as a story in milliseconds.

use std::io::{BufReader, Read};

use serde_json::json;

use super::*;

/// Two endpoints under the default rule, and one under a rule of its own.
const CONFIG: &str = r#"
models:
  - name: m
    endpoints:
      - { name: a, address: "http://127.0.0.1:1" }
      - { name: b, address: "http://127.0.0.1:2" }
  - name: touchy
    endpoints: [{ name: c, address: "http://127.0.0.1:3" }]
    circuit_breaker: { failure_threshold: 1, mode: off }
"#;

fn config() -> Config {
    crate::config::parse(CONFIG, "gw.yaml", &|_| None).unwrap()
}

/// The timestamp so many milliseconds after noon.
fn at(millis: u64) -> String {
    let noon = moment::parse("2026-07-01T12:00:00Z").unwrap();
    moment::render(noon + Duration::from_millis(millis))
}

/// The line, as the gateway writes it, of a request to `m/a` that ended at `end` after `took`, both
/// in milliseconds, with what `change` says otherwise.
fn line(end: u64, took: u64, status: u16, change: serde_json::Value) -> String {
    let mut line = json!({
        "timestamp": at(end), "level": "INFO", "request_id": "req-1", "agent_id": "",
        "model": "m", "endpoint": "m/a", "upstream_status": status, "proxy_status": status,
        "latency_ms": took, "first_token_ms": took.min(100), "attempts": 1, "blocked_reason": "",
        "end": "complete", "target": "access",
    });
    for (key, value) in change.as_object().unwrap() {
        line[key] = value.clone();
    }
    line.to_string() + "\n"
}

/// A quick request that ended at `end`.
fn quick(end: u64, status: u16) -> String {
    line(end, 50, status, json!({}))
}

fn replayed(log: &str) -> Report {
    run(log.as_bytes(), &config()).unwrap()
}

/// When and why `m/a` would have tripped.
fn trips(log: &str) -> Vec<(String, String)> {
    let report = replayed(log);
    assert_eq!(report.skipped, 0, "{log}");
    report.endpoints[0].trips.iter().map(|trip| (trip.at.clone(), trip.reason.clone())).collect()
}

/// One trip.
fn trip(millis: u64, reason: &str) -> (String, String) {
    (at(millis), reason.to_owned())
}

#[test]
fn four_faults_in_a_row_trip_at_the_fourth() {
    let log: String = (1..=4).map(|number| quick(number * 1_000, 502)).collect();
    assert_eq!(trips(&log), [trip(4_000, "consecutive faults")]);
    let report = replayed(&log);
    assert_eq!((report.lines, report.endpoints[0].requests), (4, 4));
    assert!((4_000..=6_000).contains(&report.endpoints[0].trips[0].cool_down_ms), "{report:?}");
    assert!(report.endpoints[1].trips.is_empty());
}

#[test]
fn the_fourth_is_the_fourth_to_end_in_whatever_order_the_lines_come() {
    let lines: Vec<String> = (1..=6).map(|number| quick(number * 100, 500)).collect();
    let (mut backwards, mut shuffled) = (lines.clone(), lines.clone());
    backwards.reverse();
    shuffled.swap(0, 3);
    shuffled.swap(1, 4);
    for lines in [lines, backwards, shuffled] {
        assert_eq!(trips(&lines.concat()), [trip(400, "consecutive faults")]);
    }
}

#[test]
fn two_slow_answers_six_seconds_apart_trip_when_the_second_becomes_slow() {
    let log = line(80_000, 80_000, 200, json!({})) + &line(86_000, 80_000, 200, json!({}));
    assert_eq!(trips(&log), [trip(76_000, "slow (total)")]);
    let late = json!({ "first_token_ms": 31_000 });
    let log = line(40_000, 40_000, 200, late.clone()) + &line(46_000, 40_000, 200, late);
    assert_eq!(trips(&log), [trip(36_000, "slow (first token)")]);
}

#[test]
fn slow_answers_of_the_same_seconds_are_one_piece_of_evidence() {
    let log: String = (0..9).map(|n| line(80_000 + n * 500, 80_000, 200, json!({}))).collect();
    assert_eq!(trips(&log), []);
}

#[test]
fn an_answer_just_below_the_limit_is_not_slow() {
    let log: String = (0..9).map(|n| line(80_000 + n * 6_000, 69_999, 200, json!({}))).collect();
    assert_eq!(trips(&log), []);
}

#[test]
fn a_client_that_left_says_nothing_but_that_it_waited_too_long() {
    let left = json!({ "end": "client_left", "proxy_status": 499 });
    for end in [left.clone(), json!({ "end": "drained" })] {
        let log: String = (0..50).map(|n| line(n * 1_000, 50, 200, end.clone())).collect();
        assert_eq!(trips(&log), []);
    }
    let log = line(75_000, 75_000, 200, left.clone()) + &line(81_000, 75_000, 200, left);
    assert_eq!(trips(&log), [trip(76_000, "slow (total)")]);
}

#[test]
fn a_limit_and_the_clients_own_mistakes_never_trip() {
    for status in [429, 400, 401, 403, 404, 422, 499] {
        let log: String = (0..100).map(|number| quick(number * 100, status)).collect();
        assert_eq!(trips(&log), [], "{status}");
    }
}

#[test]
fn every_kind_of_fault_counts() {
    for (status, change) in [
        (500, json!({})),
        (503, json!({})),
        (302, json!({ "proxy_status": 502 })),
        (200, json!({ "end": "interrupted" })),
        (0, json!({ "proxy_status": 502 })),
        (0, json!({ "proxy_status": 504 })),
    ] {
        let log: String = (1..=4).map(|n| line(n * 1_000, 50, status, change.clone())).collect();
        assert_eq!(trips(&log), [trip(4_000, "consecutive faults")], "{status} {change}");
    }
}

#[test]
fn u31_a_request_that_failed_twice_at_one_endpoint_is_one_fault() {
    let twice = |n: u64| {
        line(n * 1_000, 50, 502, json!({ "target": "attempt", "repeat": false }))
            + &line(n * 1_000 + 60, 50, 502, json!({ "attempts": 2, "repeat": true }))
    };
    let log: String = (1..=3).map(twice).collect();
    assert_eq!(trips(&log), []);
    assert_eq!(trips(&(log + &quick(4_000, 502))), [trip(4_000, "consecutive faults")]);
}

#[test]
fn a_status_counts_as_the_endpoints_own_lists_say() {
    let log: String = (1..=4).map(|number| quick(number * 1_000, 503)).collect();
    assert_eq!(trips(&log), [trip(4_000, "consecutive faults")]);
    let busy = "circuit_breaker: { capacity_status_codes: [503] }\n".to_owned() + CONFIG;
    let config = crate::config::parse(&busy, "gw.yaml", &|_| None).unwrap();
    let report = run(log.as_bytes(), &config).unwrap();
    assert_eq!((report.endpoints[0].requests, report.endpoints[0].trips.len()), (4, 0));
    let timed_out = "circuit_breaker: { fault_status_codes: [408] }\n".to_owned() + CONFIG;
    let config = crate::config::parse(&timed_out, "gw.yaml", &|_| None).unwrap();
    let log: String = (1..=4).map(|number| quick(number * 1_000, 408)).collect();
    assert_eq!(run(log.as_bytes(), &config).unwrap().endpoints[0].trips.len(), 1);
}

#[test]
fn a_burst_that_is_slow_and_then_times_out_is_one_piece_of_evidence() {
    let timeout = json!({ "proxy_status": 504 });
    let log: String = (0..9).map(|n| line(75_000 + n, 75_000, 0, timeout.clone())).collect();
    assert_eq!(trips(&log), []);
}

#[test]
fn nobody_is_blamed_for_the_time_a_sibling_took() {
    let second = json!({ "attempts": 2, "first_token_ms": 75_000 });
    let log: String =
        (0..9).map(|n| line(80_000 + n * 6_000, 80_000, 200, second.clone())).collect();
    assert_eq!(trips(&log), []);
    let long = json!({ "attempts": 2, "first_token_ms": 10_000 });
    let log = line(90_000, 90_000, 200, long.clone()) + &line(96_000, 90_000, 200, long);
    assert_eq!(trips(&log), [trip(86_000, "slow (total)")]);
}

#[test]
fn what_was_recorded_during_a_cool_down_has_no_say() {
    // The cool-down lasts at least 4 s; a breaker that listened would open at each fourth fault.
    let log: String = (1..=30).map(|number| quick(number * 100, 502)).collect();
    assert_eq!(trips(&log).len(), 1);
    let report = replayed(&log);
    assert_eq!((report.endpoints[0].requests, report.endpoints[0].open_ms), (30, 2_600));
}

#[test]
fn a_canary_that_fails_opens_again_and_for_longer() {
    let log: String = (1..=4).chain([20]).map(|number| quick(number * 1_000, 502)).collect();
    let expected = [trip(4_000, "consecutive faults"), trip(20_000, "fault in half-open (502)")];
    assert_eq!(trips(&log), expected);
    let report = replayed(&(log + &quick(60_000, 200)));
    let [first, second] = &report.endpoints[0].trips[..] else { panic!("{report:?}") };
    assert!(second.cool_down_ms > first.cool_down_ms, "{report:?}");
    assert_eq!(report.endpoints[0].open_ms, first.cool_down_ms + second.cool_down_ms);
}

#[test]
fn a_recovery_that_holds_closes_the_circuit_even_if_nobody_asks_when_the_ramp_is_over() {
    let ill = |from: u64| (0..4).map(move |number| quick(from + number * 100, 502));
    // One canary in twenty is admitted, so that five successes take some eighty requests.
    let well = (0..200).map(|number| quick(20_000 + number * 100, 200));
    let log: String = ill(0).chain(well).chain(ill(600_000)).collect();
    let expected = [trip(300, "consecutive faults"), trip(600_300, "consecutive faults")];
    assert_eq!(trips(&log), expected);
    // The recovery is older than `open.reset_after`, counted from the end of the ramp.
    let report = replayed(&log);
    assert!(report.endpoints[0].trips[1].cool_down_ms <= 6_000, "{report:?}");
}

#[test]
fn an_answer_that_began_before_the_opening_changes_nothing_after_it() {
    let faults = (1..=4).map(|number| quick(number * 100, 502));
    let late = (0..9).map(|number| line(20_000 + number, 20_000, 502, json!({})));
    assert_eq!(trips(&faults.chain(late).collect::<String>()), [trip(400, "consecutive faults")]);
}

#[test]
fn a_breaker_that_is_off_is_tried_all_the_same() {
    let log = line(1_000, 50, 502, json!({ "endpoint": "touchy/c" }));
    let report = replayed(&log);
    assert_eq!(report.endpoints[2].key, "touchy/c");
    assert_eq!(report.endpoints[2].trips[0].at, at(1_000));
}

#[test]
fn a_lazy_recovery_closes_by_time_alone() {
    let text = CONFIG.replace("name: m\n", "name: m\n    circuit_breaker: { recovery: lazy }\n");
    let config = crate::config::parse(&text, "gw.yaml", &|_| None).unwrap();
    let log: String = (0..120).map(|number| quick(number * 1_000, 502)).collect();
    let report = run(log.as_bytes(), &config).unwrap();
    let moments: Vec<&str> = report.endpoints[0].trips.iter().map(|trip| &*trip.at).collect();
    // Four faults, 45 s of silence, and again. The request at the very end of the silence, which
    // began before it, is not heard.
    assert_eq!(moments, [at(3_000), at(52_000), at(101_000)]);
    assert_eq!(report.endpoints[0].open_ms, 45_000 + 45_000 + 18_000);
}

#[test]
fn what_is_no_line_of_a_sent_request_is_skipped_and_counted() {
    let skipped = [
        String::from("\n"),
        String::from("garbage\r\n"),
        String::from("{}\n"),
        String::from("[1, 2\n"),
        "[".repeat(10_000) + "\n",
        line(1, 50, 502, json!({ "target": "gateway::app" })),
        line(1, 50, 502, json!({ "endpoint": "" })),
        line(1, 50, 502, json!({ "endpoint": "m/unknown" })),
        line(1, 50, 502, json!({ "timestamp": "yesterday" })),
        line(1, 50, 502, json!({ "latency_ms": -1 })),
        line(1, 50, 502, json!({ "latency_ms": u64::MAX })),
        line(1, 50, 502, json!({ "upstream_status": 70_000 })),
        line(1, 50, 502, json!({ "end": "somehow" })),
        line(1, 50, 502, json!({ "agent_id": "x".repeat(LINE_BYTES_MAX) })),
    ];
    for noise in &skipped {
        let report = replayed(noise);
        assert_eq!((report.lines, report.skipped), (1, 1), "{noise:.200}");
    }
    let faults = (1..=4).map(|number| quick(number * 1_000, 502));
    let log: String = skipped.iter().cloned().chain(faults).collect();
    let report = replayed(&log);
    assert_eq!((report.lines, report.skipped), (18, 14));
    assert_eq!(report.endpoints[0].trips.len(), 1);
}

#[test]
fn the_longest_line_that_is_looked_at_has_the_length_that_is_said() {
    let bare = line(1, 50, 502, json!({ "agent_id": "" })).len() - 1;
    for (length, skipped) in [(LINE_BYTES_MAX, 0), (LINE_BYTES_MAX + 1, 1)] {
        let log = line(1, 50, 502, json!({ "agent_id": "x".repeat(length - bare) }));
        assert_eq!((log.len() - 1, replayed(&log).skipped), (length, skipped));
        // The same in small pieces, and without an end to the line.
        let pieces = BufReader::with_capacity(7, log.trim_end().as_bytes());
        assert_eq!(run(pieces, &config()).unwrap().skipped, skipped);
    }
}

#[test]
fn bytes_that_are_no_text_are_skipped() {
    let mut log = b"\xff\xfe\x00\n\xc3(\n".to_vec();
    log.extend_from_slice(quick(1_000, 502).trim_end().as_bytes());
    let report = run(log.as_slice(), &config()).unwrap();
    assert_eq!((report.lines, report.skipped, report.endpoints[0].requests), (3, 2, 1));
}

#[test]
fn a_log_of_nothing_is_a_report_of_nothing() {
    let report = replayed("");
    assert_eq!((report.lines, report.skipped), (0, 0));
    assert!(report.endpoints.iter().all(|one| one.requests == 0 && one.open_ms == 0));
}

#[test]
fn a_line_that_names_no_target_and_only_what_is_needed_is_enough() {
    let line = json!({
        "timestamp": "2026-07-01T12:00:00Z", "endpoint": "m/a", "upstream_status": 200,
        "latency_ms": 1, "end": "complete",
    });
    assert_eq!(replayed(&line.to_string()).endpoints[0].requests, 1);
}

#[test]
fn a_log_beyond_the_bounds_is_refused() {
    let log: String = (0..4).map(|number| quick(number, 200)).collect();
    let within = |lines, requests| {
        run_within(Limits { lines, requests }, log.as_bytes(), &config()).map(|report| report.lines)
    };
    assert_eq!(within(4, 4).unwrap(), 4);
    assert!(matches!(within(3, 4), Err(ReplayError::TooManyLines { most: 3 })));
    assert!(matches!(within(4, 3), Err(ReplayError::TooManyRequests { most: 3 })));
}

#[test]
fn a_failure_to_read_names_the_line() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("gone"))
        }
    }
    let whole = quick(1_000, 200);
    let log = BufReader::new(whole.as_bytes().chain(Broken));
    let error = run(log, &config()).unwrap_err();
    assert_eq!(error.to_string(), "line 2 of the log cannot be read");
    assert!(matches!(error, ReplayError::ReadLine { line: 2, .. }));
}

#[test]
fn the_text_names_each_endpoint_and_each_trip() {
    let report = Report {
        lines: 7,
        skipped: 1,
        endpoints: vec![
            EndpointReport {
                key: "m/a".to_owned(),
                requests: 5,
                trips: vec![Trip {
                    at: at(4_000),
                    reason: "consecutive faults".to_owned(),
                    cool_down_ms: 4_321,
                }],
                open_ms: 2_050,
            },
            EndpointReport { key: "m/b".to_owned(), requests: 1, trips: vec![], open_ms: 0 },
        ],
    };
    let text = "7 lines, 1 skipped\n\
                m/a: 5 requests, 1 trip, open for 2.050 s\n  \
                2026-07-01T12:00:04.000000Z  consecutive faults, cool-down 4.321 s\n\
                m/b: 1 request, no trip\n";
    assert_eq!(report.text(), text);
    let trip = json!({
        "at": "2026-07-01T12:00:04.000000Z", "reason": "consecutive faults", "cool_down_ms": 4_321,
    });
    let endpoints = json!([
        { "key": "m/a", "requests": 5, "open_ms": 2_050, "trips": [trip] },
        { "key": "m/b", "requests": 1, "open_ms": 0, "trips": [] },
    ]);
    assert_eq!(report.json(), json!({ "lines": 7, "skipped": 1, "endpoints": endpoints }));
}

#[test]
fn no_damage_to_a_log_makes_it_panic_and_the_same_log_gives_the_same_report() {
    let seed = 20_260_701;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let config = config();
    for _ in 0..200 {
        let mut log = String::new();
        for _ in 0..40 {
            let status = *random.choice(&[0, 200, 200, 429, 500, 302, 999]).unwrap();
            let end = *random.choice(&["complete", "interrupted", "client_left"]).unwrap();
            let change = json!({
                "endpoint": *random.choice(&["m/a", "m/b", "touchy/c"]).unwrap(), "end": end,
                "attempts": random.u32(0..3), "first_token_ms": random.u64(0..200_000),
            });
            log += &line(random.u64(0..300_000), random.u64(0..200_000), status, change);
        }
        let mut log = log.into_bytes();
        for _ in 0..random.usize(0..20) {
            let place = random.usize(0..log.len());
            log[place] = random.u8(..);
        }
        let report = run(log.as_slice(), &config).unwrap();
        assert_eq!(run(log.as_slice(), &config).unwrap(), report);
        let counted: u64 = report.endpoints.iter().map(|one| one.requests).sum();
        assert_eq!(counted + report.skipped, report.lines);
    }
}
