//! What is known of one endpoint's entry in the ledger, and what is due there next.

use std::time::Duration;

use quorum::council::Need;
use quorum::ledger::{Answer, Call, Deed, Entry, Floor, Outcome, Word};
use quorum::{Council, EndpointKey, NodeId, Override, Stage};

use super::empty;

/// Who is refused begins again at once so many times; then it waits.
const ROUNDS_MAX: u32 = 4;

/// The papers of one endpoint.
#[derive(Debug, Default)]
pub(super) struct File {
    /// The largest numbers seen.
    floor: Floor,
    /// The version of the entry when it was last read: smaller than the largest seen where the ledger has
    /// lost writes.
    version: u64,
    /// The lead that this node holds, by its number, and until when for certain.
    lead: Option<(u64, Duration)>,
    /// The order that the ledger has.
    order: Option<(u64, NodeId)>,
    /// When the entry was last read.
    read_at: Option<Duration>,
    /// The version that somebody has told of since.
    noticed: Option<u64>,
    /// Whether a call may have been done of which nothing was heard.
    is_doubted: bool,
    /// The word cast last that was not empty, and when.
    word: Option<(Word, Duration)>,
    /// Whether the ledger is known to have it.
    is_said: bool,
    carried_at: Option<Duration>,
    /// The call in flight, and when it was sent.
    sent: Option<(Call, Duration)>,
    /// Nothing is asked before this.
    ready_at: Duration,
    /// Nothing that needs the lead is asked before this.
    lead_at: Duration,
    /// How many times in a row it was refused.
    rounds: u32,
}

impl File {
    /// Whether a call is in flight.
    pub(super) fn is_waiting(&self) -> bool {
        self.sent.is_some()
    }

    /// Whether the entry was read.
    pub(super) fn is_read(&self) -> bool {
        self.read_at.is_some()
    }

    /// Whether a call may be made.
    pub(super) fn is_ready(&self, now: Duration) -> bool {
        now >= self.ready_at
    }

    /// Whether it was not read for an interval.
    pub(super) fn is_old(&self, now: Duration, interval: Duration) -> bool {
        let is_old = |at: Duration| now >= at.saturating_add(interval);
        self.is_ready(now) && self.read_at.is_none_or(is_old)
    }

    /// Whether there is anything to be done even if nothing is said of the endpoint.
    pub(super) fn is_busy(&self) -> bool {
        self.word.is_some() || self.lead.is_some() || self.noticed.is_some() || self.is_doubted
    }

    /// Whether a word of this node may stand.
    pub(super) fn has_word(&self) -> bool {
        self.word.is_some()
    }

    /// The number of the lead that this node holds at `now`.
    pub(super) fn leads(&self, now: Duration) -> Option<u64> {
        self.lead.filter(|(_, until)| now < *until).map(|(number, _)| number)
    }

    /// Notes that the entry has this version.
    pub(super) fn notice(&mut self, version: u64) {
        self.noticed = Some(version).filter(|version| *version != self.version).or(self.noticed);
    }

    /// Forgets what was known of an entry that may be another when it is next read; the largest numbers
    /// are kept.
    pub(super) fn lose(&mut self) {
        let (floor, word) = (self.floor, self.word.take());
        *self = Self { floor, word, ..Self::default() };
    }

    /// Gives up a call that was sent so long ago that nobody will answer it.
    pub(super) fn give_up(&mut self, now: Duration, after: Duration) {
        let is_over = |(_, at): &mut (Call, Duration)| now >= at.saturating_add(after);
        if self.sent.take_if(is_over).is_some() {
            self.doubt(now, Duration::ZERO);
        }
    }

    /// Notes that nobody knows whether a call was done.
    fn doubt(&mut self, now: Duration, pause: Duration) {
        self.is_doubted = true;
        self.is_said = false;
        self.ready_at = now.saturating_add(pause);
    }

    /// A call with this deed.
    pub(super) fn send(
        &mut self,
        now: Duration,
        council: &Council,
        endpoint: &EndpointKey,
        deed: Deed,
    ) -> Call {
        let epoch = self.floor.epoch.max(council.epoch_seen(endpoint));
        let version = match deed {
            Deed::Advance { .. } => self.version,
            Deed::Read
            | Deed::Cast(_)
            | Deed::Take { .. }
            | Deed::Renew { .. }
            | Deed::Release { .. }
            | Deed::Carry(_)
            | Deed::Order(_) => self.floor.version,
        };
        let call = Call {
            endpoint: endpoint.clone(),
            by: council.me().clone(),
            generation: council.generation(),
            floor: Floor { version, epoch, ..self.floor },
            deed,
        };
        // What the answer shows is as of later than any notice so far.
        self.noticed = None;
        self.is_doubted = false;
        self.sent = Some((call.clone(), now));
        call
    }

    /// Takes the answer to a call in flight. `None`: there is nothing to learn from it.
    pub(super) fn take<'a>(
        &mut self,
        now: Duration,
        interval: Duration,
        call: &Call,
        answer: Option<&'a Answer>,
    ) -> Option<&'a Answer> {
        let (_, sent_at) = self.sent.take_if(|(sent, _)| sent == call)?;
        let is_timely = now <= sent_at.saturating_add(interval);
        let answer = answer.filter(|_| is_timely);
        if answer.is_none() {
            self.doubt(now, interval / 8);
        }
        answer
    }

    /// Notes what an entry says.
    pub(super) fn enter(&mut self, now: Duration, (me, life): (&NodeId, u64), entry: &Entry) {
        let Floor { version, epoch, lead } = entry.floor;
        self.noticed.take_if(|noticed| *noticed == version);
        self.version = version;
        self.floor.version = self.floor.version.max(version);
        self.floor.epoch = self.floor.epoch.max(epoch);
        self.floor.lead = self.floor.lead.max(lead);
        let mine = entry.lead.as_ref().filter(|one| one.holder == *me && one.generation == life);
        self.lead = mine.map(|lead| (lead.number, now.saturating_add(lead.remaining)));
        self.order = entry.order.as_ref().map(|order| (order.stamp, order.author.clone()));
        self.read_at = Some(now);
    }

    /// Takes in what became of a deed.
    pub(super) fn settle(
        &mut self,
        now: Duration,
        interval: Duration,
        deed: &Deed,
        answer: &Answer,
    ) {
        let is_cast = matches!(deed, Deed::Cast(_));
        match answer.outcome {
            Outcome::Done | Outcome::Opened => {
                self.rounds = 0;
                if let Deed::Cast(word) = deed {
                    self.is_said = true;
                    self.word.take_if(|_| is_empty(word));
                }
            }
            // There is no room for its word, or a later life of this node speaks for it.
            Outcome::Stale | Outcome::Fenced | Outcome::Led if is_cast => {
                self.ready_at = now.saturating_add(interval);
            }
            Outcome::Stale => {
                self.rounds += 1;
                if self.rounds >= ROUNDS_MAX {
                    self.pause(now, interval / 2);
                }
            }
            Outcome::Led => {
                let remaining = answer.entry.lead.as_ref().map(|lead| lead.remaining);
                self.pause(now, remaining.unwrap_or(interval).min(interval / 2));
            }
            Outcome::Fenced => self.pause(now, interval / 2),
        }
    }

    fn pause(&mut self, now: Duration, pause: Duration) {
        self.rounds = 0;
        self.lead_at = now.saturating_add(pause);
    }

    /// What is to be done next, if anything: news first, then what the lead asks for, then what has to be
    /// renewed or read again.
    pub(super) fn next(
        &mut self,
        now: Duration,
        council: &mut Council,
        (endpoint, word): (&EndpointKey, Option<Word>),
        seq: &mut u64,
    ) -> Option<Deed> {
        if !self.is_ready(now) {
            return None;
        }
        let interval = council.interval();
        if self.read_at.is_none() {
            return Some(Deed::Read);
        }
        if let Some(order) = self.order_due(now, council, endpoint) {
            return Some(Deed::Order(order));
        }
        let is_due = self.word.as_ref().is_some_and(|(_, at)| now >= at.saturating_add(interval));
        let has_news = match (&self.word, &word) {
            (Some((before, _)), Some(word)) => !self.is_said || is_other(before, word),
            (None, Some(_)) | (Some(_), None) => true,
            (None, None) => false,
        };
        if has_news {
            return Some(self.cast(now, council, (endpoint, word), seq));
        }
        if let Some(deed) = self.lead_on(now, council, endpoint) {
            return Some(deed);
        }
        let may_carry = self.carried_at.is_none_or(|at| now >= at.saturating_add(interval / 2));
        if let Some(step) = council.carry(now, endpoint).filter(|_| may_carry) {
            self.carried_at = Some(now);
            return Some(Deed::Carry(step));
        }
        if is_due && word.is_some() {
            return Some(self.cast(now, council, (endpoint, word), seq));
        }
        let is_other = self.noticed.is_some() || self.is_doubted;
        (is_other || self.is_old(now, interval)).then_some(Deed::Read)
    }

    /// The order that the ledger is to be told of, if the entry was read and lacks it.
    pub(super) fn order_due(
        &self,
        now: Duration,
        council: &Council,
        endpoint: &EndpointKey,
    ) -> Option<Override> {
        if self.read_at.is_none() || now < self.lead_at {
            return None;
        }
        let order = council.last_order(now, endpoint)?;
        let known = self.order.as_ref();
        let is_newer = known.is_none_or(|(stamp, by)| (*stamp, by) < (order.stamp, &order.author));
        let is_over = order.remaining == Some(Duration::ZERO);
        (is_newer && !is_over).then_some(order)
    }

    /// Casts a word, or an empty one in place of what is no longer said.
    fn cast(
        &mut self,
        now: Duration,
        council: &mut Council,
        (endpoint, word): (&EndpointKey, Option<Word>),
        seq: &mut u64,
    ) -> Deed {
        *seq += 1;
        self.is_said = false;
        match word {
            Some(word) => {
                let word = council.seal(now, endpoint, word);
                self.word = Some((word.clone(), now));
                Deed::Cast(Word { seq: *seq, ..word })
            }
            None => {
                // It lapses by itself in the end.
                let lease = council.word_lease();
                self.word.take_if(|(_, at)| now >= at.saturating_add(lease));
                Deed::Cast(empty(council, *seq))
            }
        }
    }

    /// Takes, uses, keeps or gives up the lead.
    fn lead_on(
        &mut self,
        now: Duration,
        council: &Council,
        endpoint: &EndpointKey,
    ) -> Option<Deed> {
        let (hold, interval) = (council.lead_for(endpoint), council.interval());
        let margin = interval / 4;
        let held = self.lead.filter(|(_, until)| now.saturating_add(margin) < *until);
        let need = council.need(now, endpoint);
        if need.is_none() {
            let (number, _) = self.lead.take()?;
            return Some(Deed::Release { number });
        }
        if now < self.lead_at {
            return None;
        }
        let Some((number, until)) = held else {
            return Some(Deed::Take { hold });
        };
        let renew = Deed::Renew { number, hold };
        let left = until.saturating_sub(now);
        match need? {
            // A probe must not outlast the lead.
            Need::Step(step) if is_probe(&step.stage) && left < hold.saturating_sub(interval) => {
                Some(renew)
            }
            Need::Step(step) => Some(Deed::Advance { number, step }),
            Need::Lead => (left < hold.saturating_sub(interval / 2)).then_some(renew),
        }
    }
}

fn is_probe(stage: &Stage) -> bool {
    match stage {
        Stage::Probing { .. } => true,
        Stage::Waiting { .. } | Stage::Canary { .. } | Stage::Closed => false,
    }
}

/// Whether a word says nothing.
fn is_empty(word: &Word) -> bool {
    word.vote.is_none() && !word.is_witness && word.hold.is_none() && word.opening.is_none()
}

/// Whether a word says something that others wait for, beyond the one before.
fn is_other(before: &Word, word: &Word) -> bool {
    let held = |word: &Word| word.hold.as_ref().map(|step| step.incident);
    (before.vote, before.is_witness, held(before), before.opening.is_some())
        != (word.vote, word.is_witness, held(word), word.opening.is_some())
}
