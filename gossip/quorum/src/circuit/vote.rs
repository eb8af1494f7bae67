//! This node's own vote about one endpoint: cast once per opening of its breaker, for one incident.
//!
//! Only a breaker that opened on the node's own traffic casts it. It ends with the breaker, or with
//! the closing of its incident; a breaker that has not yet followed such a closing does not cast it
//! again.

use std::time::Duration;

use crate::circuit::Circuit;
use crate::statement::{Basis, Evidence, Vote, VoteState};

/// How long a withdrawn vote is stated as withdrawn: longer than gossip needs to reach everyone.
const WITHDRAWAL_STATED: Duration = Duration::from_secs(60);

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

impl Circuit {
    /// Casts this node's first-hand vote, or keeps the one that stands. `others` is the largest
    /// incident for which another live member's valid vote stands.
    pub fn cast(&mut self, since: Duration, reason: &str, evidence: Evidence, others: u64) -> bool {
        // A vote stands, or was ended by a closing that its breaker has not yet followed.
        let is_cast = |vote: &MyVote| vote.withdrawn.is_none_or(|at| since <= at);
        if self.mine.as_ref().is_some_and(is_cast) {
            return false;
        }
        // An incident that is known to be led is not over, even if its voters are gone.
        let led = self.furthest.as_ref().map_or(0, |(step, _)| step.incident);
        let incident = match &self.opening {
            Some(opening) => opening.incident,
            None if others.max(led) > self.closed() => others.max(led),
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

    /// This node's vote as it would be stated at `now`; a withdrawn one for a while only.
    pub fn vote_at(&self, now: Duration) -> Option<Vote> {
        let vote = self.mine.as_ref()?;
        if vote.withdrawn.is_some_and(|at| now > at.saturating_add(WITHDRAWAL_STATED)) {
            return None;
        }
        Some(Vote {
            incident: vote.incident,
            basis: Basis::FirstHand,
            state: match vote.withdrawn {
                None => VoteState::Stands,
                Some(_) => VoteState::Withdrawn,
            },
            reason: vote.reason.clone(),
            evidence: vote.evidence,
            age: now.saturating_sub(vote.since),
        })
    }
}
