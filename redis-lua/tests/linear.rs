//! What concurrent callers of the ledger are told can always be told as one call after the other.
//!
//! Histories of real calls to a real Redis, over connections that are slow and lose answers, are
//! searched for an order in which the book (`quorum::ledger::Book`) would have told the same. Each
//! history is of one endpoint, for a history of several is linearizable exactly if each endpoint's is
//! (Herlihy and Wing 1990). How time is left out of it says `linear/ledger.rs`.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop loudly")]

#[path = "linear/caller.rs"]
mod caller;
#[path = "linear/checker.rs"]
mod checker;
#[path = "linear/doors.rs"]
mod doors;
#[path = "linear/history.rs"]
mod history;
#[path = "linear/ledger.rs"]
mod ledger;
#[path = "linear/redis.rs"]
mod redis;
#[path = "servers/mod.rs"]
mod servers;
#[path = "linear/wire.rs"]
mod wire;
#[path = "linear/writers.rs"]
mod writers;

use std::collections::BTreeMap;
use std::time::Instant;

use quorum::EndpointKey;
use redis_lua::keys::Keys;
use tokio::task::JoinSet;

use crate::checker::Verdict;
use crate::doors::{BookDoor, Fault};
use crate::history::{History, record};
use crate::ledger::TERM;
use crate::redis::{RedisDoor, connect};
use crate::servers::Standalone;
use crate::writers::Writer;

/// Histories of a real Redis.
const HISTORIES: u64 = 320;
/// So many of them are recorded at once.
const AT_ONCE: usize = 16;

/// What a number of histories came to.
#[derive(Debug, Default)]
struct Total {
    calls: usize,
    lost: usize,
    unsent: usize,
    outcomes: BTreeMap<String, usize>,
}

impl Total {
    fn add(&mut self, history: &History) {
        self.calls += history.events.len();
        self.lost += history.lost();
        self.unsent += history.unsent;
        for (outcome, count) in history.outcomes() {
            *self.outcomes.entry(outcome).or_default() += count;
        }
    }
}

/// Many histories of a book, one after the other, on virtual time.
async fn of_the_book(fault: Fault, seeds: std::ops::Range<u64>) -> Vec<(u64, History)> {
    let mut histories = Vec::new();
    for seed in seeds {
        let door = BookDoor::new(fault, seed);
        histories.push((seed, record(&door, &EndpointKey::new("m/a"), seed).await));
    }
    histories
}

#[tokio::test(start_paused = true)]
async fn what_the_book_answers_can_be_told_in_order_whatever_was_lost() {
    let mut total = Total::default();
    for (seed, history) in of_the_book(Fault::None, 0..200).await {
        assert_eq!(history.verdict(), Verdict::Legal, "seed {seed}\n{}", history.story());
        total.add(&history);
    }
    eprintln!("200 histories of the book: {total:?}");
}

#[tokio::test(start_paused = true)]
async fn faults_planted_before_the_book_are_caught() {
    for fault in [Fault::LostUpdate, Fault::StaleRead] {
        let histories = of_the_book(fault, 0..100).await;
        let caught = histories.iter().filter(|(_, history)| is_illegal(history)).count();
        eprintln!("{fault:?} before the book: caught in {caught} of 100 histories");
        assert!(caught >= 10, "{fault:?}: {caught}");
    }
}

fn is_illegal(history: &History) -> bool {
    matches!(history.verdict(), Verdict::Illegal(_))
}

/// So many histories of a Redis, each of an endpoint of its own, some at a time.
async fn of_redis(fault: Fault, count: u64, seed: u64) -> Vec<(u64, History)> {
    let server = Standalone::start();
    let door = RedisDoor::to(server.server.port, fault, seed).await;
    let mut histories = Vec::new();
    let began = Instant::now();
    for first in (0..count).step_by(AT_ONCE) {
        let mut tasks = JoinSet::new();
        for number in first..count.min(first + AT_ONCE as u64) {
            let door = door.clone();
            let endpoint = EndpointKey::new(&format!("m/{number}"));
            tasks.spawn(async move { (number, record(&door, &endpoint, seed ^ number).await) });
        }
        histories.extend(tasks.join_all().await);
    }
    assert!(began.elapsed() < TERM, "something may have ended by its term");
    histories
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_answers_can_be_told_in_order_whatever_was_lost() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut total = Total::default();
    for (number, history) in of_redis(Fault::None, HISTORIES, seed).await {
        let verdict = history.verdict();
        assert_eq!(verdict, Verdict::Legal, "seed {seed}, history {number}\n{}", history.story());
        total.add(&history);
    }
    eprintln!("{HISTORIES} histories of Redis: {total:?}");
    for outcome in ["Done", "Opened", "Stale", "Led", "Fenced"] {
        assert!(total.outcomes.contains_key(outcome), "none is {outcome}: {total:?}");
    }
    assert!(total.lost > 0 && total.calls > HISTORIES as usize * 40, "{total:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_planted_before_redis_are_caught() {
    let seed = fastrand::u64(..);
    for fault in [Fault::LostUpdate, Fault::StaleRead] {
        let histories = of_redis(fault, 64, seed).await;
        let caught = histories.iter().filter(|(_, history)| is_illegal(history)).count();
        eprintln!("seed {seed}, {fault:?} before Redis: caught in {caught} of 64 histories");
        assert!(caught > 0, "seed {seed}, {fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r13_two_writers_a_thousand_times_a_second_each_lose_no_update() {
    let server = Standalone::start();
    let (first, _first) = connect(server.url(), writers::TIMEOUT).await;
    let (second, _second) = connect(server.url(), writers::TIMEOUT).await;
    let (keys, endpoint) = (Keys::new("writers"), EndpointKey::new("m/a"));
    let mut reader = Writer::begin(first.clone(), &keys, &endpoint).await;
    let before = reader.read().await;
    let (one, other) = (reader.hand(first, "gw-1"), reader.hand(second, "gw-2"));
    let began = Instant::now();
    let tallies = [tokio::spawn(one.write()), tokio::spawn(other.write())];
    let mut all = writers::Tally::default();
    for tally in tallies {
        all.add(tally.await.unwrap());
    }
    let (took, after) = (began.elapsed(), reader.read().await);
    eprintln!("{} in {took:?}", all.told());
    assert_eq!(writers::turn_of(&after) - writers::turn_of(&before), all.steps, "a lost step");
    let writes = u64::from(all.steps + all.orders);
    assert_eq!(after.floor.version - before.floor.version, writes, "a lost write");
    assert!(all.conflicts > 0, "they never met");
}
