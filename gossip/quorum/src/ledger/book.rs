//! The ledger as a value: what each call does to an entry, and what is answered.
//!
//! It is the rule by which a store answers [`Call`]s. The scripts of a real store are compared with
//! it, and the simulator keeps its ledger by it. `now` is the ledger's own clock, which may be set
//! back: a lease holds for as long as it was given for, counted either way from when it was given.
//!
//! What a call does, in this order:
//! 1. A call from an earlier life of its caller than a standing word or lead tells of is
//!    [`Outcome::Fenced`], and nothing is written.
//! 2. What the caller has seen beyond what the ledger knows is taken in: the ledger has lost writes,
//!    and the version rises above the caller's, so that no version stands for two states.
//! 3. The deed is done or refused, as its function below says.
//!
//! The version rises whenever the step, the order or who leads has changed, and never for a word, a
//! renewal or a count, else no step could be written between them. A lease that ends writes nothing.
//!
//! A failover may lose writes whose numbers only others than the next writer had seen. So each page
//! notes the run of the server that wrote it, and all numbers leap at the first change in another.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ledger::{Answer, Begin, Call, Count, Deed, Entry, Floor, Lead, Outcome, Word};
use crate::statement::{Basis, EndpointKey, NodeId, Override, Stage, Step};
use crate::tally::{Ballot, Tally, tally};

/// More words than this are not kept of one endpoint: as many as members count.
pub const WORDS_MAX: usize = 1_024;

/// Numbers end here: a store that keeps them as floating point is exact so far.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// By how much versions and numbers of leads leap in another run of the server: more than can have
/// been written to one endpoint and lost, half a minute of two thousand writes a second.
pub const NUMBER_LEAP: u64 = 1 << 16;

/// By how much epochs leap: each opening but the first is a cool-down later than the one before, and
/// a vote must not fall out of the incidents that are plausible.
pub const EPOCH_LEAP: u64 = 16;

/// A ledger.
#[derive(Clone, Debug, Default)]
pub struct Book {
    pages: BTreeMap<EndpointKey, Page>,
    run: u64,
}

/// One endpoint's page.
#[derive(Clone, Debug, Default)]
struct Page {
    floor: Floor,
    /// The run of the server in which it last changed; `None`: it never did.
    run: Option<u64>,
    step: Option<(Step, Duration)>,
    order: Option<(Override, Duration)>,
    lead: Option<Leading>,
    words: BTreeMap<NodeId, Kept>,
    count: Count,
}

/// A span that was given at a moment.
#[derive(Clone, Copy, Debug)]
struct Lease {
    at: Duration,
    span: Duration,
}

/// Who leads.
#[derive(Clone, Debug)]
struct Leading {
    holder: NodeId,
    generation: u64,
    number: u64,
    lease: Lease,
}

/// A word that was cast.
#[derive(Clone, Debug)]
struct Kept {
    generation: u64,
    word: Word,
    lease: Lease,
}

/// What the words that stand amount to.
struct Said {
    tally: Tally,
    /// How many have the endpoint out in a later incident than the one that is written: where that
    /// one is open, the ledger has missed how it ended.
    heirs: usize,
    /// The furthest step of those.
    furthest: Option<Step>,
}

impl Book {
    /// Does what `call` asks for, at `now` by the ledger's clock.
    pub fn apply(&mut self, now: Duration, call: &Call) -> Answer {
        let run = self.run;
        if call.deed == Deed::Read {
            let entry = self.pages.get(&call.endpoint).map(|page| page.entry(now));
            return Answer { outcome: Outcome::Done, entry: entry.unwrap_or_default() };
        }
        let page = self.pages.entry(call.endpoint.clone()).or_default();
        let outcome = if page.is_of_earlier_life(now, call) {
            Outcome::Fenced
        } else {
            page.heed(run, call.floor);
            page.perform(now, run, call)
        };
        Answer { outcome, entry: page.entry(now) }
    }

    /// Notes that another server keeps the ledger from here on, which may have less of it than what
    /// was answered: put back an earlier copy, then call this.
    pub fn fail_over(&mut self) {
        self.run = self.run.saturating_add(1);
    }

    /// Loses everything.
    pub fn flush(&mut self) {
        self.pages.clear();
    }
}

impl Lease {
    /// Whether it still holds. A clock that was set back by more than the span ends it as well, else
    /// it would hold for as long as that.
    fn is_running(self, now: Duration) -> bool {
        now.abs_diff(self.at) < self.span
    }

    fn remaining(self, now: Duration) -> Duration {
        self.at.saturating_add(self.span).saturating_sub(now).min(self.span)
    }
}

impl Page {
    /// The page as of `now`.
    fn entry(&self, now: Duration) -> Entry {
        let passed = |at: &Duration| now.saturating_sub(*at);
        Entry {
            floor: self.floor,
            step: self.step.as_ref().map(|(step, at)| aged(step, passed(at))),
            order: self.order.as_ref().map(|(order, at)| Override {
                remaining: order.remaining.map(|remaining| remaining.saturating_sub(passed(at))),
                ..order.clone()
            }),
            lead: self.leading(now).map(|leading| Lead {
                holder: leading.holder.clone(),
                generation: leading.generation,
                number: leading.number,
                remaining: leading.lease.remaining(now),
            }),
            count: self.count,
        }
    }

    /// Who leads at `now`.
    fn leading(&self, now: Duration) -> Option<&Leading> {
        self.lead.as_ref().filter(|leading| leading.lease.is_running(now))
    }

    /// Whether a word or a lead that stands is of a later life of the caller.
    fn is_of_earlier_life(&self, now: Duration, call: &Call) -> bool {
        let word = self.words.get(&call.by).filter(|kept| kept.lease.is_running(now));
        let lead = self.leading(now).filter(|leading| leading.holder == call.by);
        let lives = [word.map(|kept| kept.generation), lead.map(|leading| leading.generation)];
        lives.into_iter().flatten().any(|life| life > call.generation)
    }

    /// Takes in what the caller has seen.
    fn heed(&mut self, run: u64, seen: Floor) {
        if seen.version > self.floor.version {
            self.floor.version = seen.version;
            self.turn(run);
        }
        self.floor.epoch = self.floor.epoch.max(seen.epoch);
        self.floor.lead = self.floor.lead.max(seen.lead);
    }

    /// Raises the version, and everything by a leap if the last change was in another run. To be
    /// called before any other number is given out.
    fn turn(&mut self, run: u64) {
        if self.run.is_some_and(|kept| kept != run) {
            self.floor.version = raised(self.floor.version, NUMBER_LEAP);
            self.floor.epoch = raised(self.floor.epoch, EPOCH_LEAP);
            self.floor.lead = raised(self.floor.lead, NUMBER_LEAP);
        }
        self.run = Some(run);
        self.floor.version = raised(self.floor.version, 1);
    }

    fn perform(&mut self, now: Duration, run: u64, call: &Call) -> Outcome {
        match &call.deed {
            Deed::Read => Outcome::Done,
            Deed::Cast(word) => self.cast(now, run, call, word),
            Deed::Take { hold } => self.take(now, run, call, *hold),
            Deed::Renew { number, hold } => match self.led(now, call, *number) {
                Ok(leading) => {
                    leading.lease = Lease { at: now, span: *hold };
                    Outcome::Done
                }
                Err(refusal) => refusal,
            },
            Deed::Release { number } => match self.led(now, call, *number) {
                Ok(_) => {
                    self.turn(run);
                    self.lead = None;
                    Outcome::Done
                }
                Err(refusal) => refusal,
            },
            Deed::Advance { number, step } => self.advance(now, run, (call, *number), step),
            Deed::Carry(step) => self.carry(now, run, step),
            Deed::Order(order) => self.order(now, run, order),
        }
    }

    /// The lead of the caller under `number`. Another leads: [`Outcome::Led`]; the caller does not,
    /// or under another number: [`Outcome::Fenced`].
    fn led(&mut self, now: Duration, call: &Call, number: u64) -> Result<&mut Leading, Outcome> {
        let leading = self.lead.as_mut().filter(|leading| leading.lease.is_running(now));
        let leading = leading.ok_or(Outcome::Fenced)?;
        let is_it = (leading.generation, leading.number) == (call.generation, number);
        match (leading.holder == call.by, is_it) {
            (false, _) => Err(Outcome::Led),
            (true, false) => Err(Outcome::Fenced),
            (true, true) => Ok(leading),
        }
    }

    /// Gives the lead to the caller, under a new number also if it has it.
    fn take(&mut self, now: Duration, run: u64, call: &Call, hold: Duration) -> Outcome {
        if self.leading(now).is_some_and(|leading| leading.holder != call.by) {
            return Outcome::Led;
        }
        self.turn(run);
        self.floor.lead = raised(self.floor.lead, 1);
        self.lead = Some(Leading {
            holder: call.by.clone(),
            generation: call.generation,
            number: self.floor.lead,
            lease: Lease { at: now, span: hold },
        });
        Outcome::Done
    }

    /// Writes the next step of the incident that stands. One that outranks what stands is the next;
    /// so is a probe that takes the place of one whose time is over, or of the steward's own.
    fn advance(
        &mut self,
        now: Duration,
        run: u64,
        (call, number): (&Call, u64),
        step: &Step,
    ) -> Outcome {
        if let Err(refusal) = self.led(now, call, number) {
            return refusal;
        }
        let Some((standing, at)) = self.step.as_ref().filter(|(step, _)| is_open(step)) else {
            return Outcome::Stale;
        };
        let is_over = || now.saturating_sub(*at) >= standing.stage.remaining();
        let is_anew = matches!(step.stage, Stage::Probing { .. })
            && !standing.outranks(step)
            && (standing.steward == step.steward || is_over());
        let is_next = step.incident == standing.incident && (step.outranks(standing) || is_anew);
        if call.floor.version != self.floor.version || !is_next {
            return Outcome::Stale;
        }
        self.put(now, run, step);
        Outcome::Done
    }

    /// Writes a step that was taken elsewhere: of the incident that stands, or a closing.
    fn carry(&mut self, now: Duration, run: u64, step: &Step) -> Outcome {
        let standing = self.step.as_ref().map(|(standing, _)| standing);
        let is_further = standing.is_none_or(|standing| step.outranks(standing));
        let is_its = standing
            .is_some_and(|standing| is_open(standing) && standing.incident == step.incident);
        if !is_further || is_open(step) && !is_its {
            let is_known = standing.is_some_and(|standing| is_same(standing, step));
            return if is_known { Outcome::Done } else { Outcome::Stale };
        }
        self.put(now, run, step);
        Outcome::Done
    }

    /// Makes `step` the one that stands. A closing ends the lead; the words for what it closed are
    /// void by their incident.
    fn put(&mut self, now: Duration, run: u64, step: &Step) {
        self.turn(run);
        self.floor.epoch = self.floor.epoch.max(step.incident);
        if !is_open(step) {
            self.lead = None;
        }
        self.step = Some((Step { is_held: is_open(step), ..step.clone() }, now));
    }

    /// Writes an order that is newer than the one that stands.
    fn order(&mut self, now: Duration, run: u64, order: &Override) -> Outcome {
        let age = |order: &Override| (order.stamp, order.author.clone());
        let standing = self.order.as_ref().map(|(standing, _)| age(standing));
        match standing.map(|standing| standing.cmp(&age(order))) {
            Some(std::cmp::Ordering::Equal) => Outcome::Done,
            Some(std::cmp::Ordering::Greater) => Outcome::Stale,
            Some(std::cmp::Ordering::Less) | None => {
                self.turn(run);
                self.order = Some((order.clone(), now));
                Outcome::Done
            }
        }
    }

    /// Keeps the word, counts, and opens if a majority says so, also where an older incident stands. A word that is not newer than the
    /// caller's standing one changes nothing, and so does one for which there is no room.
    fn cast(&mut self, now: Duration, run: u64, call: &Call, word: &Word) -> Outcome {
        self.words.retain(|_, kept| kept.lease.is_running(now));
        let known = self.words.get(&call.by);
        if known.is_some_and(|kept| (kept.generation, kept.word.seq) >= (call.generation, word.seq))
        {
            return Outcome::Done;
        }
        if known.is_none() && self.words.len() >= WORDS_MAX {
            return Outcome::Stale;
        }
        let lease = Lease { at: now, span: word.lease };
        let kept = Kept { generation: call.generation, word: word.clone(), lease };
        self.words.insert(call.by.clone(), kept);
        let Said { tally, heirs, furthest } = self.tally(now, word);
        self.count = count_of(&tally);
        let is_standing = self.step.as_ref().is_some_and(|(step, _)| is_open(step));
        match (word.opening, furthest) {
            (Some(_), Some(step)) if heirs >= tally.quorum => {
                self.turn(run);
                self.open(now, step);
                Outcome::Opened
            }
            (Some(begin), _) if !is_standing && tally.is_open() => {
                self.turn(run);
                let incident = tally.incident.max(raised(self.floor.epoch, 1));
                self.open(now, first_step(incident, begin, &call.by));
                Outcome::Opened
            }
            (Some(_) | None, _) => Outcome::Done,
        }
    }

    fn open(&mut self, now: Duration, step: Step) {
        self.floor.epoch = self.floor.epoch.max(step.incident);
        self.lead = None;
        self.step = Some((step, now));
    }

    /// What the words that stand amount to in the eyes of who cast `word`, with the furthest step
    /// of those that have the endpoint out in a later incident than the one that is written.
    fn tally(&self, now: Duration, word: &Word) -> Said {
        let closed = self.closed();
        let written = self.step.as_ref().map_or(0, |(step, _)| step.incident);
        let is_counted = |(voter, kept): &(&NodeId, &Kept)| {
            kept.lease.is_running(now) && !word.discounted.contains(voter)
        };
        let (mut ballots, mut witnesses, mut holders, mut heirs) = (Vec::new(), 0, 0, 0);
        let mut furthest: Option<Step> = None;
        // Of two that count, who knows fewer members has not met the others yet.
        let mut electorate = word.electorate.max(1);
        for (voter, kept) in self.words.iter().filter(is_counted) {
            let vote = kept.word.vote;
            // Who says nothing is no part of the count: it takes back what it said.
            if vote.is_some() || kept.word.is_witness || kept.word.hold.is_some() {
                electorate = electorate.max(kept.word.electorate);
            }
            let is_first_hand = vote.is_some_and(|vote| vote.is_first_hand);
            witnesses += usize::from(is_first_hand || kept.word.is_witness);
            ballots.extend(vote.map(|vote| Ballot {
                voter,
                incident: vote.incident,
                basis: if vote.is_first_hand { Basis::FirstHand } else { Basis::Seconded },
            }));
            let hold = kept.word.hold.as_ref();
            let hold = hold.filter(|step| is_open(step) && step.incident > closed);
            holders += usize::from(hold.is_some());
            if let Some(step) = hold.filter(|step| step.incident > written) {
                heirs += 1;
                if furthest.as_ref().is_none_or(|known| step.outranks(known)) {
                    let step = aged(step, now.saturating_sub(kept.lease.at));
                    furthest = Some(Step { is_held: true, ..step });
                }
            }
        }
        let electorate = usize::try_from(electorate).unwrap_or(usize::MAX);
        let tally = Tally { holders, ..tally(electorate, closed, witnesses, ballots) };
        Said { tally, heirs, furthest }
    }

    /// The last incident that is over.
    fn closed(&self) -> u64 {
        self.step.as_ref().map_or(0, |(step, _)| {
            if is_open(step) { step.incident.saturating_sub(1) } else { step.incident }
        })
    }
}

/// The step by which an incident opens.
fn first_step(incident: u64, begin: Begin, by: &NodeId) -> Step {
    Step {
        incident,
        failures: 0,
        level: begin.level,
        stage: Stage::Waiting { remaining: begin.cool_down },
        steward: by.clone(),
        age: Duration::ZERO,
        is_held: true,
    }
}

/// The step as it is `passed` after it was written.
fn aged(step: &Step, passed: Duration) -> Step {
    let left = |remaining: &Duration| remaining.saturating_sub(passed);
    let stage = match &step.stage {
        Stage::Waiting { remaining } => Stage::Waiting { remaining: left(remaining) },
        Stage::Probing { remaining } => Stage::Probing { remaining: left(remaining) },
        Stage::Canary { holder, turn, successes, remaining } => Stage::Canary {
            holder: holder.clone(),
            turn: *turn,
            successes: *successes,
            remaining: left(remaining),
        },
        Stage::Closed => Stage::Closed,
    };
    Step { stage, age: step.age.saturating_add(passed), ..step.clone() }
}

fn count_of(tally: &Tally) -> Count {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Count {
        first_hand: small(tally.first_hand),
        seconded: small(tally.seconded),
        counted: small(tally.counted),
        holders: small(tally.holders),
        quorum: small(tally.quorum),
    }
}

/// Neither is further than the other.
fn is_same(one: &Step, other: &Step) -> bool {
    !one.outranks(other) && !other.outranks(one)
}

fn is_open(step: &Step) -> bool {
    step.stage != Stage::Closed
}

fn raised(number: u64, by: u64) -> u64 {
    number.saturating_add(by).min(NUMBER_MAX)
}
