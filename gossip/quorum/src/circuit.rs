//! One endpoint's incident as one node knows it: the opening, the fenced steps, the cool-down.
//!
//! Steps of recovery form one total order, (incident, failures, stage, turn, successes), and a node
//! keeps the furthest it has seen. So all nodes that have heard the same steps, in any order and
//! any number of times, know the same furthest one; and a steward that comes back late with an old
//! success is outranked by the failed probe that followed it. Where a closing was already followed
//! such a failure does not undo it, since only a majority of votes opens; it makes those votes
//! valid again.

mod canary;
mod opening;
mod order;
mod probe;
mod vote;

use std::time::Duration;

pub use canary::Slot;
pub use order::HeldOverride;
pub use probe::ProbeResult;
pub(crate) use vote::Cast;
pub use vote::MyVote;

use crate::statement::{CanaryFence, Forced, NodeId, Stage, Step};
use crate::tally::INCIDENT_GAP_MAX;

/// Incident numbers above this are refused whoever supports them: 2⁴⁰ incidents are a thousand
/// years of one each 30 ms.
const INCIDENT_MAX: u64 = 1 << 40;

/// How far above what is believed one member alone may count: half of what a vote's incident may
/// lie above the closed one, so that the next number after it is still valid everywhere.
const ALONE_MAX: u64 = INCIDENT_GAP_MAX / 2;

/// Doubling stops here; any sensible maximum is reached long before.
const LEVEL_MAX: u32 = 16;

/// The knobs of one endpoint's recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The first cool-down.
    pub base: Duration,
    /// The longest cool-down.
    pub max: Duration,
    /// A closing that has held for this long lets the next incident start from `base` again.
    pub reset_after: Duration,
    /// How long the steward's probe may take; the next in rank waits as long before it steps in.
    pub probe_timeout: Duration,
    /// By which way it comes back.
    pub way: Way,
}

/// By which way an endpoint comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Rung by rung, led by the steward.
    Ladder {
        /// Whether the steward sends a probe first.
        probe: bool,
        /// How many small requests must succeed in a row thereafter; 0: none.
        canaries: u32,
        /// How long a holder of the canary slot may be without small requests.
        turn: Duration,
    },
    /// Straight back in for everyone at the same time.
    Lazy {
        /// How long after the opening.
        ttl: Duration,
    },
}

/// The cluster's opening of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The incident.
    pub incident: u64,
    /// When the deciding vote was cast, on this node's clock.
    pub since: Duration,
    /// Failed probes in this incident.
    pub failures: u32,
    /// How many times the cool-down has doubled.
    pub level: u32,
    /// When the cool-down is over, on this node's clock.
    pub due: Duration,
    /// Until when a probe is known to be in flight.
    pub probing_until: Option<Duration>,
    /// The probe that this node itself has in flight, by its number of failures.
    pub my_probe: Option<u32>,
    /// Who holds the canary slot; `None` before that stage.
    pub slot: Option<Slot>,
}

/// One endpoint as this node knows it through the fleet.
#[derive(Clone, Debug)]
pub struct Circuit {
    pub(crate) recovery: Recovery,
    pub(crate) mine: Option<MyVote>,
    pub(crate) opening: Option<Opening>,
    pub(crate) order: Option<HeldOverride>,
    /// The furthest step known, with the moment from which its durations count.
    pub(crate) furthest: Option<(Step, Duration)>,
    /// When this node's last probe began.
    probe_begun: Duration,
    /// How many probes of this node in a row said nothing, of the opening with this fence.
    inconclusive: ((u64, u32), u32),
    /// The largest incident in any plausible statement.
    seen: u64,
    /// The largest incident that more than one member vouches for, or this node itself.
    believed: u64,
    /// When the last incident closed here, and at which level.
    last_closed: Option<(Duration, u32)>,
    /// The hold of the canary slot that this node's breaker was told of.
    pub(crate) lent: Option<CanaryFence>,
    /// When an order last began or ended: an opening that it held up lasts from then on anew.
    deferred_at: Duration,
}

impl Circuit {
    /// An endpoint of which nothing is known.
    pub fn new(recovery: Recovery) -> Self {
        Self {
            recovery,
            mine: None,
            opening: None,
            order: None,
            furthest: None,
            probe_begun: Duration::ZERO,
            inconclusive: ((0, 0), 0),
            seen: 0,
            believed: 0,
            last_closed: None,
            lent: None,
            deferred_at: Duration::ZERO,
        }
    }

    /// The last incident that is over: votes for it or for earlier ones are void.
    pub fn closed(&self) -> u64 {
        let known = self.furthest.as_ref().map_or(0, |(step, _)| match step.stage {
            Stage::Closed => step.incident,
            Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Canary { .. } => {
                step.incident.saturating_sub(1)
            }
        });
        known.max(self.believed.saturating_sub(INCIDENT_GAP_MAX))
    }

    /// Notes that `supported` is the largest incident that enough members vouch for. Returns the
    /// largest that is plausible from one member alone: an honest one is never far ahead of the
    /// others, and without this one lie told to a node that knows nothing yet would void all votes.
    pub(crate) fn believe(&mut self, supported: u64) -> u64 {
        let mine = self.mine.as_ref().map_or(0, |vote| vote.incident);
        let known = self.furthest.as_ref().map_or(0, |(step, _)| step.incident);
        let believed = self.believed.max(supported.min(INCIDENT_MAX)).max(mine).max(known);
        self.believed = believed;
        believed.saturating_add(ALONE_MAX).min(INCIDENT_MAX)
    }

    /// Notes that somebody spoke of `incident`, which is plausible.
    pub(crate) fn see(&mut self, incident: u64) {
        self.seen = self.seen.max(incident);
    }

    /// When the last incident closed here.
    pub(crate) fn closed_at(&self) -> Option<Duration> {
        self.last_closed.map(|(at, _)| at)
    }

    /// Takes the word of the ledger for an incident: what is committed needs no second member's support,
    /// and lies far ahead of what this node knows if it was away for long. Returns whether it is a number
    /// that anybody may use.
    pub(crate) fn trust(&mut self, incident: u64) -> bool {
        let is_possible = incident <= INCIDENT_MAX;
        if is_possible {
            self.believed = self.believed.max(incident);
            self.see(incident);
        }
        is_possible
    }

    /// Notes the largest number that the ledger knows of, as far as it is plausible: what it
    /// stands for may be lost.
    pub(crate) fn heed(&mut self, epoch: u64) {
        let ceiling = self.believe(0);
        self.see(epoch.min(ceiling));
    }

    /// The largest incident in any plausible statement.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether an incident is known that is not over, whoever has the endpoint out.
    pub(crate) fn is_led(&self) -> bool {
        self.furthest.as_ref().is_some_and(|(step, _)| is_open(step))
    }

    /// Takes in a step of a plausible incident, stated `aged` ago. Returns what it changed here.
    pub fn hear_step(&mut self, now: Duration, aged: Duration, step: &Step) -> Change {
        self.see(step.incident);
        let stated_at = now.saturating_sub(aged);
        if let Some((known, since)) = &self.furthest {
            if fence(step) < fence(known) {
                return Change::Nothing;
            }
            if fence(step) == fence(known) {
                if self.is_better_told(known, *since, step, stated_at) {
                    self.furthest = Some((step.clone(), stated_at));
                    self.follow(step, stated_at);
                }
                return Change::Nothing;
            }
        }
        self.furthest = Some((step.clone(), stated_at));
        self.follow(step, stated_at);
        self.settle_mine(now, step)
    }

    /// Whether `step`, the same as `known`, tells better when its stage ends. What is passed on
    /// comes late and never early: of two ends of a cool-down the earlier is right. A probe's end
    /// moves only when the probe was begun anew, by much and with time to go, lest those who pass
    /// on that a lost probe is over put off for ever whoever would take over.
    fn is_better_told(
        &self,
        known: &Step,
        since: Duration,
        step: &Step,
        stated_at: Duration,
    ) -> bool {
        let known_until = since.saturating_add(known.stage.remaining());
        let until = stated_at.saturating_add(step.stage.remaining());
        match step.stage {
            Stage::Waiting { .. } | Stage::Canary { .. } => until < known_until,
            Stage::Probing { remaining } => {
                let begun_anew = known_until.saturating_add(self.recovery.probe_timeout / 2);
                !remaining.is_zero() && until > begun_anew
            }
            Stage::Closed => false,
        }
    }

    /// Lets a standing opening cool down until `now` at least, and last as long as any from then on:
    /// an order held it up, and without this every rank would be past its turn at once.
    pub(crate) fn defer(&mut self, now: Duration) {
        self.deferred_at = now;
        if let Some(opening) = &mut self.opening {
            opening.due = opening.due.max(now);
            if let Some(slot) = &mut opening.slot {
                slot.until = slot.until.max(now);
            }
        }
    }

    /// Whether the opening's own time is over, whoever leads. It does not run while an order holds.
    pub(crate) fn is_expired(&self, now: Duration, max_open: Duration) -> bool {
        let opening = self.opening.as_ref().filter(|_| self.forced(now) == Forced::Auto);
        opening.is_some_and(|opening| {
            let is_lazy = matches!(self.recovery.way, Way::Lazy { .. });
            let since = opening.since.max(self.deferred_at);
            now >= since.saturating_add(max_open) || is_lazy && now >= opening.due
        })
    }

    /// Whether what closed last was closed since its own time was over: nothing but that ends the
    /// lazy way, and the ladder ends before.
    pub(crate) fn has_timed_out(&self, now: Duration, max_open: Duration) -> bool {
        let closing = self.step_at(now).filter(|step| step.stage == Stage::Closed);
        let (Some(step), Some((closed_at, _))) = (closing, self.last_closed) else {
            return false;
        };
        let since = now.saturating_sub(step.age).max(self.deferred_at);
        let is_lazy = matches!(self.recovery.way, Way::Lazy { .. });
        is_lazy || closed_at >= since.saturating_add(max_open)
    }

    /// Whether nobody has yet taken a step in the standing opening.
    pub fn is_unled(&self) -> bool {
        let known = self.furthest.as_ref().map_or(0, |(step, _)| step.incident);
        self.opening.as_ref().is_some_and(|opening| known < opening.incident)
    }

    /// Brings the opening in line with a step just learned: an incident that is led is joined as it
    /// is led, even by a node that opened under a later number, since until it is closed none is
    /// later.
    fn follow(&mut self, step: &Step, stated_at: Duration) {
        let longest = self.longest();
        let Some(opening) = self.opening.as_mut().filter(|_| step.stage != Stage::Closed) else {
            return;
        };
        opening.incident = step.incident;
        opening.failures = step.failures;
        opening.level = step.level;
        opening.slot = None;
        opening.probing_until = None;
        match &step.stage {
            Stage::Waiting { remaining } => {
                opening.due = stated_at.saturating_add((*remaining).min(longest));
            }
            Stage::Probing { remaining } => {
                // Who hears of a probe only may have missed the cool-down before it: it is over.
                opening.due = stated_at;
                opening.probing_until = Some(stated_at.saturating_add((*remaining).min(longest)));
            }
            Stage::Canary { holder, turn, successes, remaining } => {
                opening.due = stated_at;
                opening.slot = Some(Slot {
                    holder: holder.clone(),
                    turn: *turn,
                    successes: *successes,
                    known_at: stated_at,
                    until: stated_at.saturating_add((*remaining).min(longest)),
                });
            }
            Stage::Closed => {}
        }
    }

    /// No stage takes longer than this, whatever is said of it.
    fn longest(&self) -> Duration {
        let Recovery { base, max, probe_timeout, way, .. } = &self.recovery;
        let of_way = match way {
            Way::Ladder { .. } => self.hold(),
            Way::Lazy { ttl } => *ttl,
        };
        (*base).max(*max).max(*probe_timeout).max(of_way)
    }

    /// A closing ends the opening and this node's vote of that incident; any other step of a later
    /// incident takes a vote that still stands along.
    fn settle_mine(&mut self, now: Duration, step: &Step) -> Change {
        let vote_is_over = self.mine.as_ref().is_some_and(|vote| vote.incident <= step.incident);
        match step.stage {
            Stage::Closed => {
                let was_open =
                    self.opening.take_if(|opening| opening.incident <= step.incident).is_some();
                let had_vote = vote_is_over && self.end_vote(now);
                self.last_closed = Some((now, step.level));
                if was_open || had_vote { Change::Closed { was_open } } else { Change::Nothing }
            }
            Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Canary { .. } => {
                if let Some(vote) = self.mine.as_mut().filter(|vote| vote.withdrawn.is_none()) {
                    vote.incident = vote.incident.max(step.incident);
                }
                Change::Nothing
            }
        }
    }

    /// Closes the standing opening by this node's own word.
    pub fn close(&mut self, now: Duration, me: &NodeId) -> Change {
        self.take_step(now, me, Stage::Closed);
        match self.furthest.clone() {
            Some((step, _)) => self.settle_mine(now, &step),
            None => Change::Nothing,
        }
    }

    /// Makes `stage` of the standing opening the furthest step.
    pub fn take_step(&mut self, now: Duration, me: &NodeId, stage: Stage) {
        let Some(opening) = &self.opening else { return };
        let step = Step {
            incident: opening.incident,
            failures: opening.failures,
            level: opening.level,
            stage,
            steward: me.clone(),
            is_held: true,
            age: now.saturating_sub(opening.since),
        };
        self.follow(&step, now);
        self.furthest = Some((step, now));
    }

    /// The furthest step as it would be stated at `now`.
    pub fn step_at(&self, now: Duration) -> Option<Step> {
        let (step, since) = self.furthest.as_ref()?;
        let passed = now.saturating_sub(*since);
        let stage = match &step.stage {
            Stage::Waiting { remaining } => {
                Stage::Waiting { remaining: remaining.saturating_sub(passed) }
            }
            Stage::Probing { remaining } => {
                Stage::Probing { remaining: remaining.saturating_sub(passed) }
            }
            Stage::Canary { holder, turn, successes, remaining } => Stage::Canary {
                holder: holder.clone(),
                turn: *turn,
                successes: *successes,
                remaining: remaining.saturating_sub(passed),
            },
            Stage::Closed => Stage::Closed,
        };
        let is_held = self.opening.is_some() && stage != Stage::Closed;
        Some(Step { stage, age: step.age.saturating_add(passed), is_held, ..step.clone() })
    }
}

/// What a step, a probe or a canary changed for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that routing would notice.
    Nothing,
    /// The incident is over here.
    Closed {
        /// Whether the fleet had the endpoint out here, or only this node's vote ended.
        was_open: bool,
    },
    /// The probe has passed, and the canary slot is to be given to somebody.
    Passed,
}

impl Stage {
    /// How long the stage has to go.
    pub fn remaining(&self) -> Duration {
        match self {
            Self::Waiting { remaining }
            | Self::Probing { remaining }
            | Self::Canary { remaining, .. } => *remaining,
            Self::Closed => Duration::ZERO,
        }
    }

    /// The word used in the admin API and the logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Probing { .. } => "probing",
            Self::Canary { .. } => "canary",
            Self::Closed => "closed",
        }
    }
}

impl Step {
    /// Whether it is further than `other` by the total order of steps.
    pub fn outranks(&self, other: &Self) -> bool {
        fence(self) > fence(other)
    }
}

/// Whether the step is of an incident that is not over.
pub(crate) fn is_open(step: &Step) -> bool {
    step.stage != Stage::Closed
}

/// The place of a step in the total order of steps.
pub(crate) type Fence<'a> = (u64, u32, u8, u32, u32, Option<&'a NodeId>);

/// The total order of steps. The holder comes last: two members that hand the slot on at once, each
/// to another, must not leave it with both.
pub(crate) fn fence(step: &Step) -> Fence<'_> {
    let (stage, turn, successes, holder) = match &step.stage {
        Stage::Waiting { .. } => (0, 0, 0, None),
        Stage::Probing { .. } => (1, 0, 0, None),
        Stage::Canary { holder, turn, successes, .. } => (2, *turn, *successes, Some(holder)),
        Stage::Closed => (3, 0, 0, None),
    };
    (step.incident, step.failures, stage, turn, successes, holder)
}
