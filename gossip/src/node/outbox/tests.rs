//! What is written, pushed and deleted.

use std::time::Duration;

use quorum::{Basis, EndpointKey, Evidence, Standing, Stated, Statement, Vote, VoteState};

use super::*;
use crate::records::from_value;

fn vote(endpoint: &str, seq: u64, fresh: bool) -> Stated {
    let vote = Vote {
        incident: 1,
        basis: Basis::FirstHand,
        state: VoteState::Stands,
        reason: "504".to_owned(),
        evidence: Evidence::default(),
        age: Duration::ZERO,
    };
    Stated { seq, fresh, statement: Statement::Vote(EndpointKey::new(endpoint), vote) }
}

fn seals() -> Seals {
    Seals::new("fleet", None)
}

fn sealer(seals: &Seals) -> Sealer<'_> {
    Sealer { seals, node_id: "one", generation: 1 }
}

fn read(value: &str) -> Record {
    codec::decode(&from_value(value).unwrap().record).unwrap()
}

fn mine(stated: Vec<Stated>) -> Mine {
    Mine { card: None, stated, pulse: 0 }
}

fn take(outbox: &mut Outbox, stated: Vec<Stated>) -> (usize, usize, usize) {
    let letters = outbox.take(&mine(stated), sealer(&seals()), &Stats::default());
    (letters.write.len(), letters.delete.len(), letters.push.len())
}

#[test]
fn a_key_is_written_when_its_number_has_grown_and_pushed_when_it_is_news() {
    let mut outbox = Outbox::default();
    assert_eq!(take(&mut outbox, vec![vote("a", 1, true)]), (1, 0, 1));
    assert_eq!(take(&mut outbox, vec![vote("a", 1, true)]), (0, 0, 0));
    assert_eq!(take(&mut outbox, vec![vote("a", 2, false)]), (1, 0, 0));
    assert_eq!(take(&mut outbox, vec![vote("a", 1, true)]), (0, 0, 0));
    assert_eq!(take(&mut outbox, vec![]), (0, 1, 0));
    assert_eq!(take(&mut outbox, vec![]), (0, 0, 0));
}

#[test]
fn the_greater_number_is_stated_whatever_the_order() {
    for stated in
        [vec![vote("a", 1, true), vote("a", 2, true)], vec![vote("a", 2, true), vote("a", 1, true)]]
    {
        let letters = Outbox::default().take(&mine(stated), sealer(&seals()), &Stats::default());
        let [(_, value)] = letters.write.as_slice() else {
            panic!("one key is written");
        };
        assert_eq!(read(value).seq, 2);
    }
}

#[test]
fn a_new_life_is_told_everything_again_but_pushes_nothing_twice() {
    let mut outbox = Outbox::default();
    take(&mut outbox, vec![vote("a", 1, true), vote("b", 2, true)]);
    outbox.begin_life();
    assert_eq!(take(&mut outbox, vec![vote("a", 1, true), vote("b", 2, true)]), (2, 0, 0));
}

#[test]
fn a_changed_card_is_news() {
    let mut outbox = Outbox::default();
    let card = |standing| Card {
        version: String::new(),
        config_hash: String::new(),
        standing,
        is_suspect: false,
    };
    let stats = Stats::default();
    let mut mine = Mine { card: Some(card(Standing::Serving)), ..Mine::default() };
    assert_eq!(outbox.take(&mine, sealer(&seals()), &stats).push.len(), 1);
    assert_eq!(outbox.take(&mine, sealer(&seals()), &stats), Letters::default());
    mine.card = Some(card(Standing::Left));
    assert_eq!(outbox.take(&mine, sealer(&seals()), &stats).push.len(), 1);
}

#[test]
fn a_pulse_is_written_when_it_has_grown_and_names_what_was_stated_before_it() {
    let (mut outbox, stats) = (Outbox::default(), Stats::default());
    let mut all = mine(vec![vote("a", 7, false), vote("b", 4, false)]);
    let mut pulse = |all: &Mine| {
        let (_, value) = outbox.take(all, sealer(&seals()), &stats).pulse?;
        let record = read(&value);
        Some((record.seq, record.body))
    };
    assert_eq!(pulse(&all), None, "there is none yet");
    all.pulse = 3;
    assert_eq!(pulse(&all), Some((7, Body::Pulse(3))));
    assert_eq!(pulse(&all), None);
    all.pulse = 2;
    assert_eq!(pulse(&all), None, "it does not shrink");
    all.stated.clear();
    all.pulse = 4;
    assert_eq!(pulse(&all), Some((7, Body::Pulse(4))), "what was taken back counts too");
    outbox.begin_life();
    assert!(
        outbox.take(&all, sealer(&seals()), &stats).pulse.is_some(),
        "a new life is told again"
    );
}

#[test]
fn g19_what_is_beyond_the_bounds_is_counted_and_left_out() {
    let stats = Stats::default();
    let mut stated: Vec<_> =
        (0..RECORDS_MAX as u64).map(|number| vote(&number.to_string(), 1, false)).collect();
    stated.push(vote("one too many", 1, false));
    stated[0] = vote(&"long".repeat(100), 1, false);
    stated[1] = vote("chat/new\nline", 1, false);
    let letters = Outbox::default().take(&mine(stated), sealer(&seals()), &stats);
    assert_eq!(letters.write.len(), RECORDS_MAX - 2);
    assert_eq!(stats.unstated.load(std::sync::atomic::Ordering::Relaxed), 3);
}

#[test]
fn g19_no_key_and_no_value_is_longer_than_chitchat_counts() {
    // chitchat writes lengths in two bytes and cuts what is beyond without a word.
    assert!(crate::records::KEY_BYTES_MAX <= usize::from(u16::MAX));
    assert!(crate::records::VALUE_BYTES_MAX <= usize::from(u16::MAX));
}
