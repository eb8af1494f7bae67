//! One endpoint's incident as one node knows it: the opening, the fenced steps, the cool-down.
//!
//! Steps of recovery form one total order, (incident, failed probes, stage), and a node keeps the
//! furthest it has seen. So all nodes that have heard the same steps, in any order and any number of
//! times, agree; and a steward that comes back late with an old success is outranked by the failed
//! probe that followed it, while nothing else undoes a closing.

use std::time::Duration;

use crate::statement::{Basis, EndpointKey, Evidence, Forced, NodeId, Override, Stage, Step, Vote};
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

/// How long a withdrawn vote is stated as withdrawn: longer than gossip needs to reach everyone.
const WITHDRAWAL_STATED: Duration = Duration::from_secs(60);

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

/// This node's own vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MyVote {
    /// The incident it was cast for.
    pub incident: u64,
    /// When the breaker opened, on this node's clock.
    pub since: Duration,
    /// Why, in a few words.
    pub reason: String,
    /// What this node saw.
    pub evidence: Evidence,
    /// When it was withdrawn; `None` while it stands.
    pub withdrawn: Option<Duration>,
}

/// An override with the moment it lapses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOverride {
    /// What was ordered.
    pub order: Override,
    /// When it lapses, on this node's clock.
    pub until: Option<Duration>,
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
            seen: 0,
            last_closed: None,
        }
    }

    /// The last incident that is over: votes for it or for earlier ones are void.
    pub fn closed(&self) -> u64 {
        let known = self.furthest.as_ref().map_or(0, |(step, _)| match step.stage {
            Stage::Closed => step.incident,
            Stage::Waiting { .. } | Stage::Probing { .. } => step.incident.saturating_sub(1),
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

    /// Casts this node's first-hand vote, or keeps the one that stands. `others` is the largest
    /// incident for which another live member's valid vote stands.
    pub fn cast(&mut self, since: Duration, reason: &str, evidence: Evidence, others: u64) -> bool {
        // A vote stands, or was ended by a closing that its breaker has not yet followed.
        let is_cast = |vote: &MyVote| vote.withdrawn.is_none_or(|at| since <= at);
        if self.mine.as_ref().is_some_and(is_cast) {
            return false;
        }
        let incident = match &self.opening {
            Some(opening) => opening.incident,
            None if others > self.closed() => others,
            None => self.seen.max(self.closed()) + 1,
        };
        self.seen = self.seen.max(incident);
        let reason = reason.to_owned();
        self.mine = Some(MyVote { incident, since, reason, evidence, withdrawn: None });
        true
    }

    /// Withdraws this node's vote. Returns whether one stood.
    pub fn withdraw(&mut self, now: Duration) -> bool {
        match &mut self.mine {
            Some(vote) if vote.withdrawn.is_none() => {
                vote.withdrawn = Some(now);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Takes in a step stated `aged` ago. Returns what it changed here.
    pub fn hear_step(&mut self, now: Duration, aged: Duration, step: &Step) -> Change {
        if !self.see(step.incident) {
            return Change::Nothing;
        }
        let stated_at = now.saturating_sub(aged);
        if let Some((known, since)) = &mut self.furthest {
            if fence(step) < fence(known) {
                return Change::Nothing;
            }
            if fence(step) == fence(known) {
                // The same step told again moves nothing, unless it is a probe that was begun anew:
                // what is merely passed on comes a little later each time, but not this much.
                let until = stated_at + step.stage.remaining();
                let begun_anew = *since + known.stage.remaining() + self.recovery.probe_timeout / 2;
                if matches!(step.stage, Stage::Probing { .. }) && until > begun_anew {
                    (*known, *since) = (step.clone(), stated_at);
                    self.follow(step, stated_at);
                }
                return Change::Nothing;
            }
        }
        self.furthest = Some((step.clone(), stated_at));
        self.follow(step, stated_at);
        self.settle_mine(now, step)
    }

    /// Whether nobody has yet taken a step in the standing opening.
    pub fn is_unled(&self) -> bool {
        let known = self.furthest.as_ref().map_or(0, |(step, _)| step.incident);
        self.opening.as_ref().is_some_and(|opening| known < opening.incident)
    }

    /// Brings the opening in line with a step just learned.
    fn follow(&mut self, step: &Step, stated_at: Duration) {
        let Some(opening) = &mut self.opening else {
            return;
        };
        if step.incident < opening.incident {
            return;
        }
        opening.incident = step.incident;
        opening.failures = step.failures;
        opening.level = step.level;
        match step.stage {
            Stage::Waiting { remaining } => {
                opening.due = stated_at + remaining;
                opening.probing_until = None;
            }
            Stage::Probing { remaining } => opening.probing_until = Some(stated_at + remaining),
            Stage::Closed => {}
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
            Stage::Waiting { .. } | Stage::Probing { .. } => {
                if let Some(vote) = self.mine.as_mut().filter(|vote| vote.withdrawn.is_none()) {
                    vote.incident = vote.incident.max(step.incident);
                }
                Change::Nothing
            }
        }
    }

    /// Opens for the fleet: `tally` has a majority since `since`.
    pub fn open(&mut self, endpoint: &EndpointKey, since: Duration, tally: &Tally) -> Opening {
        let known = self.furthest.as_ref().filter(|(step, _)| step.incident >= tally.incident);
        let level = match self.last_closed {
            Some((at, level)) if since < at + self.recovery.reset_after => level + 1,
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
        opening.due = since + self.cool_down(endpoint, &opening);
        self.opening = Some(opening.clone());
        if let Some((step, stated_at)) = known.cloned() {
            self.follow(&step, stated_at);
        }
        self.opening.clone().unwrap_or(opening)
    }

    /// How long the opening cools down: base × 2^level, spread by a jitter that is the same on every
    /// node, never above the maximum.
    pub fn cool_down(&self, endpoint: &EndpointKey, opening: &Opening) -> Duration {
        let bits = stir(
            fnv(endpoint.as_str().bytes())
                ^ opening.incident.rotate_left(32)
                ^ u64::from(opening.failures),
        );
        let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let grown = self.recovery.base.saturating_mul(1 << opening.level.min(LEVEL_MAX));
        let capped = grown.min(self.recovery.max).as_secs_f64();
        Duration::from_secs_f64(capped * (1.0 - JITTER + 2.0 * JITTER * unit))
            .min(self.recovery.max)
    }

    /// Whether the member of this `rank` should probe at `now`.
    pub fn is_probe_due(&self, now: Duration, rank: u32) -> bool {
        let Some(opening) = &self.opening else {
            return false;
        };
        if opening.my_probe.is_some() || self.forced(now) != Forced::Auto {
            return false;
        }
        let ready = opening.probing_until.map_or(opening.due, |until| until.max(opening.due));
        now >= ready + self.recovery.probe_timeout.saturating_mul(rank)
    }

    /// Notes that this node's probe begins. Returns the number it is fenced by.
    pub fn begin_probe(&mut self, now: Duration, me: &NodeId) -> Option<u32> {
        let remaining = self.recovery.probe_timeout;
        let opening = self.opening.as_mut()?;
        opening.my_probe = Some(opening.failures);
        opening.probing_until = Some(now + remaining);
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
        opening.probing_until = None;
        match result {
            ProbeResult::Passed => self.close(now, me),
            ProbeResult::Failed => {
                opening.failures += 1;
                opening.level = (opening.level + 1).min(LEVEL_MAX);
                let failed = opening.clone();
                let remaining = self.cool_down(endpoint, &failed);
                if let Some(opening) = &mut self.opening {
                    opening.due = now + remaining;
                }
                self.take_step(now, me, Stage::Waiting { remaining });
                Change::Nothing
            }
            ProbeResult::Inconclusive => {
                opening.due = now + base;
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
            age: now.saturating_sub(opening.since),
        };
        self.furthest = Some((step, now));
    }

    /// Takes in an operator's order stated `aged` ago. Returns whether it is the newest.
    pub fn hear_order(&mut self, now: Duration, aged: Duration, order: &Override) -> bool {
        let is_newer = self.order.as_ref().is_none_or(|held| {
            (order.stamp, &order.author) > (held.order.stamp, &held.order.author)
        });
        if is_newer {
            let until = order.remaining.map(|remaining| now.saturating_sub(aged) + remaining);
            self.order = Some(HeldOverride { order: order.clone(), until });
        }
        is_newer
    }

    /// What an operator's order makes of the endpoint at `now`.
    pub fn forced(&self, now: Duration) -> Forced {
        match &self.order {
            Some(held) if held.until.is_none_or(|until| now < until) => held.order.forced,
            Some(_) | None => Forced::Auto,
        }
    }

    /// This node's vote as it would be stated at `now`; a withdrawn one for a while only.
    pub fn vote_at(&self, now: Duration) -> Option<Vote> {
        let vote = self.mine.as_ref()?;
        if vote.withdrawn.is_some_and(|at| now > at + WITHDRAWAL_STATED) {
            return None;
        }
        Some(Vote {
            incident: vote.incident,
            basis: Basis::FirstHand,
            stands: vote.withdrawn.is_none(),
            reason: vote.reason.clone(),
            evidence: vote.evidence,
            age: now.saturating_sub(vote.since),
        })
    }

    /// The newest order as it would be stated at `now`.
    pub fn order_at(&self, now: Duration) -> Option<Override> {
        let held = self.order.as_ref()?;
        let remaining = held.until.map(|until| until.saturating_sub(now));
        Some(Override { remaining, ..held.order.clone() })
    }

    /// The furthest step as it would be stated at `now`.
    pub fn step_at(&self, now: Duration) -> Option<Step> {
        let (step, since) = self.furthest.as_ref()?;
        let passed = now.saturating_sub(*since);
        let stage = match step.stage {
            Stage::Waiting { remaining } => {
                Stage::Waiting { remaining: remaining.saturating_sub(passed) }
            }
            Stage::Probing { remaining } => {
                Stage::Probing { remaining: remaining.saturating_sub(passed) }
            }
            Stage::Closed => Stage::Closed,
        };
        Some(Step { stage, age: step.age + passed, ..step.clone() })
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
            Self::Waiting { remaining } | Self::Probing { remaining } => *remaining,
            Self::Closed => Duration::ZERO,
        }
    }

    /// The word used in the admin API and the logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Probing { .. } => "probing",
            Self::Closed => "closed",
        }
    }
}

/// The total order of steps.
fn fence(step: &Step) -> (u64, u32, u8) {
    let stage = match step.stage {
        Stage::Waiting { .. } => 0,
        Stage::Probing { .. } => 1,
        Stage::Closed => 2,
    };
    (step.incident, step.failures, stage)
}
