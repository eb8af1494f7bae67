//! The scripts and the model are the same rule: random histories run through both.
//!
//! The clock is the test's, so that leases run out by the thousand; many endpoints go side by side in
//! one pipeline. The seed of a history that differs stands in the message.
#![expect(clippy::unwrap_used, reason = "a test may stop loudly")]

#[path = "agrees/history.rs"]
mod history;
#[path = "agrees/hostile.rs"]
mod hostile;
#[path = "agrees/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::time::Instant;

use history::{Event, History};
use quorum::ledger::{Answer, Outcome};
use redis::{Connection, Value};
use redis_lua::keys::Keys;
use redis_lua::ledger::reply;
use server::{Scripts, Server};

/// How many endpoints go side by side.
const ENDPOINTS: u64 = 100;

/// How many steps the long test goes.
const STEPS: u64 = 120_000;

/// What became of how many calls.
type Outcomes = BTreeMap<String, u64>;

/// Runs so many steps of each history. Returns what came of them, or what differs first.
fn run(
    connection: &mut Connection,
    (scripts, keys): (&Scripts, &Keys),
    seeds: std::ops::Range<u64>,
    rounds: u64,
) -> Result<Outcomes, String> {
    let named = |seed| History::new(&format!("pool/{seed}"), seed);
    let mut histories: Vec<History> = seeds.map(named).collect();
    let mut outcomes = Outcomes::new();
    for round in 0..rounds {
        let mut pipeline = redis::pipe();
        let mut expected = Vec::new();
        for history in &mut histories {
            let event = history.next();
            let answer = history.apply(&event);
            push(&mut pipeline, scripts, keys, history, &event);
            if let Event::Call(call) = event {
                expected.push((history.seed, history.now, call, answer.unwrap()));
            }
        }
        pipeline.ignore_errors();
        let values: Vec<Value> = pipeline.query(connection).unwrap();
        assert_eq!(values.len(), expected.len());
        for ((seed, now, call, answer), value) in expected.iter().zip(values) {
            let what = format!("seed {seed}, round {round}: {call:?}");
            let reply = reply(&value).map_err(|_| format!("{what}: {value:?}"))?;
            if reply.answer != *answer || reply.at != *now || reply.unread > 0 {
                return Err(format!("{what}: the model says {answer:#?}, Redis {reply:#?}"));
            }
            *outcomes.entry(tag(call, answer)).or_default() += 1;
        }
    }
    Ok(outcomes)
}

fn push(
    pipeline: &mut redis::Pipeline,
    scripts: &Scripts,
    keys: &Keys,
    history: &History,
    event: &Event,
) {
    let names = keys.of(&history.endpoint);
    let copies: Vec<String> = names.iter().map(|name| format!("{name}:copy")).collect();
    match event {
        Event::Call(call) => scripts.push(pipeline, history.now, history.run, call),
        Event::Flush => {
            pipeline.cmd("DEL").arg(&names).ignore();
        }
        Event::Copy | Event::FailOver => {
            let is_copy = matches!(event, Event::Copy);
            let (from, to) = if is_copy { (&names, &copies) } else { (&copies, &names) };
            pipeline.cmd("DEL").arg(to).ignore();
            for (from, to) in from.iter().zip(to) {
                pipeline.cmd("COPY").arg(from).arg(to).ignore();
            }
        }
    }
}

fn tag(call: &quorum::ledger::Call, answer: &Answer) -> String {
    let deed = format!("{:?}", call.deed);
    let deed = deed.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
    format!("{deed} {:?}", answer.outcome)
}

#[test]
fn scripts_and_model_answer_the_same_to_any_history() {
    let server = Server::start();
    let (mut connection, keys) = (server.connect(), Keys::new("quorumgate"));
    let scripts = Scripts::load(&mut connection, &keys);
    let started = Instant::now();
    let rounds = STEPS / ENDPOINTS;
    let outcomes = run(&mut connection, (&scripts, &keys), 0..ENDPOINTS, rounds).unwrap();
    println!("{STEPS} steps in {:?}: {outcomes:#?}", started.elapsed());
    // Every way of every call was gone, and not by a single history.
    for outcome in [Outcome::Done, Outcome::Stale, Outcome::Fenced] {
        for deed in ["Advance", "Carry", "Order"] {
            let tag = format!("{deed} {outcome:?}");
            assert!(outcomes.get(&tag).is_some_and(|count| *count > 20), "{tag}: {outcomes:?}");
        }
    }
    let more = ["Cast Done", "Cast Opened", "Cast Fenced", "Take Done", "Take Led", "Take Fenced"];
    let of_lead = ["Renew Done", "Renew Led", "Renew Fenced", "Release Done", "Advance Led"];
    for tag in more.iter().chain(&of_lead) {
        assert!(outcomes.get(*tag).is_some_and(|count| *count > 20), "{tag}: {outcomes:?}");
    }
}

/// Differences planted in the scripts: each is a line of the rule.
const PLANTED: [(&str, &str); 15] = [
    ("math.floor(tally.electorate / 2) + 1", "math.ceil(tally.electorate / 2)"),
    ("math.max(tally.electorate, word.electorate)", "tally.electorate"),
    ("SEEN.version ~= page.version or ", ""),
    ("page.run ~= run then\n    page.version", "false then\n    page.version"),
    ("known.seq >= seq", "known.seq > seq"),
    ("tally.witnesses >= WITNESSES_MIN", "true"),
    ("raised(page.epoch, 1)", "page.epoch"),
    ("math.abs(NOW - lease.at) < lease.span", "NOW - lease.at < lease.span"),
    ("leading.number == number", "true"),
    ("step.incident <= closed", "step.incident < closed"),
    ("step.incident <= tally.written", "step.incident < tally.written"),
    ("tally.heirs >= tally.quorum", "tally.holders >= tally.quorum"),
    ("and is_after(tally.of, voter)", "and false"),
    ("if SEEN.version > page.version then", "if false then"),
    ("return difference > 0", "return difference < 0"),
];

#[test]
fn a_difference_in_any_line_of_the_rule_is_found() {
    let server = Server::start();
    let (mut connection, keys) = (server.connect(), Keys::new("quorumgate"));
    for (line, other) in PLANTED {
        let alter = |source: String| source.replace(line, other);
        let scripts = Scripts::load_altered(&mut connection, &keys, alter);
        let found = run(&mut connection, (&scripts, &keys), 0..ENDPOINTS, 200);
        assert!(found.is_err(), "{line} -> {other} goes unnoticed");
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
    }
}
