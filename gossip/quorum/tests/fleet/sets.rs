//! Claims about whole sets: order, repetition and absurd numbers in what is heard do no harm.

use std::time::Duration;

use quorum::view::{EndpointView, MemberView};
use quorum::{
    Basis, Card, Council, EndpointKey, Enrolment, Evidence, Forced, Heard, Local, LocalOpening,
    Member, NodeId, Override, PoolKey, ProbeResult, Stage, Standing, Stated, Statement, Step, Vote,
    VoteState, Window,
};

use super::chance::Chance;
use super::world::{conviction, recovery, rule};

pub(crate) const START: Duration = Duration::from_secs(1_000);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn key() -> EndpointKey {
    EndpointKey::new("llama/gpu-a")
}

pub(crate) fn council() -> Council {
    let mut council = Council::new(NodeId::new("gw-0"), rule(), START);
    let (pool, recovery) = (PoolKey::new("llama"), recovery());
    council.enrol(key(), Enrolment { pool, recovery, conviction: conviction() });
    council
}

pub(crate) fn member(index: u64, generation: u64, heard: Vec<Heard>) -> Member {
    let card = Card {
        version: String::new(),
        config_hash: String::new(),
        standing: Standing::Serving,
        is_suspect: false,
    };
    Member {
        id: NodeId::new(&format!("gw-{index}")),
        generation,
        address: String::new(),
        is_live: true,
        card: Some(card),
        pulse: 0,
        heard,
    }
}

fn vote(incident: u64, stands: bool) -> Statement {
    let evidence = Evidence::default();
    let reason = "faults".to_owned();
    let basis = Basis::FirstHand;
    let state = if stands { VoteState::Stands } else { VoteState::Withdrawn };
    Statement::Vote(key(), Vote { incident, basis, state, reason, evidence, age: seconds(2) })
}

/// A step whose steward and durations follow from its place in the order, as they do in a fleet
/// whose views agree.
fn step(incident: u64, failures: u32, stage: u64) -> Statement {
    let remaining = seconds(incident + u64::from(failures));
    let stage = match stage {
        0 => Stage::Waiting { remaining },
        1 => Stage::Probing { remaining },
        2 => Stage::Canary {
            holder: NodeId::new(&format!("gw-{}", failures % 3)),
            turn: failures,
            successes: failures % 2,
            remaining,
        },
        _ => Stage::Closed,
    };
    let steward = NodeId::new(&format!("gw-{}", failures % 4));
    let (level, age, is_held) = (failures, seconds(20), stage != Stage::Closed);
    Statement::Step(key(), Step { incident, failures, level, stage, steward, age, is_held })
}

/// A window with so many faults, and slow evidence if there is none.
fn window(faults: u32) -> Statement {
    let window = Window {
        requests: 2 + faults,
        faults_milli: faults * 1_000,
        successes: 2,
        slow: (faults == 0).then_some(seconds(1)).into_iter().collect(),
        last_success: Some(seconds(3)),
        has_small: faults.is_multiple_of(2),
    };
    Statement::Window(key(), window)
}

fn order(stamp: u64, author: u64) -> Statement {
    let forced = if author.is_multiple_of(2) { Forced::Open } else { Forced::Closed };
    let remaining = Some(seconds(100 + stamp % 100 + author));
    let author = NodeId::new(&format!("gw-{author}"));
    Statement::Override(key(), Override { forced, stamp, author, remaining, reason: String::new() })
}

/// What one member has stated, one thing after the other, as an honest one does: its steps and
/// orders only ever go further, its vote may change in any way.
fn some_statements(chance: &mut Chance, stages: u64) -> Vec<Heard> {
    let mut steps: Vec<(u64, u32, u64)> = (0..chance.below(3))
        .map(|_| (1 + chance.below(3), chance.below(3) as u32, chance.below(stages)))
        .collect();
    let mut orders: Vec<(u64, u64)> =
        (0..chance.below(3)).map(|_| (1 + chance.below(5), chance.below(4))).collect();
    steps.sort_unstable();
    orders.sort_unstable();
    let votes = (0..chance.below(3)).map(|_| vote(1 + chance.below(4), chance.happens(700)));
    let mut statements: Vec<Statement> = votes.collect();
    statements.extend(steps.into_iter().map(|(k, failures, stage)| step(k, failures, stage)));
    statements.extend(orders.into_iter().map(|(stamp, author)| order(stamp, author)));
    statements.extend((0..chance.below(3)).map(|_| window(chance.below(4) as u32)));
    statements.into_iter().zip(1..).map(|(statement, seq)| Heard { seq, statement }).collect()
}

/// Random sets of five members, some of them heard of in two generations.
fn some_sets(chance: &mut Chance, stages: u64) -> Vec<Member> {
    let mut members = Vec::new();
    for index in 1..=5 {
        for generation in 1..=1 + chance.below(2) {
            members.push(member(index, generation, some_statements(chance, stages)));
        }
    }
    members
}

/// Tells `council` the sets at one moment, in some order, some of it more than once.
fn tell(council: &mut Council, now: Duration, sets: &[Member], chance: &mut Chance) {
    for _ in 0..2 {
        let mut told: Vec<Member> = sets.to_vec();
        for member in &mut told {
            let again: Vec<Heard> =
                member.heard.iter().filter(|_| chance.happens(300)).cloned().collect();
            member.heard.extend(again);
            chance.shuffle(&mut member.heard);
        }
        chance.shuffle(&mut told);
        council.hear(now, &told);
    }
}

fn seen(council: &Council, now: Duration) -> (EndpointView, Vec<MemberView>) {
    (council.endpoint(now, &key()).unwrap(), council.members(now))
}

#[test]
fn the_same_sets_in_any_order_give_the_same_view() {
    for seed in 0..2_000 {
        let mut chance = Chance::new(seed);
        let sets = some_sets(&mut chance, 4);
        let (mut one, mut other) = (council(), council());
        tell(&mut one, START, &sets, &mut chance);
        tell(&mut other, START, &sets, &mut chance);
        let later = START + seconds(2);
        assert_eq!(seen(&one, later), seen(&other, later), "seed {seed}");
    }
}

#[test]
fn the_same_sets_in_any_order_leave_an_opening_the_same() {
    let mut opened = 0;
    for seed in 0..1_000 {
        let mut chance = Chance::new(seed);
        let voted = |seq| vec![Heard { seq, statement: vote(1, true) }];
        let voters: Vec<Member> = (1..=5).map(|index| member(index, 1, voted(1))).collect();
        let sets = some_sets(&mut chance, 3);
        let views = [(), ()].map(|()| {
            let mut council = council();
            council.hear(START, &voters);
            let mut now = START;
            while now < START + seconds(4) {
                now += Duration::from_millis(500);
                council.step(now);
            }
            assert!(seen(&council, now).0.is_open, "seed {seed}");
            tell(&mut council, now, &sets, &mut chance);
            seen(&council, now)
        });
        opened += 1;
        assert_eq!(views[0], views[1], "seed {seed}");
    }
    assert_eq!(opened, 1_000);
}

#[test]
fn a_set_heard_again_changes_nothing_and_decides_nothing() {
    let mut council = council();
    let sets = vec![
        member(1, 1, vec![Heard { seq: 1, statement: vote(1, true) }]),
        member(2, 1, vec![Heard { seq: 1, statement: vote(1, true) }]),
    ];
    let mut decisions = 0;
    for tick in 0..40 {
        let now = START + Duration::from_millis(100 * tick);
        council.hear(now, &sets);
        decisions += council.step(now).len();
    }
    assert_eq!(decisions, 1, "one opening, however often its votes are heard");
}

/// What a member says that lies, or is broken, in every number it can give.
fn absurd() -> Vec<Heard> {
    let huge = Duration::MAX;
    let mut absurd = vec![vote(u64::MAX, true), order(u64::MAX, 3)];
    for stage in [Stage::Waiting { remaining: huge }, Stage::Probing { remaining: huge }] {
        for (incident, failures) in [(1, u32::MAX), (u64::MAX, 0)] {
            let steward = NodeId::new("gw-1");
            let level = u32::MAX;
            let (stage, is_held) = (stage.clone(), true);
            let step = Step { incident, failures, level, stage, steward, age: huge, is_held };
            absurd.push(Statement::Step(key(), step));
        }
    }
    let Statement::Vote(_, plain) = vote(1, true) else { unreachable!() };
    absurd.push(Statement::Vote(key(), Vote { age: huge, ..plain }));
    let Statement::Override(_, plain) = order(3, 1) else { unreachable!() };
    absurd.push(Statement::Override(key(), Override { remaining: Some(huge), ..plain }));
    absurd.into_iter().zip(1..).map(|(statement, seq)| Heard { seq, statement }).collect()
}

#[test]
fn absurd_numbers_do_no_harm() {
    let mut council = council();
    let voted = |seq| Heard { seq, statement: vote(1, true) };
    let mut now = START;
    for heard in absurd() {
        let honest: Vec<Member> =
            (2..=4).map(|index| member(index, 1, vec![voted(heard.seq)])).collect();
        council.hear(now, &honest);
        council.hear(now, &[honest.clone(), vec![member(1, 1, vec![heard])]].concat());
        for _ in 0..40 {
            now += Duration::from_millis(100);
            council.step(now);
            council.statements(now);
            seen(&council, now);
        }
        council.probed(now, &key(), (1, u32::MAX), ProbeResult::Failed);
        council.probed(now, &key(), (1, u32::MAX), ProbeResult::Inconclusive);
    }
    assert!(seen(&council, now).0.is_open, "the honest majority opened");
    assert!(council.order(now, &key(), (Forced::Auto, None), "an operator's word still counts"));
    assert_eq!(seen(&council, now).0.forced, Forced::Auto);
}

#[test]
fn no_lie_about_an_incident_number_voids_the_votes_of_the_others() {
    let mut council = council();
    let voted = |seq| Heard { seq, statement: vote(1, true) };
    let honest: Vec<Member> = (2..=4).map(|index| member(index, 1, vec![voted(1)])).collect();
    council.hear(START, &honest);
    for seq in 1..=100 {
        let lie = Heard { seq, statement: vote(seq * 1_000_000, true) };
        council.hear(START, &[honest.clone(), vec![member(1, 1, vec![lie])]].concat());
    }
    let tally = council.count(START, &key());
    assert_eq!((tally.counted, tally.void), (3, 1));
}

/// What `members` say when each states one vote, for the incident given.
fn claims(members: &[(u64, u64)]) -> Vec<Member> {
    let voted = |incident| vec![Heard { seq: 1, statement: vote(incident, true) }];
    members.iter().map(|(index, incident)| member(*index, 1, voted(*incident))).collect()
}

#[test]
fn a_fresh_node_does_not_let_one_huge_number_void_all_others() {
    // Whatever comes first, the lie or the truth, and whoever is met first.
    for told in [[(4, 1 << 39), (1, 7), (2, 7)], [(1, 7), (2, 7), (4, 1 << 39)]] {
        let mut council = council();
        for count in 1..=3 {
            council.hear(START, &claims(&told[..count]));
        }
        council.hear(START, &claims(&told));
        let tally = council.count(START, &key());
        assert_eq!((tally.counted, tally.void), (2, 1));
    }
}

#[test]
fn a_number_far_above_is_believed_when_a_second_member_supports_it() {
    let mut council = council();
    council.hear(START, &claims(&[(1, 5_000), (3, 1)]));
    assert_eq!(council.count(START, &key()).incident, 1, "one alone is not believed");
    council.hear(START, &claims(&[(1, 5_000), (2, 5_000), (3, 1)]));
    let tally = council.count(START, &key());
    assert_eq!((tally.counted, tally.incident, tally.void), (2, 5_000, 1));
}

#[test]
fn a_number_far_above_is_believed_of_the_only_other_member() {
    let mut council = council();
    let mut now = START;
    for _ in 0..40 {
        council.hear(now, &claims(&[(1, 5_000)]));
        council.step(now);
        now += Duration::from_millis(100);
    }
    let tally = council.count(now, &key());
    assert_eq!((tally.counted, tally.incident), (1, 5_000));
}

#[test]
fn a_step_that_waited_for_support_is_followed_once_it_has_it() {
    let told = |index| member(index, 1, vec![Heard { seq: 1, statement: step(9_000, 0, 3) }]);
    let mut council = council();
    let honest = claims(&[(3, 1)]);
    council.hear(START, &[honest.clone(), vec![told(1)]].concat());
    assert_eq!(seen(&council, START).0.step, None);
    council.hear(START, &[honest, vec![told(1), told(2)]].concat());
    assert_eq!(seen(&council, START).0.step.unwrap().incident, 9_000);
}

#[test]
fn a_liar_that_counts_ahead_does_not_keep_an_honest_vote_from_counting() {
    let mut council = council();
    let mut honest = claims(&[(2, 1)]);
    for (seq, incident) in (1..).zip((100..4_000).step_by(100)) {
        let lie = Heard { seq, statement: vote(incident, true) };
        honest.push(member(1, 1, vec![lie]));
        council.hear(START, &honest);
        honest.pop();
    }
    let opening =
        LocalOpening { since: START, reason: "faults".to_owned(), evidence: Evidence::default() };
    council.state(START, &key(), open(&opening));
    let tally = council.count(START, &key());
    assert!(tally.counted >= 2, "its own and the honest one: {tally:?}");
    assert!(tally.incident <= 1_024, "{tally:?}");
}

#[test]
fn what_is_not_in_a_set_with_a_greater_pulse_was_taken_back() {
    let mut council = council();
    let voted = vec![Heard { seq: 1, statement: vote(1, true) }];
    let told = |pulse, heard: &[Heard]| Member { pulse, ..member(1, 1, heard.to_vec()) };
    council.hear(START, &[told(1, &voted)]);
    council.hear(START, &[told(1, &[])]);
    assert_eq!(council.count(START, &key()).counted, 1, "a part of a set says nothing");
    council.hear(START, &[told(2, &[])]);
    assert_eq!(council.count(START, &key()).counted, 0);
    council.hear(START, &[told(1, &voted)]);
    assert_eq!(council.count(START, &key()).counted, 0, "what is old does not come back");
}

#[test]
fn statements_about_endpoints_that_are_not_enrolled_are_not_taken_in() {
    let mut council = council();
    let Statement::Vote(_, plain) = vote(1, true) else { unreachable!() };
    let foreign = Statement::Vote(EndpointKey::new("llama/other"), plain);
    council.hear(START, &[member(1, 1, vec![Heard { seq: 1, statement: foreign }])]);
    assert!(council.endpoint(START, &EndpointKey::new("llama/other")).is_none());
    assert_eq!(council.count(START, &EndpointKey::new("llama/other")).counted, 0);
}

pub(crate) fn open(opening: &LocalOpening) -> Local {
    Local { opening: Some(opening.clone()), ..Local::default() }
}

#[test]
fn a_node_states_the_worst_windows_and_no_more_than_its_bound() {
    let mut council = council();
    let (pool, recovery) = (PoolKey::new("many"), recovery());
    let enrolment = Enrolment { pool, recovery, conviction: conviction() };
    for index in 0..300_u32 {
        let endpoint = EndpointKey::new(&format!("many/e{index}"));
        council.enrol(endpoint.clone(), enrolment.clone());
        let window = Window {
            requests: 400,
            faults_milli: 1 + index,
            successes: 399,
            last_success: Some(seconds(0)),
            ..Window::default()
        };
        council.state(START, &endpoint, Local { window, ..Local::default() });
    }
    council.step(START);
    let stated = council.statements(START).unwrap().stated;
    let told = |stated: &Stated| match &stated.statement {
        Statement::Window(_, window) => Some(window.faults_milli),
        Statement::Vote(..)
        | Statement::Step(..)
        | Statement::Override(..)
        | Statement::Member(..) => None,
    };
    let faults: Vec<u32> = stated.iter().filter_map(told).collect();
    assert_eq!(faults.len(), 256);
    assert_eq!(faults.iter().min(), Some(&45), "the forty-four with the least are left out");
}

#[test]
fn a_node_that_has_nothing_to_stand_by_says_nothing() {
    let mut council = council();
    for tick in 0..600 {
        let now = START + Duration::from_millis(100 * tick);
        council.hear(now, &[member(1, 1, Vec::new())]);
        council.state(now, &key(), Local::default());
        council.step(now);
        assert_eq!(council.statements(now), None);
    }
}

#[test]
fn a_breaker_that_is_slow_to_follow_a_closing_does_not_vote_again() {
    let mut council = council();
    let local =
        LocalOpening { since: START, reason: "faults".to_owned(), evidence: Evidence::default() };
    council.state(START, &key(), open(&local));
    assert_eq!(council.count(START, &key()).counted, 1);
    let closing = Heard { seq: 1, statement: step(1, 0, 3) };
    let now = START + seconds(1);
    council.hear(now, &[member(1, 1, vec![closing])]);
    for tick in 0..50 {
        let now = now + Duration::from_millis(100 * tick);
        council.state(now, &key(), open(&local));
        assert_eq!(council.count(now, &key()).counted, 0);
    }
    let again = LocalOpening { since: now + seconds(6), ..local };
    council.state(again.since, &key(), open(&again));
    let tally = council.count(again.since, &key());
    assert_eq!((tally.counted, tally.incident), (1, 2), "a new opening is a new incident");
}

#[test]
fn of_two_tellings_of_a_cool_down_the_earlier_end_holds() {
    let told = |remaining| {
        let Statement::Step(key, plain) = step(1, 1, 0) else { unreachable!() };
        let stage = Stage::Waiting { remaining: seconds(remaining) };
        vec![Heard { seq: 1, statement: Statement::Step(key, Step { stage, ..plain }) }]
    };
    for (first, second) in [(20, 5), (5, 20)] {
        let mut council = council();
        council.hear(START, &[member(1, 1, told(first))]);
        council.hear(START, &[member(1, 1, told(first)), member(2, 1, told(second))]);
        let known = seen(&council, START).0.step.unwrap();
        assert_eq!(known.stage.remaining(), seconds(5));
    }
}
