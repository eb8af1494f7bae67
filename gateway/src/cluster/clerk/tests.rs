//! Claims about the clerk: what it asks for, and what it makes of answers and of their absence.

use std::time::Duration;

use quorum::ledger::{Answer, Book, Call, Deed, Entry, Lead, Outcome};
use quorum::{
    Conviction, Council, EndpointKey, Enrolment, Evidence, Forced, Local, LocalOpening, NodeId,
    PoolKey, Recovery, Reliance, Stage, Step, Way,
};

use super::{Clerk, IN_FLIGHT_MAX};
use crate::cluster::council_rule;

const fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn key(number: usize) -> EndpointKey {
    EndpointKey::new(&format!("pool/e{number}"))
}

fn enrolment() -> Enrolment {
    let way = Way::Ladder { probe: true, canaries: 0, turn: at(2_000) };
    Enrolment {
        pool: PoolKey::new("pool"),
        recovery: Recovery {
            base: at(1_000),
            max: at(4_000),
            reset_after: at(60_000),
            probe_timeout: at(1_000),
            way,
        },
        conviction: Conviction {
            failure_threshold: 4,
            failure_ratio_milli: 500,
            min_requests: 10,
            window: at(30_000),
            dedup: at(5_000),
            confirmations: 2,
        },
    }
}

/// A council of so many endpoints, its clerk, and a ledger.
struct Office {
    council: Council,
    clerk: Clerk,
    book: Book,
}

impl Office {
    fn new(endpoints: usize) -> Self {
        let mut council = Council::new(NodeId::new("gw"), council_rule(None), at(0));
        council.live_as(2);
        for number in 0..endpoints {
            council.enrol(key(number), enrolment());
        }
        Self { council, clerk: Clerk::default(), book: Book::default() }
    }

    /// The same, once all was read and it relies on the ledger.
    fn reading(endpoints: usize) -> Self {
        let mut office = Self::new(endpoints);
        while !office.clerk.is_reconciled() {
            office.turn(at(1));
        }
        office.council.rely(at(1), Reliance::Ledger);
        office
    }

    fn calls(&mut self, now: Duration) -> Vec<Call> {
        self.clerk.calls(now, &mut self.council)
    }

    fn answer(&mut self, now: Duration, call: &Call, answer: Option<&Answer>) {
        self.clerk.answered(now, &mut self.council, call, answer);
    }

    /// Asks the ledger all that is due, a step before. Returns what was asked.
    fn turn(&mut self, now: Duration) -> Vec<Call> {
        self.council.step(now);
        let calls = self.calls(now);
        for call in &calls {
            let answer = self.book.apply(now, call);
            self.answer(now, call, Some(&answer));
        }
        calls
    }

    /// Goes on for a while, ten times a second, and states what there is to be stated.
    fn run(&mut self, from: Duration, to: Duration) {
        let mut now = from;
        while now < to {
            self.turn(now);
            self.council.statements(now);
            now += at(100);
        }
    }

    /// What the ledger holds of the first endpoint.
    fn entry(&mut self) -> Entry {
        let (by, floor, deed) = (NodeId::new("anybody"), Default::default(), Deed::Read);
        let read = Call { endpoint: key(0), by, generation: 1, floor, deed };
        self.book.apply(at(0), &read).entry
    }

    fn accuse(&mut self, now: Duration, is_bad: bool) {
        let (reason, evidence) = (String::new(), Evidence::default());
        let opening = is_bad.then_some(LocalOpening { since: now, reason, evidence });
        self.council.state(now, &key(0), Local { opening, ..Local::default() });
    }
}

fn is_cast(call: &Call) -> bool {
    matches!(call.deed, Deed::Cast(_))
}

#[test]
fn everything_is_read_before_the_council_relies_on_the_ledger() {
    let mut office = Office::new(300);
    let first = office.calls(at(1));
    assert_eq!(first.len(), IN_FLIGHT_MAX);
    assert!(first.iter().all(|call| call.deed == Deed::Read && call.generation == 2));
    assert!(office.calls(at(1)).is_empty(), "no more are in flight at a time");
    for call in &first {
        let answer = office.book.apply(at(2), call);
        office.answer(at(2), call, Some(&answer));
    }
    assert!(!office.clerk.is_reconciled());
    assert_eq!(office.turn(at(3)).len(), 300 - IN_FLIGHT_MAX);
    assert!(office.clerk.is_reconciled());
    office.clerk.lose();
    assert!(!office.clerk.is_reconciled());
}

#[test]
fn endpoints_of_which_nothing_is_said_are_read_once_an_interval() {
    let mut office = Office::reading(3);
    assert!(office.turn(at(500)).is_empty());
    assert_eq!(office.turn(at(1_100)).len(), 3);
    assert!(office.turn(at(1_200)).is_empty());
}

#[test]
fn a_vote_is_cast_at_once_renewed_and_taken_back_by_an_empty_word() {
    let mut office = Office::reading(1);
    office.accuse(at(100), true);
    let cast = office.turn(at(100)).pop().unwrap();
    assert!(matches!(&cast.deed, Deed::Cast(word) if word.vote.is_some() && word.seq == 1));
    assert!(office.turn(at(200)).is_empty());
    assert!(office.turn(at(1_100)).iter().any(is_cast), "a word is renewed");
    office.accuse(at(1_200), false);
    let cast = office.turn(at(1_200)).pop().unwrap();
    assert!(matches!(&cast.deed, Deed::Cast(word) if word.vote.is_none() && word.seq == 3));
    assert!(!office.turn(at(2_300)).iter().any(is_cast), "and that once");
}

#[test]
fn a_call_without_an_answer_is_followed_by_another_after_a_pause() {
    let mut office = Office::reading(1);
    office.accuse(at(100), true);
    office.council.step(at(100));
    let cast = office.calls(at(100)).pop().unwrap();
    assert!(office.calls(at(150)).is_empty(), "one call an endpoint is in flight");
    office.answer(at(200), &cast, None);
    assert!(office.calls(at(201)).is_empty());
    assert!(office.calls(at(400)).iter().any(is_cast), "nobody knows whether it was done");
}

#[test]
fn an_answer_that_took_longer_than_an_interval_says_nothing() {
    let mut office = Office::new(1);
    let read = office.calls(at(1)).pop().unwrap();
    let answer = office.book.apply(at(2), &read);
    office.answer(at(1_100), &read, Some(&answer));
    assert!(!office.clerk.is_reconciled());
}

#[test]
fn an_answer_to_a_call_that_was_given_up_changes_nothing() {
    let mut office = Office::reading(1);
    let read = office.calls(at(1_100)).pop().unwrap();
    office.clerk.lose();
    let answer = office.book.apply(at(1_200), &read);
    office.answer(at(1_200), &read, Some(&answer));
    assert!(!office.clerk.is_reconciled());
}

#[test]
fn a_notice_of_another_version_is_followed_by_a_read() {
    let mut office = Office::reading(2);
    office.clerk.noticed(&key(1), 0);
    assert!(office.turn(at(100)).is_empty(), "it has that version");
    office.clerk.noticed(&key(1), 7);
    let calls = office.turn(at(200));
    assert!(calls.len() == 1 && calls[0].endpoint == key(1) && calls[0].deed == Deed::Read);
}

#[test]
fn what_the_ledger_has_lost_of_a_calm_endpoint_is_put_back() {
    let mut office = Office::reading(1);
    let step = Step {
        incident: 3,
        failures: 0,
        level: 0,
        stage: Stage::Closed,
        steward: NodeId::new("gw-2"),
        age: at(0),
        is_held: false,
    };
    let entry = Entry { step: Some(step), ..Entry::default() };
    office.council.enter(at(100), &key(0), &entry);
    office.council.order(at(100), &key(0), (Forced::Open, None), "work");
    office.run(at(100), at(20_000));
    assert!(!office.council.is_stirred(&key(0)), "nothing is said of it");
    let before = office.entry();
    assert!(before.step.is_some() && before.order.is_some(), "{before:?}");
    office.book.flush();
    office.run(at(20_000), at(23_000));
    let after = office.entry();
    assert_eq!(after.step.map(|step| step.incident), Some(3));
    assert_eq!(after.order.map(|order| order.reason), Some("work".to_owned()));
}

#[test]
fn a_lead_that_is_of_no_use_is_let_go_of_and_so_is_all_at_parting() {
    let mut office = Office::reading(1);
    office.accuse(at(100), true);
    office.turn(at(100));
    office.clerk.noticed(&key(0), 9);
    office.council.step(at(200));
    let read = office.calls(at(200)).pop().unwrap();
    let lead = Lead { holder: NodeId::new("gw"), generation: 2, number: 5, remaining: at(3_000) };
    let entry = Entry { lead: Some(lead), ..Entry::default() };
    office.answer(at(200), &read, Some(&Answer { outcome: Outcome::Done, entry }));
    let parting = office.clerk.parting(at(300), &office.council);
    assert!(is_cast(&parting[0]) && parting[1].deed == Deed::Release { number: 5 });
    office.clerk.lose();
    assert!(office.clerk.parting(at(300), &office.council).iter().all(is_cast));
}
