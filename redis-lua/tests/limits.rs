//! The limits' script against the rule it carries: histories by chance through both, on a real server.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop loudly"
)]

mod servers;

use std::time::{Duration, Instant};

use redis_lua::keys::Keys;
use redis_lua::limits::{
    Answer, Book, Correction, Figures, Kind, Load, Subject, Turn, Verdict, What,
};

use crate::servers::Standalone;

const SOURCE: &str = include_str!("../lua/limit_turn.lua");

fn connect(server: &Standalone) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

/// The script by a clock that the test sets.
fn by_our_clock() -> String {
    let told = SOURCE.replace("redis.call('TIME')", "redis.call('HMGET', 'clock', 's', 'us')");
    assert_ne!(told, SOURCE);
    told
}

fn run(
    connection: &mut redis::Connection,
    script: &redis::Script,
    subject: &Subject,
    turn: &Turn,
) -> Answer {
    let mut invocation = script.prepare_invoke();
    for key in subject.keys() {
        invocation.key(key);
    }
    for argument in turn.arguments() {
        invocation.arg(argument);
    }
    let value: redis::Value = invocation.invoke(connection).unwrap();
    Answer::read(&value).unwrap_or_else(|| panic!("{value:?}"))
}

/// One history by chance: three nodes, one subject, and everything that counts.
struct History {
    chance: fastrand::Rng,
    figures: Figures,
    subject: Subject,
    now: Duration,
    book: Book,
    in_use: [u64; 3],
    /// What was counted, by moment, and may be corrected.
    counted: Vec<(u64, Load)>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let figures = Figures {
            requests: (chance.u8(..4) > 0).then(|| chance.u64(1..200)),
            tokens: (chance.u8(..4) > 0).then(|| chance.u64(1..5_000)),
            slots: (chance.u8(..4) > 0).then(|| chance.u64(1..40)),
        };
        Self {
            figures,
            subject: Subject::new(&Keys::new("test"), Kind::Caller, &format!("{seed} {{}}")),
            now: Duration::from_micros(chance.u64(1 << 50..1 << 51)),
            book: Book::default(),
            in_use: [0; 3],
            counted: Vec::new(),
            chance,
        }
    }

    /// Lets time pass, mostly a little, and back at times.
    fn pass(&mut self) {
        let chance = &mut self.chance;
        let longest = [1, 1_000, 100_000, 1_000_000, 5_000_000, 70_000_000];
        let longest = longest[chance.usize(..6)];
        let period = Duration::from_micros(chance.u64(..=longest));
        let is_back = chance.u8(..20) == 0;
        self.now = if is_back { self.now - period } else { self.now + period };
    }

    fn turn(&mut self) -> Turn {
        let chance = &mut self.chance;
        let node = chance.usize(..3);
        if chance.bool() {
            self.in_use[node] = chance.u64(..=self.in_use[node]);
        }
        let mut corrections = Vec::new();
        for _ in 0..chance.usize(..4) {
            if let Some((at, was)) = chance.choice(&mut self.counted) {
                let (at, was) = (*at, *was);
                let is = Load { requests: was.requests, tokens: chance.u64(..2_000) };
                corrections.push(Correction { at, was, is });
            }
        }
        let most = self.figures.tokens.unwrap_or(100);
        let mut load =
            |most| Load { requests: chance.u64(..most), tokens: chance.u64(..most * 20) };
        let (debt, aside) = (load(3), load(60));
        Turn {
            figures: self.figures,
            node: format!("node {node}"),
            generation: if chance.u8(..50) == 0 { 6 } else { 7 },
            in_use: self.in_use[node],
            keep: chance.u64(..6),
            lease: Duration::from_secs(10),
            debt: if chance.u8(..8) == 0 { debt } else { Load::default() },
            aside: if chance.bool() { aside } else { Load::default() },
            hold: Duration::from_secs(1),
            corrections,
            demands: (0..chance.usize(..5)).map(|_| chance.u64(..most / 4 + 2)).collect(),
        }
    }

    /// What is to be remembered of an answer.
    fn note(&mut self, turn: &Turn, answer: &Answer) {
        let pairs = turn.demands.iter().zip(&answer.verdicts);
        for (tokens, _) in pairs.filter(|(_, verdict)| **verdict == Verdict::Granted) {
            self.in_use[usize::from(turn.node.as_bytes()[5] - b'0')] += 1;
            self.counted.push((answer.at, Load { requests: 1, tokens: *tokens }));
        }
        if answer.aside != Load::default() {
            self.counted.push((answer.aside_at, answer.aside));
        }
        let surplus = self.counted.len().saturating_sub(50);
        self.counted.drain(..surplus);
    }
}

#[test]
fn by_chance_the_script_and_the_rule_answer_alike() {
    let server = Standalone::start();
    let mut connection = connect(&server);
    let script = redis::Script::new(&by_our_clock());
    let (mut steps, mut granted, mut refused) = (0, 0, [0; 3]);
    for _ in 0..60 {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut history = History::new(seed);
        for _ in 0..400 {
            history.pass();
            let turn = history.turn();
            let mut set = redis::cmd("HSET");
            set.arg("clock").arg("s").arg(history.now.as_secs());
            set.arg("us").arg(history.now.subsec_micros()).exec(&mut connection).unwrap();
            let answer = run(&mut connection, &script, &history.subject, &turn);
            let expected = history.book.turn(history.now, &turn);
            assert_eq!(answer, expected, "{turn:?} at {:?}", history.now);
            history.note(&turn, &answer);
            steps += 1;
            for verdict in &answer.verdicts {
                match verdict {
                    Verdict::Granted => granted += 1,
                    Verdict::Full { what, .. } => refused[*what as usize] += 1,
                }
            }
        }
    }
    println!("{steps} steps, {granted} granted, {refused:?} refused");
    assert!(steps >= 20_000 && granted > 1_000 && refused.iter().all(|count| *count > 100));
}

#[test]
fn the_keys_of_a_subject_share_a_slot_whatever_its_name() {
    for kind in [Kind::Caller, Kind::Model, Kind::Endpoint] {
        for name in ["a", "m/b", "}{", "{}", "", "a b%", "ü\n"] {
            let subject = Subject::new(&Keys::new("test"), kind, name);
            let [minute, slots] = subject.keys().map(|key| redis_lua::slot::of(key.as_bytes()));
            assert_eq!(minute, slots, "{subject:?}");
            assert!(subject.keys().iter().all(|key| key.matches('{').count() == 1), "{subject:?}");
        }
    }
}

/// One request of one node.
fn one(figures: Figures, node: &str, tokens: u64) -> Turn {
    Turn {
        figures,
        node: node.to_owned(),
        generation: 1,
        lease: Duration::from_secs(10),
        demands: vec![tokens],
        ..Turn::default()
    }
}

#[test]
fn what_cannot_be_read_is_absent_and_counted() {
    let server = Standalone::start();
    let mut connection = connect(&server);
    let script = redis::Script::new(SOURCE);
    let figures = Figures { requests: Some(10), tokens: None, slots: Some(5) };
    let subject = Subject::new(&Keys::new("test"), Kind::Model, "m");
    let [minute, slots] = subject.keys();
    let mut write = |command: &str, key: &str, values: &[&str]| {
        redis::cmd(command).arg(key).arg(values).exec(&mut connection).unwrap();
        let answer = run(&mut connection, &script, &subject, &one(figures, "a", 1));
        assert_eq!(answer.verdicts, [Verdict::Granted], "{command} {values:?}");
        redis::cmd("DEL").arg(minute).arg(slots).exec(&mut connection).unwrap();
        (answer.torn, answer.sum.requests, answer.slots_of_all)
    };
    assert_eq!(write("SET", minute, &["9"]), (1, 1, 1));
    assert_eq!(write("SET", slots, &["9"]), (1, 1, 1));
    assert_eq!(write("HSET", minute, &["9", "9"]), (1, 1, 1));
    for torn in ["", "9", "1 2 3", "x 1 1 1", "2 1 1 1", "1 1 1 11111111111111111", "1 1 -1 1"] {
        assert_eq!(write("RPUSH", minute, &[torn]), (1, 1, 1), "{torn}");
    }
    for torn in ["", "1", "1 2", "1 -2 3", "1 2 3 4"] {
        assert_eq!(write("HSET", slots, &["b", torn]), (1, 1, 1), "{torn}");
    }
    // Far ahead of the clock: as old as the newest moment may be, and no lease of ours.
    assert_eq!(write("RPUSH", minute, &["9000000000000000 9000000000000000 1 1"]), (0, 2, 1));
    assert_eq!(write("HSET", slots, &["b", "1 4 9000000000000000"]), (0, 1, 1));
}

#[test]
fn memory_is_bounded_and_ends() {
    let server = Standalone::start();
    let mut connection = connect(&server);
    let script = redis::Script::new(&by_our_clock());
    let figures = Figures { requests: Some(1_000_000), tokens: None, slots: Some(5) };
    let subject = Subject::new(&Keys::new("test"), Kind::Endpoint, "m/e");
    let mut turn = one(figures, "a", 1);
    (turn.aside.requests, turn.hold) = (100, Duration::from_secs(1));
    for step in 0..1_500 {
        let micros = 1_000_000_000_000_000_u64 + step * 97_000;
        let mut set = redis::cmd("HSET");
        set.arg("clock").arg("s").arg(micros / 1_000_000).arg("us").arg(micros % 1_000_000);
        set.exec(&mut connection).unwrap();
        run(&mut connection, &script, &subject, &turn);
        let runs: usize = redis::cmd("LLEN").arg(subject.keys()[0]).query(&mut connection).unwrap();
        assert!(runs <= redis_lua::limits::RUNS_MAX, "{runs} runs");
    }
    for (key, most) in subject.keys().into_iter().zip([64_000, 10_000]) {
        let left: i64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
        assert!((1..=most).contains(&left), "{key} {left}");
    }
}

#[test]
fn two_writers_at_once_lose_nothing() {
    let server = Standalone::start();
    let figures = Figures { requests: Some(1_000_000), ..Figures::default() };
    let subject = Subject::new(&Keys::new("test"), Kind::Caller, "a");
    let began = Instant::now();
    let granted: usize = std::thread::scope(|scope| {
        let write = |node: &'static str| {
            let (mut connection, subject) = (connect(&server), &subject);
            scope.spawn(move || {
                let script = redis::Script::new(SOURCE);
                let turns = (0..1_000).map(|_| {
                    let answer = run(&mut connection, &script, subject, &one(figures, node, 1));
                    usize::from(answer.verdicts == [Verdict::Granted])
                });
                turns.sum::<usize>()
            })
        };
        let writers = ["a", "b"].map(write);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let took = began.elapsed();
    let read = Turn { demands: Vec::new(), ..one(figures, "a", 1) };
    let last = run(&mut connect(&server), &redis::Script::new(SOURCE), &subject, &read);
    println!("{granted} takes by two writers in {took:?}, {} counted", last.sum.requests);
    assert_eq!((granted, last.sum.requests), (2_000, 2_000));
}

#[test]
fn slots_return_with_the_lease_of_who_died_and_at_once_to_who_came_back() {
    let server = Standalone::start();
    let mut connection = connect(&server);
    let script = redis::Script::new(SOURCE);
    let figures = Figures { slots: Some(2), ..Figures::default() };
    let subject = Subject::new(&Keys::new("test"), Kind::Model, "m");
    let turn = |node: &str, generation: u64, in_use: u64, lease_ms: u64| Turn {
        generation,
        in_use,
        lease: Duration::from_millis(lease_ms),
        ..one(figures, node, 1)
    };
    let mut ask = |turn: &Turn| run(&mut connection, &script, &subject, turn).verdicts[0];
    let full = Verdict::Full { what: What::Slots, returns_in: Some(Duration::from_secs(1)) };
    assert_eq!(ask(&turn("a", 1, 0, 10_000)), Verdict::Granted);
    assert_eq!(ask(&turn("a", 1, 1, 10_000)), Verdict::Granted);
    assert_eq!(ask(&turn("b", 1, 0, 10_000)), full);
    // Another life of the node has none in flight, and a late word of the old one takes nothing back.
    assert_eq!(ask(&turn("a", 2, 0, 300)), Verdict::Granted);
    assert_eq!(ask(&turn("a", 1, 2, 10_000)), full);
    assert_eq!(ask(&turn("b", 1, 0, 300)), Verdict::Granted);
    assert_eq!(ask(&turn("b", 1, 1, 300)), full);
    let until = Instant::now() + Duration::from_secs(5);
    while ask(&turn("c", 1, 0, 10_000)) == full {
        assert!(Instant::now() < until, "the lease does not end");
    }
}
