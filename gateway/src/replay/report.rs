//! A report as text for people and as JSON for programs.
//!
//! Invariants: both say the same; neither holds anything but the configuration's names, numbers,
//! moments and the breaker's own words.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{EndpointReport, Report, Trip};

impl Report {
    /// Writes the report as lines of text, each ended: a head, then each endpoint with its trips.
    pub fn text(&self) -> String {
        let mut text = format!("{}, {} skipped\n", counted(self.lines, "line"), self.skipped);
        for endpoint in &self.endpoints {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", headline(endpoint));
            for Trip { at, reason, cool_down_ms } in &endpoint.trips {
                let cool_down = seconds(*cool_down_ms);
                let _ = writeln!(text, "  {at}  {reason}, cool-down {cool_down}");
            }
        }
        text
    }

    /// Writes the report as an object: `lines`, `skipped` and `endpoints`, an array of objects with
    /// `key`, `requests`, `open_ms` and `trips`, an array of objects with `at`, `reason` and
    /// `cool_down_ms`.
    pub fn json(&self) -> Value {
        let endpoints: Vec<Value> = self.endpoints.iter().map(endpoint_json).collect();
        json!({ "lines": self.lines, "skipped": self.skipped, "endpoints": endpoints })
    }
}

fn endpoint_json(endpoint: &EndpointReport) -> Value {
    let EndpointReport { key, requests, trips, open_ms } = endpoint;
    let trips: Vec<Value> = trips.iter().map(trip_json).collect();
    json!({ "key": key, "requests": requests, "open_ms": open_ms, "trips": trips })
}

fn trip_json(Trip { at, reason, cool_down_ms }: &Trip) -> Value {
    json!({ "at": at, "reason": reason, "cool_down_ms": cool_down_ms })
}

fn headline(endpoint: &EndpointReport) -> String {
    let EndpointReport { key, requests, trips, open_ms } = endpoint;
    let requests = counted(*requests, "request");
    if trips.is_empty() {
        return format!("{key}: {requests}, no trip");
    }
    let trips = counted(trips.len() as u64, "trip");
    format!("{key}: {requests}, {trips}, open for {}", seconds(*open_ms))
}

/// A number with its word, in the plural unless it is one.
fn counted(number: u64, word: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {word}{ending}")
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03} s", millis / 1_000, millis % 1_000)
}
