//! The ledger's rule as claims: who opens, who leads, what is written on which version, what is lost.

use std::time::Duration;

use quorum::ledger::{
    Against, Answer, Begin, Book, Call, Deed, EPOCH_LEAP, Floor, Lead, NUMBER_LEAP, NUMBER_MAX,
    Outcome, WORDS_MAX, Word,
};
use quorum::{EndpointKey, Forced, NodeId, Override, Stage, Step};

const LEASE: Duration = Duration::from_secs(5);
const COOL_DOWN: Duration = Duration::from_secs(10);

/// A book, the clock it goes by, and callers that know what they were answered last.
struct Desk {
    book: Book,
    now: Duration,
    floor: Floor,
    seq: u64,
}

impl Desk {
    fn new() -> Self {
        let now = Duration::from_secs(1_000);
        Self { book: Book::default(), now, floor: Floor::default(), seq: 0 }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// A call of `by` that knows all that was answered so far.
    fn call(&mut self, by: &str, deed: Deed) -> Answer {
        let answer = self.call_with(by, 1, self.floor, deed);
        self.floor = answer.entry.floor;
        answer
    }

    fn call_with(&mut self, by: &str, generation: u64, floor: Floor, deed: Deed) -> Answer {
        let endpoint = EndpointKey::new("pool/gpu-a");
        let call = Call { endpoint, by: NodeId::new(by), generation, floor, deed };
        self.book.apply(self.now, &call)
    }

    fn word(&mut self) -> Word {
        self.seq += 1;
        let opening = Some(Begin { level: 0, cool_down: COOL_DOWN });
        Word { seq: self.seq, lease: LEASE, electorate: 3, opening, ..Word::default() }
    }

    fn vote(&mut self, by: &str, incident: u64) -> Answer {
        let vote = Some(Against { incident, is_first_hand: true });
        let word = Word { vote, ..self.word() };
        self.call(by, Deed::Cast(word))
    }

    fn second(&mut self, by: &str, incident: u64) -> Answer {
        let vote = Some(Against { incident, is_first_hand: false });
        let word = Word { vote, ..self.word() };
        self.call(by, Deed::Cast(word))
    }

    fn holds(&mut self, by: &str, step: Step) -> Answer {
        let word = Word { hold: Some(step), ..self.word() };
        self.call(by, Deed::Cast(word))
    }

    /// Opens incident 1 by two of three.
    fn open(&mut self) -> Answer {
        assert_eq!(self.vote("gw-1", 1).outcome, Outcome::Done);
        let answer = self.vote("gw-2", 1);
        assert_eq!(answer.outcome, Outcome::Opened);
        answer
    }

    fn take(&mut self, by: &str) -> Result<u64, Outcome> {
        let answer = self.call(by, Deed::Take { hold: LEASE });
        match (answer.outcome, answer.entry.lead) {
            (Outcome::Done, Some(Lead { number, .. })) => Ok(number),
            (outcome, _) => Err(outcome),
        }
    }

    fn advance(&mut self, by: &str, number: u64, step: Step) -> Outcome {
        self.call(by, Deed::Advance { number, step }).outcome
    }

    fn standing(&mut self) -> Option<Step> {
        self.call_with("anybody", 1, Floor::default(), Deed::Read).entry.step
    }
}

fn step(incident: u64, failures: u32, stage: Stage) -> Step {
    let is_held = stage != Stage::Closed;
    let steward = NodeId::new("gw-1");
    Step { incident, failures, level: failures, stage, steward, age: Duration::ZERO, is_held }
}

fn probing(incident: u64) -> Step {
    step(incident, 0, Stage::Probing { remaining: Duration::from_secs(2) })
}

fn order(stamp: u64, author: &str) -> Override {
    let author = NodeId::new(author);
    let remaining = Some(Duration::from_secs(60));
    Override { forced: Forced::Open, stamp, author, remaining, reason: "work".to_owned() }
}

#[test]
fn a_majority_of_votes_opens_once() {
    let mut desk = Desk::new();
    let answer = desk.open();
    let opened = answer.entry.step.unwrap();
    assert_eq!((opened.incident, opened.failures, opened.level), (1, 0, 0));
    assert_eq!(opened.stage, Stage::Waiting { remaining: COOL_DOWN });
    assert_eq!(opened.steward, NodeId::new("gw-2"));
    assert_eq!((answer.entry.count.first_hand, answer.entry.count.quorum), (2, 2));
    assert_eq!(desk.vote("gw-3", 1).outcome, Outcome::Done);
    assert_eq!(desk.standing().unwrap().incident, 1);
}

#[test]
fn who_knows_few_members_does_not_open_for_those_who_know_more() {
    let mut desk = Desk::new();
    let vote = Some(Against { incident: 1, is_first_hand: true });
    let of = |desk: &mut Desk, electorate| Word { vote, electorate, ..desk.word() };
    let word = of(&mut desk, 5);
    desk.call("gw-1", Deed::Cast(word));
    let word = of(&mut desk, 2);
    let answer = desk.call("gw-2", Deed::Cast(word));
    assert_eq!((answer.outcome, answer.entry.count.quorum), (Outcome::Done, 3));
    let word = Word { discounted: vec![NodeId::new("gw-3")], ..of(&mut desk, 3) };
    assert_eq!(desk.call("gw-4", Deed::Cast(word)).outcome, Outcome::Opened);
}

#[test]
fn a_vote_whose_lease_is_over_does_not_count() {
    let mut desk = Desk::new();
    desk.vote("gw-1", 1);
    desk.pass(5);
    assert_eq!(desk.vote("gw-2", 1).outcome, Outcome::Done);
    assert_eq!(desk.vote("gw-1", 1).outcome, Outcome::Opened);
}

#[test]
fn an_opening_outlasts_its_votes() {
    let mut desk = Desk::new();
    desk.open();
    desk.pass(3_600);
    let word = desk.word();
    desk.call("gw-1", Deed::Cast(word));
    let standing = desk.standing().unwrap();
    assert_eq!(standing.stage, Stage::Waiting { remaining: Duration::ZERO });
    assert_eq!(standing.age, Duration::from_secs(3_600));
}

#[test]
fn a_seconded_vote_needs_two_witnesses() {
    let mut desk = Desk::new();
    desk.vote("gw-1", 1);
    assert_eq!(desk.second("gw-2", 1).outcome, Outcome::Done);
    let word = Word { is_witness: true, ..desk.word() };
    let answer = desk.call("gw-3", Deed::Cast(word));
    assert_eq!(answer.outcome, Outcome::Opened);
    assert_eq!((answer.entry.count.seconded, answer.entry.count.counted), (1, 2));
}

#[test]
fn a_discounted_member_neither_votes_nor_witnesses_nor_holds() {
    let mut desk = Desk::new();
    desk.vote("gw-1", 1);
    let vote = Some(Against { incident: 1, is_first_hand: true });
    let discounted = vec![NodeId::new("gw-1")];
    let word = Word { vote, hold: Some(probing(1)), discounted, ..desk.word() };
    let answer = desk.call("gw-2", Deed::Cast(word));
    assert_eq!(answer.outcome, Outcome::Done);
    assert_eq!((answer.entry.count.first_hand, answer.entry.count.holders), (1, 1));
}

#[test]
fn without_leave_a_majority_does_not_open() {
    let mut desk = Desk::new();
    desk.vote("gw-1", 1);
    let vote = Some(Against { incident: 1, is_first_hand: true });
    let word = Word { vote, opening: None, ..desk.word() };
    let answer = desk.call("gw-2", Deed::Cast(word));
    assert_eq!((answer.outcome, answer.entry.count.counted), (Outcome::Done, 2));
    assert_eq!(desk.vote("gw-1", 1).outcome, Outcome::Opened);
}

#[test]
fn an_older_word_that_comes_late_changes_nothing() {
    let mut desk = Desk::new();
    desk.vote("gw-1", 1);
    let late = Word { vote: Some(Against { incident: 1, is_first_hand: true }), ..desk.word() };
    let word = desk.word();
    desk.call("gw-2", Deed::Cast(word));
    assert_eq!(desk.call("gw-2", Deed::Cast(late)).outcome, Outcome::Done);
    assert_eq!(desk.standing(), None);
}

#[test]
fn a_call_of_an_earlier_life_writes_nothing() {
    let mut desk = Desk::new();
    let word = desk.word();
    let answer = desk.call_with("gw-1", 7, Floor::default(), Deed::Cast(word));
    let seen = Floor { version: 90, epoch: 90, lead: 90 };
    let word = desk.word();
    for deed in [Deed::Cast(word), Deed::Take { hold: LEASE }, Deed::Order(order(1, "gw-1"))] {
        let late = desk.call_with("gw-1", 6, seen, deed);
        assert_eq!(late, Answer { outcome: Outcome::Fenced, entry: answer.entry.clone() });
    }
}

#[test]
fn an_incident_that_closed_is_voted_for_in_vain() {
    let mut desk = Desk::new();
    desk.open();
    let number = desk.take("gw-1").unwrap();
    assert_eq!(desk.advance("gw-1", number, step(1, 0, Stage::Closed)), Outcome::Done);
    assert_eq!(desk.call("gw-1", Deed::Read).entry.lead, None);
    desk.vote("gw-1", 1);
    desk.vote("gw-2", 1);
    assert_eq!(desk.vote("gw-3", 1).outcome, Outcome::Done);
    desk.vote("gw-1", 2);
    assert_eq!(desk.vote("gw-2", 2).entry.step.unwrap().incident, 2);
}

#[test]
fn one_leads_at_a_time_under_numbers_that_grow() {
    let mut desk = Desk::new();
    let first = desk.take("gw-1").unwrap();
    assert_eq!(desk.take("gw-2"), Err(Outcome::Led));
    desk.pass(4);
    assert_eq!(
        desk.call("gw-1", Deed::Renew { number: first, hold: LEASE }).outcome,
        Outcome::Done
    );
    desk.pass(4);
    assert_eq!(desk.take("gw-2"), Err(Outcome::Led));
    desk.pass(1);
    let second = desk.take("gw-2").unwrap();
    assert!(second > first);
    let renewed = desk.call("gw-1", Deed::Renew { number: first, hold: LEASE });
    assert_eq!(renewed.outcome, Outcome::Led);
    assert_eq!(desk.call("gw-2", Deed::Release { number: first }).outcome, Outcome::Fenced);
    assert_eq!(desk.call("gw-2", Deed::Release { number: second }).outcome, Outcome::Done);
    assert!(desk.take("gw-1").unwrap() > second);
}

#[test]
fn a_restarted_leader_takes_its_own_lead_over() {
    let mut desk = Desk::new();
    let first = desk.take("gw-1").unwrap();
    let answer = desk.call_with("gw-1", 2, desk.floor, Deed::Take { hold: LEASE });
    assert_eq!(answer.outcome, Outcome::Done);
    assert!(answer.entry.lead.unwrap().number > first);
    let renewed = desk.call("gw-1", Deed::Renew { number: first, hold: LEASE });
    assert_eq!(renewed.outcome, Outcome::Fenced);
}

#[test]
fn a_clock_that_is_set_back_frees_the_lead() {
    let mut desk = Desk::new();
    desk.take("gw-1").unwrap();
    desk.now -= Duration::from_secs(4);
    assert_eq!(desk.take("gw-2"), Err(Outcome::Led));
    desk.now -= Duration::from_secs(1);
    assert!(desk.take("gw-2").is_ok());
}

#[test]
fn a_step_is_written_by_who_leads_on_the_version_it_knows() {
    let mut desk = Desk::new();
    desk.open();
    assert_eq!(desk.advance("gw-1", 1, probing(1)), Outcome::Fenced);
    let number = desk.take("gw-1").unwrap();
    let known = desk.floor;
    assert_eq!(desk.advance("gw-2", number, probing(1)), Outcome::Led);
    assert_eq!(desk.advance("gw-1", number + 1, probing(1)), Outcome::Fenced);
    desk.call("gw-3", Deed::Order(order(1, "gw-3")));
    let late = desk.call_with("gw-1", 1, known, Deed::Advance { number, step: probing(1) });
    assert_eq!(late.outcome, Outcome::Stale);
    assert_eq!(desk.advance("gw-1", number, probing(1)), Outcome::Done);
    assert_eq!(desk.advance("gw-1", number, probing(2)), Outcome::Stale);
    let waiting = step(1, 0, Stage::Waiting { remaining: COOL_DOWN });
    assert_eq!(desk.advance("gw-1", number, waiting), Outcome::Stale);
    let failed = step(1, 1, Stage::Waiting { remaining: COOL_DOWN });
    assert_eq!(desk.advance("gw-1", number, failed), Outcome::Done);
}

#[test]
fn words_and_renewals_do_not_make_a_step_stale() {
    let mut desk = Desk::new();
    desk.open();
    let number = desk.take("gw-1").unwrap();
    let known = desk.floor;
    desk.vote("gw-3", 1);
    desk.call("gw-1", Deed::Renew { number, hold: LEASE });
    let answer = desk.call_with("gw-1", 1, known, Deed::Advance { number, step: probing(1) });
    assert_eq!(answer.outcome, Outcome::Done);
}

#[test]
fn a_second_probe_waits_until_the_first_is_over() {
    let mut desk = Desk::new();
    desk.open();
    let number = desk.take("gw-1").unwrap();
    assert_eq!(desk.advance("gw-1", number, probing(1)), Outcome::Done);
    assert_eq!(desk.advance("gw-1", number, probing(1)), Outcome::Done);
    desk.call("gw-1", Deed::Release { number });
    let number = desk.take("gw-2").unwrap();
    let anew = Step { steward: NodeId::new("gw-2"), ..probing(1) };
    desk.pass(1);
    assert_eq!(desk.advance("gw-2", number, anew.clone()), Outcome::Stale);
    desk.pass(1);
    assert_eq!(desk.advance("gw-2", number, anew), Outcome::Done);
}

#[test]
fn a_lost_opening_comes_back_by_the_word_of_those_who_have_it_out() {
    let mut desk = Desk::new();
    desk.open();
    let number = desk.take("gw-1").unwrap();
    desk.advance("gw-1", number, probing(1));
    let held = desk.standing().unwrap();
    let seen = desk.floor;
    desk.book.flush();
    assert_eq!(desk.holds("gw-1", held.clone()).outcome, Outcome::Done);
    assert_eq!(desk.standing(), None);
    desk.pass(1);
    let answer = desk.holds("gw-2", held);
    assert_eq!(answer.outcome, Outcome::Opened);
    let remaining = Duration::from_secs(1);
    assert_eq!(answer.entry.step.unwrap().stage, Stage::Probing { remaining });
    assert!(answer.entry.floor.version > seen.version);
    assert_eq!(answer.entry.floor.epoch, seen.epoch);
}

#[test]
fn what_a_majority_has_out_takes_the_place_of_an_older_incident() {
    let mut desk = Desk::new();
    desk.open();
    desk.take("gw-3").unwrap();
    assert_eq!(desk.holds("gw-1", probing(3)).outcome, Outcome::Done);
    let answer = desk.holds("gw-2", probing(1));
    assert_eq!((answer.outcome, answer.entry.count.holders), (Outcome::Done, 2));
    assert_eq!(desk.standing().unwrap().incident, 1);
    let answer = desk.holds("gw-2", probing(2));
    assert_eq!((answer.outcome, answer.entry.lead), (Outcome::Opened, None));
    assert_eq!(desk.standing().unwrap().incident, 3);
    assert_eq!(desk.holds("gw-1", probing(2)).outcome, Outcome::Done);
    assert_eq!(desk.holds("gw-3", probing(3)).outcome, Outcome::Done);
    assert_eq!(desk.standing().unwrap().incident, 3);
}

#[test]
fn no_epoch_opens_twice_for_who_has_seen_it() {
    let mut desk = Desk::new();
    desk.open();
    let seen = desk.floor;
    desk.book.flush();
    desk.vote("gw-1", 1);
    desk.vote("gw-3", 1);
    let answer = desk.vote("gw-2", 1);
    assert_eq!(answer.entry.step.unwrap().incident, seen.epoch + 1);
}

#[test]
fn after_a_failover_all_numbers_leap() {
    let mut desk = Desk::new();
    desk.vote("gw-1", 1);
    desk.take("gw-1").unwrap();
    let copy = desk.book.clone();
    let before = desk.floor;
    assert_eq!(desk.vote("gw-2", 1).outcome, Outcome::Opened);
    desk.book = copy;
    desk.book.fail_over();
    // Neither the third nor the first has seen what is lost.
    desk.floor = before;
    let answer = desk.vote("gw-3", 1);
    assert_eq!(answer.outcome, Outcome::Opened);
    assert_eq!(answer.entry.step.unwrap().incident, EPOCH_LEAP + 1);
    assert_eq!(answer.entry.floor.version, before.version + NUMBER_LEAP + 1);
    let next = desk.take("gw-2").unwrap();
    assert_eq!(next, before.lead + NUMBER_LEAP + 1);
}

#[test]
fn who_has_seen_more_than_the_ledger_raises_its_version() {
    let mut desk = Desk::new();
    desk.open();
    let number = desk.take("gw-1").unwrap();
    let seen = Floor { version: 40, ..desk.floor };
    let deed = Deed::Advance { number, step: probing(1) };
    let answer = desk.call_with("gw-1", 1, seen, deed.clone());
    assert_eq!((answer.outcome, answer.entry.floor.version), (Outcome::Stale, 41));
    let answer = desk.call_with("gw-1", 1, answer.entry.floor, deed);
    assert_eq!((answer.outcome, answer.entry.floor.version), (Outcome::Done, 42));
}

#[test]
fn numbers_end_without_turning_over() {
    let mut desk = Desk::new();
    desk.open();
    let seen = Floor { version: NUMBER_MAX, epoch: 1, lead: NUMBER_MAX };
    let answer = desk.call_with("gw-1", 1, seen, Deed::Take { hold: LEASE });
    assert_eq!(answer.entry.floor, Floor { version: NUMBER_MAX, epoch: 1, lead: NUMBER_MAX });
    let deed = Deed::Advance { number: NUMBER_MAX, step: probing(1) };
    assert_eq!(desk.call_with("gw-1", 1, seen, deed).outcome, Outcome::Done);
}

#[test]
fn what_is_carried_up_closes_or_goes_on_and_never_opens() {
    let mut desk = Desk::new();
    assert_eq!(desk.call("gw-1", Deed::Carry(probing(1))).outcome, Outcome::Stale);
    desk.open();
    assert_eq!(desk.call("gw-3", Deed::Carry(probing(2))).outcome, Outcome::Stale);
    assert_eq!(desk.call("gw-3", Deed::Carry(probing(1))).outcome, Outcome::Done);
    assert_eq!(desk.call("gw-3", Deed::Carry(probing(1))).outcome, Outcome::Done);
    desk.take("gw-1").unwrap();
    let closed = step(3, 0, Stage::Closed);
    let answer = desk.call("gw-3", Deed::Carry(closed.clone()));
    assert_eq!((answer.outcome, answer.entry.lead), (Outcome::Done, None));
    let later = step(3, 1, Stage::Waiting { remaining: COOL_DOWN });
    assert_eq!(desk.call("gw-3", Deed::Carry(later)).outcome, Outcome::Stale);
    assert_eq!(desk.standing(), Some(closed));
}

#[test]
fn the_newest_order_stands() {
    let mut desk = Desk::new();
    assert_eq!(desk.call("gw-1", Deed::Order(order(2, "gw-1"))).outcome, Outcome::Done);
    let version = desk.floor.version;
    assert_eq!(desk.call("gw-1", Deed::Order(order(2, "gw-1"))).outcome, Outcome::Done);
    assert_eq!(desk.call("gw-2", Deed::Order(order(1, "gw-2"))).outcome, Outcome::Stale);
    assert_eq!(desk.floor.version, version);
    desk.pass(50);
    let standing = desk.call("gw-2", Deed::Read).entry.order.unwrap();
    assert_eq!(standing.remaining, Some(Duration::from_secs(10)));
    assert_eq!(desk.call("gw-2", Deed::Order(order(2, "gw-2"))).outcome, Outcome::Done);
}

#[test]
fn words_of_more_members_than_count_are_not_kept() {
    let mut desk = Desk::new();
    for member in 0..WORDS_MAX {
        let word = desk.word();
        let answer = desk.call(&format!("gw-{member}"), Deed::Cast(word));
        assert_eq!(answer.outcome, Outcome::Done);
    }
    let word = desk.word();
    assert_eq!(desk.call("one-more", Deed::Cast(word)).outcome, Outcome::Stale);
    let word = desk.word();
    assert_eq!(desk.call("gw-0", Deed::Cast(word)).outcome, Outcome::Done);
    desk.pass(5);
    let word = desk.word();
    assert_eq!(desk.call("one-more", Deed::Cast(word)).outcome, Outcome::Done);
}
