//! How an opening begins, cools down, and is let go of.
//!
//! A majority of votes opens, or a majority of those who have it out already; and who is cut off
//! from them all lets go. How long it cools down is the same on every node, without a word.

use std::time::Duration;

use crate::circuit::{Change, Circuit, LEVEL_MAX, Opening, Way, is_open};
use crate::statement::{EndpointKey, NodeId, Stage};
use crate::steward::{fnv, stir};
use crate::tally::Tally;

/// Cool-downs are spread by this share either way, so that endpoints that went out together do not
/// return together.
const JITTER: f64 = 0.2;

impl Circuit {
    /// Opens for the fleet: `tally` has a majority since `since`. An incident that is led already
    /// is joined, its probe in flight included.
    pub fn open(&mut self, endpoint: &EndpointKey, since: Duration, tally: &Tally) -> Opening {
        let led = self.furthest.clone().filter(|(step, _)| is_open(step));
        let opening = self.beginning(endpoint, since, tally.incident);
        self.opening = Some(opening.clone());
        if let Some((step, stated_at)) = led {
            self.follow(&step, stated_at);
        }
        self.opening.clone().unwrap_or(opening)
    }

    /// An opening for `incident` as it would begin at `since`.
    pub(crate) fn beginning(
        &self,
        endpoint: &EndpointKey,
        since: Duration,
        incident: u64,
    ) -> Opening {
        let level = match self.last_closed {
            Some((at, level)) if since < at.saturating_add(self.recovery.reset_after) => {
                level.saturating_add(1)
            }
            Some(_) | None => 0,
        };
        let opening = Opening {
            incident,
            since,
            failures: 0,
            level: level.min(LEVEL_MAX),
            due: since,
            probing_until: None,
            my_probe: None,
            slot: None,
        };
        let due = since.saturating_add(self.cool_down(endpoint, &opening));
        Opening { due, ..opening }
    }

    /// Joins the incident that is led, by the word of those who have the endpoint out.
    pub(crate) fn join(&mut self) -> Option<Opening> {
        let (step, stated_at) = self.furthest.clone().filter(|(step, _)| is_open(step))?;
        self.opening = Some(Opening {
            incident: step.incident,
            since: stated_at.saturating_sub(step.age),
            failures: step.failures,
            level: step.level,
            due: stated_at,
            probing_until: None,
            my_probe: None,
            slot: None,
        });
        self.follow(&step, stated_at);
        self.opening.clone()
    }

    /// Lets go of the opening without a step: this node is cut off from those who could end it.
    pub(crate) fn let_go(&mut self) -> Change {
        match self.opening.take() {
            Some(_) => Change::Closed { was_open: true },
            None => Change::Nothing,
        }
    }

    /// Takes up an incident that everybody has let go of, as if its last stage had failed: what was
    /// left of it says nothing about the endpoint any more.
    pub(crate) fn take_up(&mut self, now: Duration, (me, endpoint): (&NodeId, &EndpointKey)) {
        if let Some(opening) = &mut self.opening {
            opening.failures = opening.failures.saturating_add(1);
        }
        self.wait(now, (me, endpoint));
    }

    /// Lets the standing opening cool down from `now`, and says so.
    fn wait(&mut self, now: Duration, (me, endpoint): (&NodeId, &EndpointKey)) {
        if let Some(opening) = self.opening.clone() {
            let remaining = self.cool_down(endpoint, &opening);
            self.take_step(now, me, Stage::Waiting { remaining });
        }
    }

    /// Notes that the stage failed: back to cooling down, longer.
    pub(super) fn fail(&mut self, now: Duration, (me, endpoint): (&NodeId, &EndpointKey)) {
        if let Some(opening) = &mut self.opening {
            opening.failures = opening.failures.saturating_add(1);
            opening.level = opening.level.saturating_add(1).min(LEVEL_MAX);
        }
        self.wait(now, (me, endpoint));
    }

    /// How long the opening cools down: base × 2^level, spread by a jitter that is the same on
    /// every node, never above the maximum. The lazy way has one fixed time.
    pub fn cool_down(&self, endpoint: &EndpointKey, opening: &Opening) -> Duration {
        if let Way::Lazy { ttl } = self.recovery.way {
            return ttl;
        }
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
}
