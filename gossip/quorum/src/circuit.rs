//! One endpoint's incident as one node knows it: the opening, the fenced steps, the cool-down.
//!
//! Steps of recovery form one total order, (incident, failed probes, stage), and a node keeps the
//! furthest it has seen. So all nodes that have heard the same steps, in any order and any number
//! of times, know the same furthest one; and a steward that comes back late with an old success is
//! outranked by the failed probe that followed it. Where a closing was already followed such a
//! failure does not undo it, since only a majority of votes opens; it makes those votes valid
//! again.

mod order;
mod vote;

use std::time::Duration;

pub use order::HeldOverride;
pub use vote::MyVote;

use crate::statement::{EndpointKey, Forced, NodeId, Stage, Step};
use crate::steward::{fnv, stir};
use crate::tally::{INCIDENT_GAP_MAX, Tally};

/// Incident numbers above this are refused even from a node that knows nothing yet: 2⁴⁰ incidents
/// are a thousand years of one each 30 ms.
const INCIDENT_MAX: u64 = 1 << 40;

/// Cool-downs are spread by this share either way, so that endpoints that went out together do not
/// return together.
const JITTER: f64 = 0.2;

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
    /// The largest incident in any plausible statement.
    seen: u64,
    /// When the last incident closed here, and at which level.
    last_closed: Option<(Duration, u32)>,
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
            seen: 0,
            last_closed: None,
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
        known.max(self.seen.saturating_sub(INCIDENT_GAP_MAX))
    }

    /// Notes that somebody spoke of `incident`. Returns whether the number is believable.
    pub fn see(&mut self, incident: u64) -> bool {
        let ceiling = match self.seen {
            0 => INCIDENT_MAX,
            seen => seen.max(self.closed()) + INCIDENT_GAP_MAX,
        };
        let is_plausible = incident > 0 && incident <= ceiling;
        if is_plausible {
            self.seen = self.seen.max(incident);
        }
        is_plausible
    }

    /// Takes in a step stated `aged` ago. Returns what it changed here.
    pub fn hear_step(&mut self, now: Duration, aged: Duration, step: &Step) -> Change {
        if !self.see(step.incident) {
            return Change::Nothing;
        }
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
    /// moves only when the probe was begun anew, by much and with time to go, lest those who pass on
    /// that a lost probe is over put off for ever whoever would take over.
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
            Stage::Waiting { .. } => until < known_until,
            Stage::Probing { remaining } => {
                let begun_anew = known_until.saturating_add(self.recovery.probe_timeout / 2);
                !remaining.is_zero() && until > begun_anew
            }
            Stage::Canary { .. } | Stage::Closed => false,
        }
    }

    /// Lets a standing opening cool down until `now` at least: an order held it up, and without
    /// this every rank would be past its turn at once.
    pub(crate) fn defer(&mut self, now: Duration) {
        if let Some(opening) = &mut self.opening {
            opening.due = opening.due.max(now);
        }
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
        let Some(opening) = self.opening.as_mut().filter(|_| step.stage != Stage::Closed) else {
            return;
        };
        opening.incident = step.incident;
        opening.failures = step.failures;
        opening.level = step.level;
        match step.stage {
            Stage::Waiting { remaining } => {
                opening.due = stated_at.saturating_add(remaining);
                opening.probing_until = None;
            }
            Stage::Probing { remaining } => {
                // Who hears of a probe only may have missed the cool-down before it: it is over.
                opening.due = stated_at;
                opening.probing_until = Some(stated_at.saturating_add(remaining));
            }
            Stage::Canary { .. } | Stage::Closed => {}
        }
    }

    /// A closing ends the opening and this node's vote of that incident; any other step of a later
    /// incident takes a vote that still stands along.
    fn settle_mine(&mut self, now: Duration, step: &Step) -> Change {
        let vote_is_over = self.mine.as_ref().is_some_and(|vote| vote.incident <= step.incident);
        match step.stage {
            Stage::Closed => {
                let was_open =
                    self.opening.take_if(|opening| opening.incident <= step.incident).is_some();
                let had_vote = vote_is_over && self.withdraw(now);
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

    /// Opens for the fleet: `tally` has a majority since `since`. An incident that is led already
    /// is joined, its probe in flight included.
    pub fn open(&mut self, endpoint: &EndpointKey, since: Duration, tally: &Tally) -> Opening {
        let led = self.furthest.clone().filter(|(step, _)| step.stage != Stage::Closed);
        let level = match self.last_closed {
            Some((at, level)) if since < at.saturating_add(self.recovery.reset_after) => {
                level.saturating_add(1)
            }
            Some(_) | None => 0,
        };
        let mut opening = Opening {
            incident: tally.incident,
            since,
            failures: 0,
            level: level.min(LEVEL_MAX),
            due: since,
            probing_until: None,
            my_probe: None,
        };
        opening.due = since.saturating_add(self.cool_down(endpoint, &opening));
        self.opening = Some(opening.clone());
        if let Some((step, stated_at)) = led {
            self.follow(&step, stated_at);
        }
        self.opening.clone().unwrap_or(opening)
    }

    /// How long the opening cools down: base × 2^level, spread by a jitter that is the same on
    /// every node, never above the maximum.
    pub fn cool_down(&self, endpoint: &EndpointKey, opening: &Opening) -> Duration {
        let bits = stir(
            fnv(endpoint.as_str().bytes())
                ^ opening.incident.rotate_left(32)
                ^ u64::from(opening.failures),
        );
        let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let grown = self.recovery.base.saturating_mul(1 << opening.level.min(LEVEL_MAX));
        let capped = grown.min(self.recovery.max).as_secs_f64();
        Duration::try_from_secs_f64(capped * (1.0 - JITTER + 2.0 * JITTER * unit))
            .map_or(self.recovery.max, |spread| spread.min(self.recovery.max))
    }

    /// Whether the member of this `rank` should probe at `now`, its turn counted from `awake` at
    /// the earliest: after a long sleep all ranks would be past their turns.
    pub fn is_probe_due(&self, now: Duration, rank: u32, awake: Duration) -> bool {
        let Some(opening) = &self.opening else {
            return false;
        };
        let timeout = self.recovery.probe_timeout;
        // A probe of this node that was never reported is lost once the next in rank had its turn.
        let lost_at = self.probe_begun.saturating_add(timeout.saturating_mul(3));
        let is_mine_in_flight = opening.my_probe.is_some() && now < lost_at;
        if is_mine_in_flight || self.forced(now) != Forced::Auto {
            return false;
        }
        let ready = opening.due.max(awake).max(opening.probing_until.unwrap_or_default());
        now >= ready.saturating_add(timeout.saturating_mul(rank))
    }

    /// Notes that this node's probe begins. Returns the number it is fenced by.
    pub fn begin_probe(&mut self, now: Duration, me: &NodeId) -> Option<u32> {
        let remaining = self.recovery.probe_timeout;
        let opening = self.opening.as_mut()?;
        self.probe_begun = now;
        opening.my_probe = Some(opening.failures);
        opening.probing_until = Some(now.saturating_add(remaining));
        let failures = opening.failures;
        self.take_step(now, me, Stage::Probing { remaining });
        Some(failures)
    }

    /// Notes how this node's probe, fenced by `failures`, went. A probe of a step that has been
    /// overtaken changes nothing.
    pub fn end_probe(
        &mut self,
        now: Duration,
        (me, endpoint): (&NodeId, &EndpointKey),
        (incident, failures): (u64, u32),
        result: ProbeResult,
    ) -> Change {
        let base = self.recovery.base;
        let Some(opening) = &mut self.opening else {
            return Change::Nothing;
        };
        if opening.my_probe == Some(failures) {
            opening.my_probe = None;
        }
        if (opening.incident, opening.failures) != (incident, failures) {
            return Change::Nothing;
        }
        match result {
            ProbeResult::Passed => self.close(now, me),
            ProbeResult::Failed => {
                opening.probing_until = None;
                opening.failures = opening.failures.saturating_add(1);
                opening.level = opening.level.saturating_add(1).min(LEVEL_MAX);
                let failed = opening.clone();
                let remaining = self.cool_down(endpoint, &failed);
                if let Some(opening) = &mut self.opening {
                    opening.due = now.saturating_add(remaining);
                }
                self.take_step(now, me, Stage::Waiting { remaining });
                Change::Nothing
            }
            ProbeResult::Inconclusive => {
                // Another may have taken over meanwhile: its probe is in flight, not this one.
                if self.furthest.as_ref().is_some_and(|(step, _)| step.steward == *me) {
                    opening.probing_until = None;
                    opening.due = now.saturating_add(base);
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
        Some(Step { stage, age: step.age.saturating_add(passed), ..step.clone() })
    }
}

/// What a step or a probe changed for this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that routing would notice.
    Nothing,
    /// The incident is over here.
    Closed {
        /// Whether the fleet had the endpoint out here, or only this node's vote ended.
        was_open: bool,
    },
}

/// How a probe went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// It answered well and in time.
    Passed,
    /// It did not.
    Failed,
    /// It says nothing about the endpoint's health, for example a 4xx answer.
    Inconclusive,
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

/// The total order of steps.
fn fence(step: &Step) -> (u64, u32, u8) {
    let stage = match step.stage {
        Stage::Waiting { .. } => 0,
        Stage::Probing { .. } => 1,
        Stage::Canary { .. } => 2,
        Stage::Closed => 3,
    };
    (step.incident, step.failures, stage)
}
