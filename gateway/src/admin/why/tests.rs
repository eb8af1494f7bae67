//! What is said of an endpoint in every state that it can be in, on virtual time.
//!
//! Each test brings a fleet of deputies into one state and asks one node: the sentence, the numbers, and
//! what happens next with its time. `alone` has what one node decides, `together` what the fleet does,
//! `beside` what bears on it besides.

mod alone;
mod beside;
mod together;

use std::time::Duration;

use serde_json::Value;

use crate::cluster::rehearsal::Rehearsal;

/// One fault opens, for two seconds at first; one small request is enough for the ramp.
const BREAKER: &str = "failure_threshold: 1, open: { base: 2s, max: 10s }, \
    half_open: { successes: 1, share: 1.0 }";

const A: &str = "m/a";
const B: &str = "m/b";

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The rest of a configuration: this much more of the breaker, and of model `m` and its endpoint `b`.
fn rest(breaker: &str, model: &str, b: &str) -> String {
    let comma = |text: &str| if text.is_empty() { String::new() } else { format!(", {text}") };
    let (breaker, model, b) = (comma(breaker), comma(model), comma(b));
    format!(
        "circuit_breaker: {{ {BREAKER}{breaker} }}
models:
  - {{ name: m{model}, endpoints: [
      {{ name: a, address: \"http://a\" }}, {{ name: b, address: \"http://b\"{b} }} ] }}
  - {{ name: n, endpoints: [ {{ name: c, address: \"http://c\" }} ] }}
"
    )
}

/// A fleet of so many nodes with the plain configuration.
fn fleet(count: usize) -> Rehearsal {
    Rehearsal::new(count, "", &rest("", "", ""))
}

fn verdict(view: &Value) -> &str {
    view["verdict"].as_str().unwrap()
}

fn next(view: &Value) -> &str {
    view["next"].as_str().unwrap()
}

/// In how long what is next happens.
fn within(view: &Value) -> Duration {
    Duration::from_millis(view["next_in_ms"].as_u64().unwrap())
}

/// The sentence of a note.
fn note<'v>(view: &'v Value, code: &str) -> Option<&'v str> {
    let notes = view["notes"].as_array().unwrap().iter();
    let mut such = notes.filter(|note| note["code"] == code);
    let found = such.next().map(|note| note["message"].as_str().unwrap());
    assert!(such.next().is_none(), "{code} is there twice: {view}");
    found
}

/// What a member counts as.
fn counts_as<'v>(view: &'v Value, id: &str) -> &'v str {
    let members = view["denominator"]["members"].as_array().unwrap();
    let member = members.iter().find(|member| member["id"] == id);
    member.and_then(|member| member["counts_as"].as_str()).unwrap()
}

/// The denominator without its members: electorate, live, quorum, unmet.
fn denominator(view: &Value) -> [u64; 4] {
    ["electorate", "live", "quorum", "unmet"].map(|key| view["denominator"][key].as_u64().unwrap())
}

/// Whether every living node has `b` out by the fleet's verdict.
fn is_out(fleet: &Rehearsal, nodes: &[usize]) -> bool {
    nodes.iter().all(|node| fleet.has_out(*node, B))
}

/// A fleet that has `b` out on these nodes, by the votes of all of them.
fn convicted(mut fleet: Rehearsal, nodes: &[usize]) -> Rehearsal {
    nodes.iter().for_each(|node| fleet.fail(*node, B, 1));
    fleet.until("the fleet takes it out", |fleet| is_out(fleet, nodes));
    fleet
}
