//! What is heard of a life, and for how long it is taken to live.

use quorum::{Basis, EndpointKey, Evidence, Statement, Vote, VoteState};

use super::*;
use crate::codec;
use crate::records::to_value;
use crate::seal::tests::{nodes, seals};

/// The text of a record that nobody signs.
fn text(seals: &Seals, key: &str, seq: u64, body: Body) -> String {
    let place = Place { node_id: "one", generation: 1, key };
    to_value(&seals.seal(place, codec::encode(&Record { seq, body }).unwrap()).unwrap())
}

fn vote() -> Body {
    let vote = Vote {
        incident: 1,
        basis: Basis::FirstHand,
        state: VoteState::Stands,
        reason: String::new(),
        evidence: Evidence::default(),
        age: Duration::ZERO,
    };
    Body::Statement(Statement::Vote(EndpointKey::new("a"), vote))
}

/// A life with the state that chitchat holds of it.
struct Scene {
    life: Life,
    state: NodeState,
    seals: Seals,
    stats: Stats,
}

impl Scene {
    fn new() -> Self {
        let (state, seals) = (NodeState::for_test(), Seals::new("fleet", None));
        Self { life: Life::default(), state, seals, stats: Stats::default() }
    }

    /// Writes the record, as its writer or as somebody who plays it again, and reads the state.
    fn write(&mut self, key: &str, seq: u64, body: Body) {
        self.state.set(key, text(&self.seals, key, seq, body));
        self.read();
    }

    fn read(&mut self) {
        self.life.note(&self.state);
        self.life.open(("one", 1), &mut self.seals, &self.stats);
    }

    fn seq(&self, key: &str) -> Option<u64> {
        self.life.records().find(|(at, _)| *at == key).map(|(_, record)| record.seq)
    }

    fn rejects(&self) -> u64 {
        self.stats.rejects(Reject::Implausible)
    }
}

#[test]
fn an_older_record_played_again_does_not_replace_a_younger_one() {
    let mut scene = Scene::new();
    scene.write("v/a", 5, vote());
    scene.write("v/a", 7, vote());
    scene.write("v/a", 5, vote());
    assert_eq!((scene.seq("v/a"), scene.rejects()), (Some(7), 1));
    scene.write("v/a", 8, vote());
    assert_eq!((scene.seq("v/a"), scene.rejects()), (Some(8), 1));
}

#[test]
fn what_was_taken_back_before_a_pulse_cannot_be_played_again_after_it() {
    let mut scene = Scene::new();
    scene.write("v/a", 5, vote());
    scene.state.delete("v/a");
    scene.write("p", 5, Body::Pulse(1));
    assert_eq!(scene.seq("v/a"), None);
    scene.write("v/a", 5, vote());
    assert_eq!((scene.seq("v/a"), scene.rejects()), (None, 1));
    scene.write("v/a", 6, vote());
    assert_eq!(scene.seq("v/a"), Some(6), "what is stated anew is heard");
}

#[test]
fn a_record_that_is_signed_anew_stays() {
    let mut scene = Scene::new();
    scene.write("v/a", 5, vote());
    scene.write("p", 5, Body::Pulse(1));
    // The same record after the pulse, as another key would sign it.
    scene.state.delete("v/a");
    scene.state.set("v/a", text(&scene.seals, "v/a", 5, vote()));
    scene.read();
    assert_eq!((scene.seq("v/a"), scene.rejects()), (Some(5), 0));
}

#[test]
fn what_came_before_its_writers_certificate_is_heard_once_that_is_there() {
    let directory = nodes(&["one", "two"]);
    let one = seals(&directory, "one");
    let mut scene = Scene { seals: seals(&directory, "two"), ..Scene::new() };
    scene.state.set("v/a", text(&one, "v/a", 5, vote()));
    scene.read();
    assert_eq!(scene.seq("v/a"), None);
    assert!(!scene.life.is_proven());
    let chain = one.chain();
    scene.state.set("k", text(&one, "k", 1, Body::Certificate(chain)));
    scene.read();
    // The next look at chitchat's state reads it again.
    scene.read();
    assert_eq!(scene.seq("v/a"), Some(5));
    assert_eq!(scene.stats.rejects(Reject::Signature), 1);
    scene.life.forget();
    assert!(!scene.life.is_proven(), "it is to be opened anew");
    scene.read();
    assert_eq!(scene.seq("v/a"), Some(5));
}

#[test]
fn an_older_pulse_does_not_replace_a_younger_one() {
    let mut scene = Scene::new();
    scene.write("p", 5, Body::Pulse(9));
    scene.write("p", 5, Body::Pulse(8));
    assert_eq!((scene.life.pulse(), scene.rejects()), (Some((9, 5)), 1));
}

#[test]
fn g10_a_number_that_would_freeze_the_voter_is_refused_and_the_voter_is_heard_again() {
    let mut scene = Scene::new();
    scene.write("v/a", 3, vote());
    scene.write("v/a", 1 << 39, vote());
    assert_eq!((scene.seq("v/a"), scene.rejects()), (None, 1));
    scene.write("v/a", 4, vote());
    assert_eq!(scene.seq("v/a"), Some(4));
    // The codec itself carries no number above 2^53, and no step waits longer than a day.
    let record = Record { seq: u64::MAX, body: vote() };
    assert!(codec::encode(&record).is_err());
}

#[test]
fn a_live_member_outlives_a_hasty_detector_but_not_its_silence() {
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let mut life = Life::default();
    let mut is_live = |heartbeat, is_live, seconds| {
        life.judge(heartbeat, is_live, second, start + seconds * second);
        life.is_live
    };
    assert!(!is_live(1, false, 0), "one heartbeat may be an old one");
    assert!(is_live(2, true, 1));
    assert!(is_live(2, false, 3));
    assert!(!is_live(2, false, 4));
    assert!(!is_live(3, false, 5), "the floor holds up, it does not bring back");
}

#[test]
fn a_silent_member_does_not_outlive_a_patient_detector() {
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let mut life = Life::default();
    life.judge(1, false, second, start);
    life.judge(2, true, second, start);
    life.judge(2, true, second, start + 4 * second);
    assert!(life.is_live);
    life.judge(2, true, second, start + 5 * second);
    assert!(!life.is_live);
}
