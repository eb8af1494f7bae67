//! The allowance against what it promises: stories by hand, and schedules by chance against a list of
//! moments that keeps everything.

mod fleetwide;

use redis_lua::limits::{MINUTE, RUN, RUNS_MAX};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_nanos(1);

fn allowance(rpm: u64, tpm: u64, concurrency: u32) -> Arc<Allowance> {
    let limits = Limits {
        rpm: (rpm > 0).then_some(rpm),
        tpm: (tpm > 0).then_some(tpm),
        concurrency: (concurrency > 0).then_some(concurrency),
    };
    Allowance::new(&limits, &Arc::default(), whom()).unwrap()
}

/// One of limits that a fleet shares, and the share.
fn shared(limits: Limits, part: Part) -> (Arc<Allowance>, Arc<Share>) {
    let share = Arc::new(Share::default());
    share.set(part);
    (Allowance::new(&limits, &share, whom()).unwrap(), share)
}

fn whom() -> Whom {
    Whom::new(Kind::Model, "m")
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Takes and lets go at once, as a request that has ended.
fn took(allowance: &Arc<Allowance>, now: Duration, tokens: u64) -> Result<(), Full> {
    allowance.take(now, tokens).map(drop)
}

fn full(what: What, limit: u64, returns_in: Duration) -> Result<(), Full> {
    Err(Full { what, limit, whole: limit, returns_in: Some(returns_in) })
}

#[test]
fn no_limit_is_no_allowance() {
    assert!(Allowance::new(&Limits::default(), &Arc::default(), whom()).is_none());
}

#[test]
fn one_request_a_minute_is_one_to_the_nanosecond() {
    let one = allowance(1, 0, 0);
    took(&one, at(7), 1_000_000).unwrap();
    assert_eq!(took(&one, at(7), 1), full(What::Requests, 1, MINUTE));
    assert_eq!(took(&one, at(67) - TICK, 1), full(What::Requests, 1, TICK));
    assert_eq!(took(&one, at(67), 1), Ok(()));
}

#[test]
fn a_full_minute_is_followed_by_no_second_one() {
    // A bucket that refills while it is emptied would admit another 30 by half a minute later.
    let sixty = allowance(60, 0, 0);
    for _ in 0..60 {
        took(&sixty, Duration::ZERO, 1).unwrap();
    }
    let more = (0..60).filter(|second| took(&sixty, at(*second), 1).is_ok()).count();
    assert_eq!(more, 0);
    assert!(took(&sixty, at(60), 1).is_ok());
}

#[test]
fn a_slot_is_free_when_its_request_has_ended_and_not_before() {
    let two = allowance(0, 0, 2);
    let first = two.take(at(0), 1).unwrap();
    let second = two.take(at(0), 1).unwrap();
    for hour in 0..3 {
        assert_eq!(took(&two, at(3_600 * hour), 1), full(What::Concurrency, 2, SECOND));
    }
    drop(first);
    let third = two.take(at(9_000), 1).unwrap();
    assert!(two.take(at(9_000), 1).is_err());
    second.cancel();
    third.cancel();
    let both = (two.take(at(9_000), 1), two.take(at(9_000), 1));
    assert!(both.0.is_ok() && both.1.is_ok());
    assert_eq!(two.left(at(9_000)), Left::default());
}

#[test]
fn what_takes_more_than_a_whole_minute_has_is_never_told_to_come_back() {
    let small = allowance(5, 100, 0);
    let never = Err(Full { what: What::Tokens, limit: 100, whole: 100, returns_in: None });
    assert_eq!(took(&small, at(0), 101), never);
    assert_eq!(small.look(at(0), u64::MAX), never);
    took(&small, at(0), 100).unwrap();
    assert_eq!(took(&small, at(1), 101), never);
    assert_eq!(small.left(at(1)).requests.unwrap().remaining, 4);
}

#[test]
fn of_several_limits_the_one_that_lasts_longest_is_told() {
    let mixed = allowance(2, 100, 3);
    took(&mixed, at(0), 10).unwrap();
    took(&mixed, at(30), 80).unwrap();
    let held = mixed.take(at(61), 1).unwrap();
    // A request may come again at 90, twelve tokens when the eighty leave, at 90 too; three at once.
    assert_eq!(mixed.look(at(61), 1), full(What::Requests, 2, at(29)));
    drop(held);
    took(&mixed, at(90), 90).unwrap();
    assert_eq!(mixed.look(at(91), 12), full(What::Tokens, 100, at(59)));
}

#[test]
fn a_correction_counts_from_the_admission() {
    let tokens = allowance(0, 100, 0);
    let mut early = tokens.take(at(0), 10).unwrap();
    let mut late = tokens.take(at(50), 50).unwrap();
    late.correct(20);
    assert_eq!(tokens.left(at(55)).tokens.unwrap().remaining, 70);
    // What the estimate has missed is counted, though it is more than there was.
    early.correct(95);
    assert_eq!(tokens.left(at(55)).tokens.unwrap().remaining, 0);
    assert_eq!(took(&tokens, at(55), 1), full(What::Tokens, 100, at(5)));
    assert_eq!(tokens.left(at(60)).tokens.unwrap().remaining, 80);
    // The minute of the first is over: that it took less changes nothing.
    early.correct(3);
    early.cancel();
    late.correct(u64::MAX);
    assert_eq!(took(&tokens, at(60), 1), full(What::Tokens, 100, at(50)));
    assert!(took(&tokens, at(110), 100).is_ok());
    drop(late);
}

#[test]
fn what_runs_for_longer_than_a_minute_is_charged_nonetheless() {
    let tokens = allowance(9, 100, 0);
    let mut long = tokens.take(at(0), 10).unwrap();
    took(&tokens, at(70), 5).unwrap();
    long.correct(60);
    let left = |seconds| tokens.left(at(seconds));
    assert_eq!(left(70).tokens.unwrap().remaining, 45);
    assert_eq!(left(70).requests.unwrap().remaining, 8);
    assert_eq!(left(130).tokens.unwrap().remaining, 100);
    // Where nothing else counts either.
    let mut longer = tokens.take(at(200), 10).unwrap();
    assert_eq!(left(300).tokens.unwrap().remaining, 100);
    longer.correct(40);
    assert_eq!(left(359).tokens.unwrap().remaining, 70);
    assert_eq!(left(360).tokens.unwrap().remaining, 100);
}

#[test]
fn of_what_broke_off_the_larger_figure_counts() {
    let tokens = allowance(0, 100, 0);
    let mut charge = tokens.take(at(0), 40).unwrap();
    charge.at_least(2);
    assert_eq!(tokens.left(at(0)).tokens.unwrap().remaining, 60);
    charge.at_least(70);
    assert_eq!(tokens.left(at(0)).tokens.unwrap().remaining, 30);
}

#[test]
fn what_was_cancelled_was_never_there() {
    let one = allowance(1, 10, 1);
    let mut charge = one.take(at(0), 4).unwrap();
    charge.correct(9);
    charge.cancel();
    let whole = |limit| Some(Figure { limit, remaining: limit, reset: Duration::ZERO });
    assert_eq!(one.left(at(0)), Left { requests: whole(1), tokens: whole(10) });
    assert!(took(&one, at(0), 10).is_ok());
}

#[test]
fn what_is_left_says_when_all_of_it_is_back() {
    let some = allowance(10, 1_000, 0);
    took(&some, at(0), 100).unwrap();
    took(&some, at(20), 200).unwrap();
    let figure = |limit, remaining, seconds| {
        Some(Figure { limit, remaining, reset: Duration::from_secs(seconds) })
    };
    let expected = Left { requests: figure(10, 8, 50), tokens: figure(1_000, 700, 50) };
    assert_eq!(some.left(at(30)), expected);
    let expected = Left { requests: figure(10, 9, 20), tokens: figure(1_000, 800, 20) };
    assert_eq!(some.left(at(60)), expected);
}

#[test]
fn memory_does_not_grow_with_traffic() {
    let busy = allowance(1_000_000_000, 0, 0);
    for step in 0..400_000_u64 {
        took(&busy, Duration::from_micros(step * 499), 1).unwrap();
        let runs = busy.lock().window.runs();
        assert!(runs <= RUNS_MAX, "{runs} runs");
    }
    // 2,004 requests came in each second.
    let counted = busy.lock().window.sum().requests;
    assert!((60 * 2_004..=61 * 2_005).contains(&counted), "{counted}");
}

#[test]
fn of_a_shared_limit_a_node_admits_its_part_and_says_so() {
    let limits = Limits { rpm: Some(10), tpm: Some(200), concurrency: Some(5) };
    let (third, _share) = shared(limits, Part::new(1, 3));
    let held = third.take(at(0), 20).unwrap();
    let left = third.left(at(0));
    let limits = (left.requests.unwrap(), left.tokens.unwrap());
    assert_eq!((limits.0.limit, limits.0.remaining), (3, 2));
    assert_eq!((limits.1.limit, limits.1.remaining), (67, 47));
    let other = third.take(at(0), 20).unwrap();
    let refused = |what, limit, whole, returns_in| Err(Full { what, limit, whole, returns_in });
    let slot_full = refused(What::Concurrency, 2, 5, Some(SECOND));
    assert_eq!(took(&third, at(0), 20), slot_full);
    // What is more than this node's part is admitted never, as long as that is its part.
    assert_eq!(took(&third, at(0), 68), refused(What::Tokens, 67, 200, None));
    drop((held, other));
    took(&third, at(0), 20).unwrap();
    assert_eq!(took(&third, at(0), 1), refused(What::Requests, 3, 10, Some(MINUTE)));
}

#[test]
fn a_part_that_shrinks_takes_nothing_back_and_one_that_grows_is_there_at_once() {
    let limits = Limits { rpm: Some(6), tpm: None, concurrency: Some(4) };
    let (ours, share) = shared(limits, Part::WHOLE);
    let running: Vec<_> = (0..4).map(|_| ours.take(at(0), 1).unwrap()).collect();
    share.set(Part::new(0, 2));
    assert_eq!(ours.left(at(0)).requests.unwrap().remaining, 0);
    // Four run on, where two may; and four were admitted, where three may.
    let mut running = running.into_iter();
    drop((running.next(), running.next()));
    let refused = |what, limit, whole, returns_in| {
        Err(Full { what, limit, whole, returns_in: Some(returns_in) })
    };
    assert_eq!(took(&ours, at(1), 1), refused(What::Requests, 3, 6, at(59)));
    assert_eq!(took(&ours, at(60), 1), refused(What::Concurrency, 2, 4, SECOND));
    share.set(Part::WHOLE);
    assert_eq!(took(&ours, at(60), 1), Ok(()));
    share.set(Part::new(2, 3));
    drop(running);
    assert_eq!(took(&ours, at(61), 1), Ok(()));
    assert_eq!(took(&ours, at(61), 1), refused(What::Requests, 2, 6, at(59)));
    share.set(Part::WHOLE);
    assert_eq!(ours.left(at(61)).requests.unwrap().remaining, 4);
    assert!((0..4).all(|_| took(&ours, at(61), 1).is_ok()));
    assert_eq!(took(&ours, at(61), 1), full(What::Requests, 6, at(59)));
}

/// A request as the list of moments keeps it.
struct Moment {
    /// The requests that a minute had when it was admitted.
    allowed: Option<u64>,
    at: Duration,
    requests: u64,
    tokens: u64,
}

/// One schedule by chance, in which the share of the limits changes, and everything that was ever admitted in it.
struct Schedule {
    chance: fastrand::Rng,
    /// Of the whole fleet.
    whole: Limits,
    /// Of this node.
    limits: Limits,
    share: Arc<Share>,
    allowance: Arc<Allowance>,
    now: Duration,
    log: Vec<Moment>,
    /// Requests in flight with their place in the log.
    running: Vec<(usize, Charge)>,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut limits = Limits {
            rpm: chance.bool().then(|| chance.u64(1..40)),
            tpm: chance.bool().then(|| chance.u64(1..2_000)),
            concurrency: chance.bool().then(|| chance.u32(1..6)),
        };
        if limits == Limits::default() {
            limits.rpm = Some(chance.u64(1..40));
        }
        let (allowance, share) = shared(limits, Part::WHOLE);
        let now = Duration::from_nanos(chance.u64(..1 << 40));
        let (log, running) = (Vec::new(), Vec::new());
        Self { chance, whole: limits, limits, share, allowance, now, log, running }
    }

    /// The fleet grows, or loses a member, or is this node alone.
    fn change_share(&mut self) {
        let among = self.chance.usize(1..6);
        let rank = self.chance.usize(..among);
        self.share.set(Part::new(rank, among));
        // By hand: so much for each, and one more for those to whom the rest goes.
        let part = |whole: u64| {
            let (each, rest) = (whole / among as u64, whole % among as u64);
            (if (rank as u64) < rest { each + 1 } else { each }).max(1)
        };
        self.limits = Limits {
            rpm: self.whole.rpm.map(part),
            tpm: self.whole.tpm.map(part),
            concurrency: self.whole.concurrency.map(|whole| part(u64::from(whole)) as u32),
        };
    }

    /// What was admitted within `period` up to now.
    fn sum(&self, period: Duration) -> Load {
        let recent = self.log.iter().filter(|moment| self.now - moment.at < period);
        recent.fold(Load::default(), |sum, moment| Load {
            requests: sum.requests + moment.requests,
            tokens: sum.tokens + moment.tokens,
        })
    }

    /// The tokens that an allowance counts of a request that took so many.
    fn counted(&self, tokens: u64) -> u64 {
        self.whole.tpm.map_or(0, |limit| tokens.min(limit))
    }

    fn step(&mut self) {
        let longest = [1, 1_000_000, 1_000_000_000, 10_000_000_000, 90_000_000_000];
        let longest = longest[[0, 1, 1, 1, 2, 2, 2, 2, 3, 4][self.chance.usize(..10)]];
        self.now += Duration::from_nanos(self.chance.u64(..longest));
        match self.chance.u32(..40) {
            0..=27 => self.ask(),
            28..=31 => self.correct(),
            32 => self.change_share(),
            _ => self.end(),
        }
        self.check_left();
    }

    fn ask(&mut self) {
        let most = self.limits.tpm.unwrap_or(1_000);
        let tokens = self.chance.u64(..(most / 3).max(2));
        // A clock that runs back is one that stands.
        let told = self.now - Duration::from_nanos(self.chance.u64(..1 << 31)).min(self.now);
        let told = if self.chance.u8(..8) == 0 { told } else { self.now };
        let _ = self.allowance.left(self.now);
        let looked = self.allowance.look(told, tokens);
        match self.allowance.take(told, tokens) {
            Ok(charge) => {
                assert_eq!(looked, Ok(()));
                let tokens = self.counted(tokens);
                let allowed = self.limits.rpm;
                self.log.push(Moment { allowed, at: self.now, requests: 1, tokens });
                self.running.push((self.log.len() - 1, charge));
                let sum = self.sum(MINUTE);
                assert!(self.limits.rpm.is_none_or(|limit| sum.requests <= limit), "{sum:?}");
                assert!(self.limits.tpm.is_none_or(|limit| sum.tokens <= limit), "{sum:?}");
                let running = self.running.len();
                assert!(self.limits.concurrency.is_none_or(|limit| running <= limit as usize));
            }
            Err(full) => {
                assert_eq!(looked, Err(full));
                self.check_refusal(full, tokens);
            }
        }
    }

    /// A refusal has a reason that is at most so much older than a minute, and says for how long.
    fn check_refusal(&mut self, full: Full, tokens: u64) {
        let sum = self.sum(MINUTE + RUN);
        let Some(returns_in) = full.returns_in else {
            assert!(full.what == What::Tokens && self.limits.tpm.unwrap() < tokens);
            return;
        };
        assert!(returns_in > Duration::ZERO && returns_in <= MINUTE, "{full:?}");
        match full.what {
            What::Requests => assert!(sum.requests + 1 > self.limits.rpm.unwrap(), "{full:?}"),
            What::Tokens => assert!(sum.tokens + tokens > self.limits.tpm.unwrap(), "{full:?}"),
            What::Concurrency => {
                assert!(self.running.len() >= self.limits.concurrency.unwrap() as usize);
                return;
            }
        }
        // Whoever comes back as told finds room, and none a moment sooner.
        let is_without_slot =
            self.limits.concurrency.is_some_and(|limit| self.running.len() >= limit as usize);
        if self.chance.bool() && !is_without_slot {
            self.now += returns_in;
            assert!(self.allowance.look(self.now - TICK, tokens).is_err(), "{full:?}");
            assert_eq!(self.allowance.look(self.now, tokens), Ok(()), "{full:?}");
        }
    }

    fn correct(&mut self) {
        let most = self.limits.tpm.unwrap_or(1_000);
        let tokens = self.chance.u64(..most * 2);
        let counted = self.counted(tokens);
        let _ = self.allowance.left(self.now);
        let Some((index, charge)) = self.chance.choice(&mut self.running) else { return };
        let does_count = self.allowance.lock().window.counts(charge.at);
        let missed = counted.saturating_sub(charge.load.tokens);
        charge.correct(tokens);
        if does_count {
            self.log[*index].tokens = counted;
        } else {
            self.log.push(Moment { at: self.now, requests: 0, tokens: missed, allowed: None });
        }
    }

    fn end(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let (index, charge) = self.running.swap_remove(self.chance.usize(..self.running.len()));
        if self.chance.u8(..4) == 0 {
            charge.cancel();
            self.log[index].requests = 0;
            self.log[index].tokens = 0;
        }
    }

    fn check_left(&self) {
        let left = self.allowance.left(self.now);
        let (least, most) = (self.sum(MINUTE), self.sum(MINUTE + RUN));
        let figures = [
            (left.requests, self.limits.rpm, least.requests, most.requests),
            (left.tokens, self.limits.tpm, least.tokens, most.tokens),
        ];
        for (figure, limit, least, most) in figures {
            assert_eq!(figure.map(|figure| figure.limit), limit);
            let Some(Figure { limit, remaining, reset }) = figure else { continue };
            assert!(remaining <= limit.saturating_sub(least), "{remaining} {least}");
            assert!(remaining >= limit.saturating_sub(most), "{remaining} {most}");
            assert!(reset <= MINUTE);
            assert_eq!(reset.is_zero(), remaining == limit, "{remaining} of {limit}, {reset:?}");
        }
    }
}

#[test]
fn by_chance_no_minute_is_above_the_largest_part_held_in_it_and_no_refusal_without_reason() {
    for _ in 0..300 {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut schedule = Schedule::new(seed);
        for _ in 0..400 {
            schedule.step();
        }
        // Once more over all minutes, those that end between admissions too.
        let kept: Vec<_> = schedule.log.iter().filter(|moment| moment.requests > 0).collect();
        for (index, first) in kept.iter().enumerate() {
            let minute = kept[index..].iter().take_while(|later| later.at - first.at < MINUTE);
            let (count, largest) = minute.fold((0, None), |(count, largest), moment| {
                (count + 1, largest.max(moment.allowed))
            });
            assert!(largest.is_none_or(|limit| count <= limit), "{count} of {largest:?}");
        }
    }
}

#[test]
fn at_once_from_many_threads_no_more_are_admitted_than_the_figure() {
    let shared = allowance(1_000, 0, 7);
    let admitted = std::thread::scope(|scope| {
        let ask = || {
            let admitted = (0..2_000_u64).filter(|step| {
                let charge = shared.take(Duration::from_micros(*step), 1);
                assert!(shared.lock().in_flight <= 7);
                charge.is_ok()
            });
            admitted.count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(admitted, 1_000);
    assert_eq!(shared.lock().in_flight, 0);
}
