//! All that one node knows of one endpoint: its circuit, what others said, what it saw itself.
//!
//! It lies by endpoint and not by member, so that a count looks only at those who said something of
//! it, however large the fleet is.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::circuit::{Change, Circuit, MyVote};
use crate::conviction::Conviction;
use crate::council::{Enrolment, Entered, Local, Motion};
use crate::statement::{
    Forced, Heard, NodeId, PoolKey, SLOW_PIECES_MAX, Stage, Statement, Step, Vote, VoteState,
    Window,
};
use crate::voice::Kind;

/// A voter that changed its vote more often than this within [`CHANGES_WITHIN`] does not count.
const CHANGES_MAX: usize = 6;
const CHANGES_WITHIN: Duration = Duration::from_secs(60);

/// What is known of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Dossier {
    pub(crate) pool: PoolKey,
    pub(crate) conviction: Conviction,
    pub(crate) circuit: Circuit,
    /// What the others said; at most one word for each member that the electorate lets in.
    pub(crate) words: BTreeMap<NodeId, Word>,
    pub(crate) own: Sight,
    /// What an order made of it when last looked at.
    pub(crate) forced: Forced,
    /// Whether something told waits until a second member supports it.
    pub(crate) has_doubts: bool,
    /// Since when this node has it out against a live majority.
    pub(crate) outvoted_since: Option<Duration>,
    /// Since when others have it out and the cap leaves no room for it here.
    pub(crate) crowded_since: Option<Duration>,
    /// Until when a cast of this node may open it, where the cap binds.
    pub(crate) leave_until: Option<Duration>,
    /// What the ledger holds of it, as last read.
    pub(crate) entered: Option<Entered>,
    /// The step that this node proposes to the ledger.
    pub(crate) motion: Option<Motion>,
}

/// What one member said of the endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Word {
    pub(crate) generation: u64,
    pub(crate) vote: Option<Told<Vote>>,
    pub(crate) step: Option<Told<Step>>,
    pub(crate) window: Option<Told<Window>>,
    pub(crate) changes: Changes,
    /// The greatest number taken of each kind.
    seqs: BTreeMap<Kind, u64>,
}

/// Something told, with the moment it was first heard.
#[derive(Clone, Debug)]
pub(crate) struct Told<T> {
    pub(crate) what: T,
    pub(crate) at: Duration,
    /// Whether the circuit has taken it in: an incident too large to be believed yet waits.
    is_taken: bool,
}

/// When a vote changed of late.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(VecDeque<Duration>);

/// What this node saw itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    window: Window,
    /// When that was; `None`: it was not asked yet.
    at: Option<Duration>,
    pub(crate) is_open: bool,
    pub(crate) is_shadow: bool,
    pub(crate) is_trying: bool,
    pub(crate) changes: Changes,
    /// Whether its vote stood when it last stated it.
    had_vote: bool,
    /// Whether a closing had ended it.
    was_ended: bool,
    /// Weighted faults since the last success, in thousandths, as far as they could be told apart.
    streak_milli: u32,
    succeeded_at: Option<Duration>,
}

impl Dossier {
    pub(crate) fn new(enrolment: Enrolment) -> Self {
        let Enrolment { pool, recovery, conviction } = enrolment;
        Self {
            pool,
            conviction,
            circuit: Circuit::new(recovery),
            words: BTreeMap::new(),
            own: Sight::default(),
            forced: Forced::Auto,
            has_doubts: false,
            outvoted_since: None,
            crowded_since: None,
            leave_until: None,
            entered: None,
            motion: None,
        }
    }

    /// Whether `id` has said as much before.
    pub(crate) fn knows(&self, (id, generation): (&NodeId, u64), heard: &Heard) -> bool {
        let word = self.words.get(id).filter(|word| word.generation == generation);
        word.is_some_and(|word| word.knows(heard))
    }

    /// Keeps what `id` says. Returns whether it was not known yet.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        (id, generation): (&NodeId, u64),
        heard: &Heard,
    ) -> bool {
        let closed = self.circuit.closed();
        let word = self.words.entry(id.clone()).or_default();
        if word.generation != generation {
            *word = Word { generation, ..Word::default() };
        }
        let is_new = word.take(now, (closed, self.conviction.dedup), heard);
        if is_new && let Statement::Override(_, order) = &heard.statement {
            self.circuit.hear_order(now, Duration::ZERO, order);
        }
        is_new
    }

    /// Takes into the circuit what is believable of all that was told, `is_alone` if there is only
    /// one who could tell. Returns what changed.
    pub(crate) fn absorb(&mut self, now: Duration, is_alone: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            let ceiling = self.circuit.believe(self.supported(is_alone));
            let mut is_done = true;
            for word in self.words.values_mut() {
                if let Some(vote) = word.vote.as_mut().filter(|vote| vote.waits(ceiling)) {
                    (vote.is_taken, is_done) = (true, false);
                    self.circuit.see(vote.what.incident);
                }
                if let Some(step) = word.step.as_mut().filter(|step| step.waits(ceiling)) {
                    (step.is_taken, is_done) = (true, false);
                    let aged = now.saturating_sub(step.at);
                    changes.push(self.circuit.hear_step(now, aged, &step.what));
                }
            }
            if is_done {
                self.has_doubts = self.words.values().any(Word::waits);
                return changes;
            }
        }
    }

    /// The largest incident that two members vouch for, or the only other one.
    fn supported(&self, is_alone: bool) -> u64 {
        let mut claims: Vec<u64> = self.words.values().map(Word::incident).collect();
        claims.sort_unstable_by(|one, other| other.cmp(one));
        let enough = if is_alone { 0 } else { 1 };
        claims.get(enough).copied().unwrap_or(0)
    }

    /// This node's own window as it would be stated at `now`: what is too old left out.
    pub(crate) fn window_at(&self, now: Duration) -> Window {
        let passed = self.own.at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        let limit = self.conviction.window;
        let aged = |age: &Duration| Some(age.saturating_add(passed)).filter(|age| *age <= limit);
        let own = &self.own.window;
        Window {
            slow: own.slow.iter().filter_map(aged).take(SLOW_PIECES_MAX).collect(),
            last_success: own.last_success.as_ref().and_then(aged),
            ..own.clone()
        }
    }

    /// Whether this node has so good a reason to trust the endpoint that the others' evidence does
    /// not convince it: a success within the window (or not longer ago than that by `lapse`, since
    /// the faults of the others are told as late as that), while its own share of faults is below
    /// the one that convicts, at most one fault came since that success, and no slow evidence less
    /// than `dedup` before it (a fast answer must not hide a slow one).
    pub(crate) fn has_fresh_success(&self, now: Duration, lapse: Duration) -> bool {
        let window = self.window_at(now);
        let limit = self.conviction.window.saturating_add(lapse);
        let success = self.own.succeeded_at.map(|at| now.saturating_sub(at));
        let Some(success) = success.filter(|success| *success <= limit) else {
            return false;
        };
        let is_failing = window.faults_milli > 0
            && self.conviction.is_share_reached(window.faults_milli, window.requests);
        let after_slow = success.saturating_add(self.conviction.dedup);
        let is_slow = window.slow.iter().min().is_some_and(|slow| *slow < after_slow);
        !is_failing && !is_slow && self.own.streak_milli <= 1_000
    }

    /// Whether nothing here can change by the passing of time alone. `lapse`: how long a heard
    /// window stands.
    pub(crate) fn is_calm(&self, now: Duration, lapse: Duration) -> bool {
        let circuit = &self.circuit;
        let is_order_over =
            circuit.order.as_ref().is_none_or(|held| held.until.is_none_or(|until| now >= until));
        let is_quiet = |word: &Word| {
            word.vote.as_ref().is_none_or(|told| told.what.state == VoteState::Withdrawn)
                && word.window.as_ref().is_none_or(|told| now >= told.at.saturating_add(lapse))
        };
        circuit.opening.is_none()
            && circuit.vote_at(now, VoteState::Stands).is_none()
            && !circuit.is_led()
            && circuit.lent.is_none()
            && !self.own.is_open
            && !self.own.window.is_bad()
            && is_order_over
            && self.forced == circuit.forced(now)
            && self.words.values().all(is_quiet)
    }
}

impl Word {
    fn take(&mut self, now: Duration, (closed, dedup): (u64, Duration), heard: &Heard) -> bool {
        if self.knows(heard) {
            return false;
        }
        self.seqs.insert(Kind::of(&heard.statement), heard.seq);
        match &heard.statement {
            Statement::Vote(_, vote) => {
                // What a closing ends is no change of mind, nor is the next incident.
                let before = self.vote.as_ref().map(|told| &told.what);
                let has_changed =
                    |before: &Vote| before.state != vote.state && before.incident > closed;
                if before.is_some_and(has_changed) {
                    self.changes.note(now);
                }
                self.vote = Some(Told::new(now, vote));
            }
            Statement::Step(_, step) => self.step = Some(Told::new(now, step)),
            Statement::Window(_, window) => {
                let mut told = Told::new(now, window);
                if let Some(before) = &self.window {
                    told.date_back(before, dedup);
                }
                self.window = Some(told);
            }
            Statement::Override(..) | Statement::Member(..) => {}
        }
        true
    }

    fn knows(&self, heard: &Heard) -> bool {
        let known = self.seqs.get(&Kind::of(&heard.statement));
        known.is_some_and(|known| *known >= heard.seq)
    }

    /// Drops what the member no longer states. A window lapses by itself: who opens first states
    /// its own no longer, and the others still need it to come to the same verdict.
    pub(crate) fn drop(&mut self, kind: Kind) {
        match kind {
            Kind::Vote => self.vote = None,
            Kind::Step => self.step = None,
            Kind::Window | Kind::Override | Kind::Member => {}
        }
    }

    /// Whether something in it is not taken in yet.
    fn waits(&self) -> bool {
        self.vote.as_ref().is_some_and(|told| !told.is_taken)
            || self.step.as_ref().is_some_and(|told| !told.is_taken)
    }

    /// The largest incident that the member speaks of.
    fn incident(&self) -> u64 {
        let vote = self.vote.as_ref().map_or(0, |told| told.what.incident);
        vote.max(self.step.as_ref().map_or(0, |told| told.what.incident))
    }

    /// Whether the member has the endpoint out by its own word, in an incident after `closed`.
    pub(crate) fn holds(&self, closed: u64) -> Option<&Told<Step>> {
        self.led(closed).filter(|told| told.what.is_held)
    }

    /// Whether the member knows of such an incident, and does not have the endpoint out.
    pub(crate) fn abstains(&self, closed: u64) -> Option<&Told<Step>> {
        self.led(closed).filter(|told| !told.what.is_held)
    }

    fn led(&self, closed: u64) -> Option<&Told<Step>> {
        self.step
            .as_ref()
            .filter(|told| told.what.stage != Stage::Closed && told.what.incident > closed)
    }
}

/// Something that belongs to an incident.
pub(crate) trait OfIncident {
    fn incident(&self) -> u64;
}

impl OfIncident for Vote {
    fn incident(&self) -> u64 {
        self.incident
    }
}

impl OfIncident for Step {
    fn incident(&self) -> u64 {
        self.incident
    }
}

impl<T: Clone> Told<T> {
    fn new(now: Duration, what: &T) -> Self {
        Self { what: what.clone(), at: now, is_taken: false }
    }
}

impl<T: OfIncident> Told<T> {
    /// Whether it is to be taken in now that incidents up to `ceiling` are plausible.
    fn waits(&self, ceiling: u64) -> bool {
        !self.is_taken && (1..=ceiling).contains(&self.what.incident())
    }
}

impl Told<Window> {
    /// Dates each slow piece that was known `before` as it was then: what is told comes late and
    /// never early, so of two datings the earlier is right. Without this one moment that two members
    /// told of by different ways would look like two. A member's own pieces are no closer together
    /// than `dedup`.
    fn date_back(&mut self, before: &Self, dedup: Duration) {
        let later = self.at.saturating_sub(before.at);
        for age in &mut self.what.slow {
            let known = before.what.slow.iter().map(|known| known.saturating_add(later));
            let same = known.filter(|known| *known > *age && *known - *age < dedup).max();
            *age = same.unwrap_or(*age);
        }
    }
}

impl Changes {
    /// Notes a change at `now`. No more are kept than are needed to tell that there were too many.
    pub(crate) fn note(&mut self, now: Duration) {
        if self.0.len() > CHANGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Whether there were too many of late.
    pub(crate) fn is_flapping(&self, now: Duration) -> bool {
        let is_full = self.0.len() > CHANGES_MAX;
        is_full && self.0.front().is_some_and(|at| now < at.saturating_add(CHANGES_WITHIN))
    }
}

impl Sight {
    /// Takes in what this node itself knows at `now`.
    pub(crate) fn note(&mut self, now: Duration, local: &Local) {
        let Local { opening, window, is_shadow, is_trying } = local;
        let succeeded_at = window.last_success.map(|ago| now.saturating_sub(ago));
        if succeeded_at > self.succeeded_at || window.faults_milli == 0 {
            self.streak_milli = 0;
        } else {
            let more = window.faults_milli.saturating_sub(self.window.faults_milli);
            self.streak_milli = self.streak_milli.saturating_add(more);
        }
        self.succeeded_at = self.succeeded_at.max(succeeded_at);
        self.is_open = opening.is_some();
        self.is_shadow = *is_shadow;
        self.is_trying = *is_trying;
        self.window = window.clone();
        self.at = Some(now);
    }

    /// Whether it is what this node sees at `now`, and not what it saw before.
    pub(crate) fn is_of(&self, now: Duration) -> bool {
        self.at == Some(now)
    }

    /// Whether it is what this node saw no longer than `most` before `now`.
    pub(crate) fn is_within(&self, now: Duration, most: Duration) -> bool {
        self.at.is_some_and(|at| now <= at.saturating_add(most))
    }

    /// Notes whether this node's vote stands when it is about to be stated.
    pub(crate) fn note_vote(&mut self, now: Duration, vote: Option<&MyVote>) {
        let is_standing = vote.is_some_and(|vote| vote.withdrawn.is_none());
        let is_ended = vote.is_some_and(|vote| vote.is_ended);
        if self.had_vote != is_standing && !is_ended && !self.was_ended {
            self.changes.note(now);
        }
        self.had_vote = is_standing;
        self.was_ended = is_ended;
    }

    /// What it last saw, ages as they were then.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }
}
