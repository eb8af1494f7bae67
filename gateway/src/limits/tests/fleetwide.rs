//! Three nodes and the ledger as a value: what they admit together, by hand and by chance, with time that
//! passes as told, and answers that get lost.

mod amends;

use redis_lua::error::Trouble;
use redis_lua::limits::{Book, Turn};

use super::super::link::Intake;
use super::*;
use crate::metrics::Meters;

const TICK_OF_TELLER: Duration = Duration::from_millis(100);

/// One node with its end of the way to the ledger.
struct Node {
    name: String,
    allowance: Arc<Allowance>,
    link: Arc<Link>,
    intake: Intake,
    meters: Meters,
    /// What its clock shows when the common one shows zero.
    ahead: Duration,
}

/// What becomes of a turn on its way.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Arrives,
    NeverArrives,
    AnswerIsLost,
}

impl Node {
    fn new(limits: &Limits, rank: usize) -> Self {
        let share = Arc::new(Share::default());
        share.set(Part::new(rank, 3));
        let meters = Meters::new();
        let (link, intake) = Link::new(&meters);
        share.join(&link);
        link.stand(Standing::Quick);
        let allowance = Allowance::new(limits, &share, whom()).unwrap();
        let ahead = Duration::from_secs(1_000 * rank as u64);
        Self { name: format!("gw-{rank}"), allowance, link, intake, meters, ahead }
    }

    /// Takes a turn with these demands; the answer is there `delay` after it was sent.
    fn turn(
        &self,
        book: &mut Book,
        (now, delay): (Duration, Duration),
        demands: &[u64],
        fate: Fate,
    ) -> Vec<Result<Charge, Full>> {
        let sent = now + self.ahead;
        let Some(turn) = self.allowance.compose(sent, demands) else { return Vec::new() };
        let turn = Turn { node: self.name.clone(), generation: 1, ..turn };
        // Half-way the ledger's clock, in whole microseconds.
        let by_ledger = Duration::from_secs(1 << 20) + now + delay / 2;
        let by_ledger = Duration::from_micros(by_ledger.as_micros() as u64);
        let answer = (fate != Fate::NeverArrives).then(|| book.turn(by_ledger, &turn));
        let answer = match (&answer, fate) {
            (Some(answer), Fate::Arrives) => Ok(answer),
            (Some(_), _) => Err(Trouble::Timeout),
            (None, _) => Err(Trouble::Busy),
        };
        self.allowance.settled((sent, sent + delay), &turn, answer).0
    }

    /// Asks for one request, of the ledger if need be.
    fn ask(&self, book: &mut Book, now: Duration, tokens: u64) -> Result<Charge, Full> {
        match self.allowance.claim(now + self.ahead, tokens) {
            Claim::Granted(charge) => Ok(charge),
            Claim::Refused(full) => Err(full),
            Claim::Unsure => {
                self.turn(book, (now, Duration::ZERO), &[tokens], Fate::Arrives).pop().unwrap()
            }
        }
    }

    /// Takes the turns that are due without a demand.
    fn tick(&mut self, book: &mut Book, now: Duration) {
        while self.intake.told.try_recv().is_ok() {}
        self.turn(book, (now, Duration::ZERO), &[], Fate::Arrives);
        self.allowance.is_done();
    }
}

fn three(limits: &Limits) -> [Node; 3] {
    [0, 1, 2].map(|rank| Node::new(limits, rank))
}

fn rpm(rpm: u64) -> Limits {
    Limits { rpm: Some(rpm), ..Limits::default() }
}

#[test]
fn f22_however_thirty_requests_fall_ten_are_admitted() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        let (mut nodes, mut book, mut now) = (three(&rpm(10)), Book::default(), at(100));
        let one_node = chance.usize(..3);
        let mut admitted = 0;
        for index in 0..30 {
            let node = match seed % 4 {
                0 => one_node,
                1 => index % 3,
                2 => index / 10,
                _ => chance.usize(..3),
            };
            admitted += usize::from(nodes[node].ask(&mut book, now, 1).is_ok());
            now += Duration::from_millis(chance.u64(..1_900));
            for node in &mut nodes {
                node.tick(&mut book, now);
            }
        }
        assert_eq!(admitted, 10);
    }
}

#[test]
fn what_the_ledger_refuses_is_told_of_the_whole_fleet() {
    let (nodes, mut book) = (three(&rpm(3)), Book::default());
    let charges: Vec<_> =
        nodes.iter().map(|node| node.ask(&mut book, at(10), 1).unwrap()).collect();
    let full = nodes[0].ask(&mut book, at(40), 1).unwrap_err();
    let returns_in = Some(Duration::from_secs(30));
    assert_eq!(full, Full { what: What::Requests, limit: 3, whole: 3, returns_in });
    let left = nodes[0].allowance.left(at(40)).requests.unwrap();
    assert_eq!((left.limit, left.remaining, left.reset), (3, 0, Duration::from_secs(30)));
    // It is repeated for a moment, and then asked about again.
    assert!(matches!(nodes[0].allowance.claim(at(40), 1), Claim::Refused(_)));
    assert!(matches!(nodes[0].allowance.claim(at(41), 1), Claim::Unsure));
    drop(charges);
    assert!(nodes[2].ask(&mut book, at(70), 1).is_ok());
}

#[test]
fn a_busy_node_asks_seldom_and_gives_back_what_it_does_not_use() {
    let ([mut node, ..], mut book) = (three(&rpm(6_000)), Book::default());
    let mut asked = 0;
    for step in 0..1_000_u64 {
        let now = at(100) + Duration::from_millis(step * 20);
        asked += u32::from(
            matches!(node.allowance.look(now, 1), Ok(())) && {
                let claim = node.allowance.claim(now, 1);
                let is_unsure = matches!(claim, Claim::Unsure);
                if is_unsure {
                    node.turn(&mut book, (now, Duration::ZERO), &[1], Fate::Arrives);
                }
                is_unsure
            },
        );
        if step % 5 == 0 {
            node.tick(&mut book, now);
        }
    }
    assert!(asked <= 5, "{asked} of 1,000 have asked");
    for step in 0..15 {
        node.tick(&mut book, at(120) + TICK_OF_TELLER * step);
    }
    let sum = book.sum(Duration::from_secs(1 << 20) + at(122));
    assert_eq!(sum.requests, 1_000, "nothing is set aside for a node that nobody asks");
    assert!(node.allowance.is_done());
}

#[test]
fn corrections_reach_the_ledger() {
    let limits = Limits { tpm: Some(1_000), ..Limits::default() };
    let ([mut one, mut other, _], mut book) = (three(&limits), Book::default());
    let mut charge = one.ask(&mut book, at(10), 100).unwrap();
    let cancelled = one.ask(&mut book, at(10), 300).unwrap();
    charge.correct(900);
    drop(charge);
    cancelled.cancel();
    one.tick(&mut book, at(10) + TICK_OF_TELLER);
    let full = other.ask(&mut book, at(11), 101).unwrap_err();
    assert_eq!((full.what, full.returns_in), (What::Tokens, Some(at(59))));
    one.tick(&mut book, at(12));
    assert!(other.ask(&mut book, at(12), 100).is_ok());
    other.tick(&mut book, at(12));
}

#[test]
fn a_slot_that_is_free_on_one_node_is_free_for_all() {
    let limits = Limits { concurrency: Some(2), ..Limits::default() };
    let (mut nodes, mut book) = (three(&limits), Book::default());
    let first = nodes[0].ask(&mut book, at(1), 1).unwrap();
    let second = nodes[1].ask(&mut book, at(1), 1).unwrap();
    let full = nodes[2].ask(&mut book, at(1), 1).unwrap_err();
    assert_eq!((full.what, full.limit), (What::Concurrency, 2));
    drop(first);
    // The teller is told at once.
    assert!(nodes[0].intake.told.try_recv().is_ok());
    nodes[0].tick(&mut book, at(1));
    let third = nodes[2].ask(&mut book, at(2), 1).unwrap();
    assert!(nodes[0].ask(&mut book, at(2), 1).is_err());
    drop((second, third));
}

#[test]
fn a_slot_that_is_given_up_is_not_used_while_the_word_of_it_is_under_way() {
    let limits = Limits { concurrency: Some(2), ..Limits::default() };
    let ([one, other, _], mut book) = (three(&limits), Book::default());
    drop(one.ask(&mut book, at(1), 1).unwrap());
    let turn = one.allowance.compose(at(1), &[]).unwrap();
    let turn = Turn { node: one.name.clone(), generation: 1, ..turn };
    let answer = book.turn(Duration::from_secs(1 << 20) + at(1), &turn);
    let both = [1, 2].map(|_| other.ask(&mut book, at(1), 1).unwrap());
    assert!(matches!(one.allowance.claim(at(1), 1), Claim::Unsure), "others may have it");
    one.allowance.settled((at(1), at(1)), &turn, Ok(&answer));
    assert!(matches!(one.allowance.claim(at(1), 1), Claim::Unsure));
    drop(both);
}

#[test]
fn without_the_ledger_the_share_holds_and_is_owed() {
    let (mut nodes, mut book) = (three(&rpm(12)), Book::default());
    let take = |node: &Node, now| node.allowance.take(now + node.ahead, 1).map(drop);
    let full = |node: &Node, now| node.ask(&mut Book::default(), now, 1).unwrap_err();
    for node in &nodes {
        node.link.stand(Standing::Away);
        assert_eq!((0..12).filter(|_| take(node, at(5)).is_ok()).count(), 4);
        assert_eq!((full(node, at(5)).limit, full(node, at(5)).whole), (4, 12));
        node.link.stand(Standing::Quick);
    }
    // A turn that surely did not arrive is said again.
    nodes[0].turn(&mut book, (at(6), Duration::ZERO), &[], Fate::NeverArrives);
    for node in &mut nodes {
        node.tick(&mut book, at(6));
    }
    assert_eq!(book.sum(Duration::from_secs(1 << 20) + at(6)).requests, 12);
    assert!(nodes[0].ask(&mut book, at(7), 1).is_err());
    // What the fleet had used up when the ledger went is not there for a share.
    nodes[1].ask(&mut book, at(7), 1).unwrap_err();
    nodes[1].link.stand(Standing::Slow);
    assert!(take(&nodes[1], at(8)).is_err());
}

#[test]
fn a_limit_that_is_lowered_holds_for_a_busy_subject_too() {
    let ([mut node, ..], mut book) = (three(&rpm(6_000)), Book::default());
    let mut ask_for = |node: &mut Node, seconds: std::ops::Range<u64>| {
        let mut admitted = Vec::new();
        for step in 0..(seconds.end - seconds.start) * 50 {
            let now = at(seconds.start) + Duration::from_millis(step * 20);
            admitted.extend(node.ask(&mut book, now, 1));
            if step % 5 == 0 {
                node.tick(&mut book, now);
            }
        }
        admitted
    };
    let running = ask_for(&mut node, 100..110);
    assert_eq!(running.len(), 500);
    let old = Arc::clone(&node.allowance);
    let share = &old.share;
    // One that is made and never asked changes nothing.
    drop(Allowance::under(&rpm(1), share, whom(), Some(&old)));
    assert_eq!(ask_for(&mut node, 110..112).len(), 100);
    node.allowance = Allowance::under(&rpm(700), share, whom(), Some(&old)).unwrap();
    let admitted = ask_for(&mut node, 112..114).len();
    assert_eq!(admitted, 100, "600 of 700 are used up");
    // The teller may know it by those limits under which it began, and what ends is of those.
    drop(running);
    node.allowance = old;
    assert_eq!(ask_for(&mut node, 114..120).len(), 0);
}

/// Three nodes by chance, and all that was admitted.
struct Town {
    chance: fastrand::Rng,
    limits: Limits,
    nodes: [Node; 3],
    book: Book,
    now: Duration,
    log: Vec<(Duration, u64)>,
    running: Vec<Charge>,
}

impl Town {
    fn new(seed: u64) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let scale = [20, 400, 8_000][chance.usize(..3)];
        let limits = Limits {
            rpm: Some(chance.u64(1..scale)),
            tpm: chance.bool().then(|| chance.u64(1_000..scale * 1_000)),
            concurrency: chance.bool().then(|| chance.u32(1..60)),
        };
        let (log, running) = (Vec::new(), Vec::new());
        Self {
            chance,
            limits,
            nodes: three(&limits),
            book: Book::default(),
            now: at(100),
            log,
            running,
        }
    }

    fn step(&mut self) {
        let longest = [1_000, 20_000, 200_000, 3_000_000][self.chance.usize(..4)];
        let until = self.now + Duration::from_micros(self.chance.u64(..longest));
        // The tellers go on meanwhile, or the leases would end.
        while self.now < until {
            self.now = until.min(self.now + Duration::from_millis(500));
            for node in 0..3 {
                let (fate, delay) = (self.fate(), self.delay());
                self.nodes[node].turn(&mut self.book, (self.now, delay), &[], fate);
                self.now += delay;
            }
        }
        let node = self.chance.usize(..3);
        match self.chance.u8(..10) {
            0..=6 => (0..self.chance.usize(1..12)).for_each(|_| self.ask(node)),
            _ => {
                let surplus = self.running.len() / 2;
                self.running.drain(..surplus);
            }
        }
        let most = self.limits.concurrency.unwrap_or(u32::MAX) as usize;
        assert!(self.running.len() <= most, "{} at a time of {most}", self.running.len());
    }

    fn ask(&mut self, node: usize) {
        let tokens = self.chance.u64(..300);
        let (fate, delay) = (self.fate(), self.delay());
        let node = &self.nodes[node];
        let told = match node.allowance.claim(self.now + node.ahead, tokens) {
            Claim::Granted(charge) => Some((self.now, charge)),
            Claim::Refused(_) => None,
            Claim::Unsure => {
                let demands = [tokens];
                let told = node.turn(&mut self.book, (self.now, delay), &demands, fate).pop();
                // It is admitted at the moment at which the ledger has counted it.
                told.and_then(Result::ok).map(|charge| (self.now + delay / 2, charge))
            }
        };
        if let Some((at, charge)) = told {
            self.log.push((at, tokens));
            self.running.push(charge);
        }
        self.now += delay;
    }

    fn fate(&mut self) -> Fate {
        match self.chance.u8(..20) {
            0 => Fate::NeverArrives,
            1 => Fate::AnswerIsLost,
            _ => Fate::Arrives,
        }
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(2 * self.chance.u64(..10_000))
    }

    /// Every minute that ends with an admission.
    fn check(&self) {
        for (index, (last, _)) in self.log.iter().enumerate() {
            let minute = self.log[..=index].iter().rev();
            // The ledger's clock counts whole microseconds.
            let minute =
                minute.take_while(|(at, _)| *last - *at < MINUTE - Duration::from_micros(2));
            let (requests, tokens) =
                minute.fold((0, 0), |(requests, sum), (_, tokens)| (requests + 1, sum + tokens));
            assert!(self.limits.rpm.is_none_or(|most| requests <= most), "{requests} requests");
            assert!(self.limits.tpm.is_none_or(|most| tokens <= most), "{tokens} tokens");
        }
    }
}

#[test]
fn by_chance_three_nodes_together_stay_within_the_figure_in_every_minute() {
    for _ in 0..60 {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut town = Town::new(seed);
        for _ in 0..400 {
            town.step();
        }
        town.check();
    }
}

#[test]
fn a_request_that_finds_something_set_aside_is_as_quick_as_without_a_ledger() {
    let many = rpm(1_000_000_000);
    let ([node, ..], mut book) = (three(&many), Book::default());
    let alone = allowance(1_000_000_000, 0, 0);
    let mut took = [Vec::new(), Vec::new()];
    let mut asked = 0;
    for step in 0..100_000_u64 {
        let now = at(100) + Duration::from_micros(step * 50);
        if step % 2_000 == 0 {
            node.turn(&mut book, (now, Duration::ZERO), &[], Fate::Arrives);
        }
        let began = crate::clock::now();
        let charge = alone.take(now, 1);
        took[0].push(crate::clock::now() - began);
        let began = crate::clock::now();
        let claim = node.allowance.claim(now, 1);
        took[1].push(crate::clock::now() - began);
        if matches!(claim, Claim::Unsure) {
            asked += 1;
            node.turn(&mut book, (now, Duration::ZERO), &[1], Fate::Arrives);
        }
        drop((charge, claim));
    }
    let [alone, with] = took.map(|mut took| {
        took.sort_unstable();
        (took[took.len() / 2], took[took.len() * 99 / 100])
    });
    println!("p50 and p99: alone {alone:?}, with a ledger {with:?}; {asked} of 100,000 have asked");
    assert!(asked < 1_000, "{asked}");
}
