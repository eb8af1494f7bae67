//! This node's own vote about one endpoint: cast once per opening of its breaker, for one incident.
//!
//! A breaker that opened on the node's own traffic casts it, or the evidence of all members
//! together; an opening that the fleet imposed never does. It ends with its reason, or with the
//! closing of its incident; a breaker that has not yet followed such a closing does not cast it
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
    /// What it rests on.
    pub basis: Basis,
    /// When the breaker opened, or the pool convicted, on this node's clock.
    pub since: Duration,
    /// Why, in a few words.
    pub reason: String,
    /// What was seen.
    pub evidence: Evidence,
    /// When it was withdrawn; `None` while it stands.
    pub withdrawn: Option<Duration>,
    /// Whether it was a closing that ended it.
    pub is_ended: bool,
}

/// A vote to be cast.
pub(crate) struct Cast {
    /// What it rests on.
    pub(crate) basis: Basis,
    /// Since when there is reason for it.
    pub(crate) since: Duration,
    /// Why, in a few words.
    pub(crate) reason: String,
    /// What was seen.
    pub(crate) evidence: Evidence,
}

impl Circuit {
    /// Casts this node's vote, or keeps the one that stands; first-hand takes the place of
    /// seconded. `others` is the largest incident for which another live member's valid vote
    /// stands.
    pub(crate) fn cast(&mut self, cast: Cast, others: u64) {
        let closed = self.closed();
        if let Some(vote) = self.mine.as_mut().filter(|vote| vote.withdrawn.is_none()) {
            // Numbers may have run away from a vote that no closing has ended.
            vote.incident = vote.incident.max(closed.saturating_add(1));
            if cast.basis == Basis::FirstHand && vote.basis == Basis::Seconded {
                let Cast { basis, since, reason, evidence } = cast;
                *vote = MyVote { basis, since, reason, evidence, ..vote.clone() };
            }
            return;
        }
        // A closing ended the vote, and its breaker has not yet followed.
        let is_over = |vote: &MyVote| {
            let is_final = vote.is_ended || vote.basis == Basis::FirstHand;
            is_final && vote.withdrawn.is_some_and(|at| cast.since <= at)
        };
        if self.mine.as_ref().is_some_and(is_over) {
            return;
        }
        // An incident that is known to be led is not over, even if its voters are gone.
        let led = self.furthest.as_ref().map_or(0, |(step, _)| step.incident);
        let incident = match &self.opening {
            Some(opening) => opening.incident,
            None if others.max(led) > closed => others.max(led),
            None => self.seen.max(closed).saturating_add(1),
        };
        self.seen = self.seen.max(incident);
        let Cast { basis, since, reason, evidence } = cast;
        self.mine = Some(MyVote {
            incident,
            basis,
            since,
            reason,
            evidence,
            withdrawn: None,
            is_ended: false,
        });
    }

    /// Withdraws this node's vote if one stands.
    pub(crate) fn withdraw(&mut self, now: Duration) {
        if let Some(vote) = self.mine.as_mut().filter(|vote| vote.withdrawn.is_none()) {
            vote.withdrawn = Some(now);
        }
    }

    /// Ends this node's vote by a closing. Returns whether one stood.
    pub(super) fn end_vote(&mut self, now: Duration) -> bool {
        let had_vote = self.standing_basis().is_some();
        self.withdraw(now);
        if let Some(vote) = &mut self.mine {
            vote.is_ended = true;
        }
        had_vote
    }

    /// What this node's vote rests on; `None` unless one stands.
    pub(crate) fn standing_basis(&self) -> Option<Basis> {
        self.mine.as_ref().filter(|vote| vote.withdrawn.is_none()).map(|vote| vote.basis)
    }

    /// This node's vote as it would be stated at `now`; a withdrawn one for a while only. One that
    /// is not withdrawn is stated as `standing`.
    pub(crate) fn vote_at(&self, now: Duration, standing: VoteState) -> Option<Vote> {
        let vote = self.mine.as_ref()?;
        if vote.withdrawn.is_some_and(|at| now > at.saturating_add(WITHDRAWAL_STATED)) {
            return None;
        }
        Some(Vote {
            incident: vote.incident,
            basis: vote.basis,
            state: match vote.withdrawn {
                None => standing,
                Some(_) => VoteState::Withdrawn,
            },
            reason: vote.reason.clone(),
            evidence: vote.evidence,
            age: now.saturating_sub(vote.since),
        })
    }
}
