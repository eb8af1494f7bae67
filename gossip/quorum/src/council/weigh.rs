//! What each vote and each window weighs on this node: one answer for the count and for the view.

use std::borrow::Cow;
use std::time::Duration;

use crate::council::{Council, Denominator};
use crate::dossier::{Dossier, Told, Word};
use crate::statement::{Basis, EndpointKey, NodeId, Vote, VoteState, Window};
use crate::tally::{Ballot, Tally, has_witnesses, is_valid, tally};
use crate::view::Weight;
use crate::voice::Voice;

/// An electorate of observers is never smaller than this: one node's word is no majority.
const OBSERVERS_MIN: usize = 2;

/// A vote with what it weighs here.
pub(crate) struct Weighed<'a> {
    pub(crate) voter: &'a NodeId,
    pub(crate) vote: Cow<'a, Vote>,
    /// Since when it was cast, on this node's clock.
    pub(crate) since: Duration,
    pub(crate) weight: Weight,
}

/// All votes on an endpoint, and by what they are counted.
pub(crate) struct BallotBox<'a> {
    pub(crate) votes: Vec<Weighed<'a>>,
    pub(crate) electorate: usize,
    pub(crate) witnesses: usize,
}

impl Weighed<'_> {
    /// Whether it is a ballot: the tally says itself what is void, and what a seconded one needs.
    pub(crate) fn is_ballot(&self) -> bool {
        match self.weight {
            Weight::Counts | Weight::IncidentClosed | Weight::NoWitness => true,
            Weight::Withdrawn
            | Weight::Lapsed
            | Weight::VoterLost
            | Weight::Abstains
            | Weight::Shadow
            | Weight::Suspect
            | Weight::Muted
            | Weight::Flapping
            | Weight::NotObserver => false,
        }
    }
}

impl Council {
    /// All votes known on an endpoint, this node's own first.
    pub(crate) fn ballot_box<'a>(&'a self, now: Duration, dossier: &'a Dossier) -> BallotBox<'a> {
        let electorate = self.denominator(now, dossier);
        // Who has it out needs them as everybody does: by what it alone counts it would stay out alone.
        let witnesses = self.witnesses(now, dossier);
        let has_witnesses = has_witnesses(self.electorate.size(), witnesses);
        let closed = dossier.circuit.closed();
        let judge = |weight: Weight, id: &NodeId, vote: &Vote| match weight {
            Weight::Counts if !is_valid(vote.incident, closed) => Weight::IncidentClosed,
            Weight::Counts if !self.may_vote(now, dossier, id, vote) => Weight::NotObserver,
            Weight::Counts if vote.basis == Basis::Seconded && !has_witnesses => Weight::NoWitness,
            weight => weight,
        };
        let mine = self.my_vote(now, dossier).map(|vote| {
            let weight = match by_state(vote.state) {
                Weight::Counts if dossier.own.changes.is_flapping(now) => Weight::Flapping,
                weight => weight,
            };
            let weight = judge(weight, &self.me, &vote);
            let since = now.saturating_sub(vote.age);
            Weighed { voter: &self.me, vote: Cow::Owned(vote), since, weight }
        });
        let theirs = dossier.words.iter().filter_map(|(voter, word)| {
            let told = word.vote.as_ref()?;
            let weight = judge(self.weight_of(now, voter, word, told), voter, &told.what);
            let since = told.at.saturating_sub(told.what.age);
            Some(Weighed { voter, vote: Cow::Borrowed(&told.what), since, weight })
        });
        let votes = mine.into_iter().chain(theirs).collect();
        BallotBox { votes, electorate, witnesses }
    }

    /// This node's vote as it would be stated at `now`.
    pub(crate) fn my_vote(&self, now: Duration, dossier: &Dossier) -> Option<Vote> {
        let standing = match (dossier.own.is_shadow, self.is_suspect()) {
            (true, _) => VoteState::Shadow,
            (false, true) => VoteState::Abstains,
            (false, false) => VoteState::Stands,
        };
        dossier.circuit.vote_at(now, standing)
    }

    /// What another member's vote weighs by its voter alone.
    fn weight_of(&self, now: Duration, id: &NodeId, word: &Word, told: &Told<Vote>) -> Weight {
        let voice = self.voice(id, word, told.at);
        match (by_state(told.what.state), voice) {
            (Weight::Counts, None) => Weight::VoterLost,
            (Weight::Counts, Some(voice)) if !self.stands_by(now, voice, told.at) => Weight::Lapsed,
            (Weight::Counts, Some(_)) if self.muted.contains(id) => Weight::Muted,
            (Weight::Counts, Some(voice)) if voice.is_suspect => Weight::Suspect,
            (Weight::Counts, Some(_)) if word.changes.is_flapping(now) => Weight::Flapping,
            (weight, _) => weight,
        }
    }

    /// The voice behind what was first heard at `at`, if it is that of a member that is alive in
    /// the same life, and that has raised its pulse since it came back or this node slept.
    fn voice(&self, id: &NodeId, word: &Word, at: Duration) -> Option<&Voice> {
        self.voices.get(id).filter(|voice| {
            let is_trusted = |from: Duration| voice.stood_at(at) >= from;
            voice.generation == word.generation && voice.trusted_from.is_some_and(is_trusted)
        })
    }

    /// Whether what was first heard at `at` is the word of a live member.
    pub(crate) fn is_present(&self, id: &NodeId, word: &Word, at: Duration) -> bool {
        self.voice(id, word, at).is_some()
    }

    /// Whether the member has raised its pulse of late.
    fn stands_by(&self, now: Duration, voice: &Voice, at: Duration) -> bool {
        now < voice.stood_at(at).saturating_add(self.rule.vote_ttl)
    }

    /// Whether this node suspects the member.
    pub(crate) fn suspects(&self, id: &NodeId) -> bool {
        self.voices.get(id).is_some_and(|voice| voice.is_suspect)
    }

    /// The windows of other members that stand at `now`, each with when it was heard.
    pub(crate) fn windows<'a>(
        &'a self,
        now: Duration,
        dossier: &'a Dossier,
    ) -> impl Iterator<Item = (&'a NodeId, &'a Window, Duration)> {
        let lapse = self.window_lapse();
        dossier.words.iter().filter_map(move |(id, word)| {
            let told = word.window.as_ref()?;
            let stands = now < told.at.saturating_add(lapse) && self.is_present(id, word, told.at);
            stands.then_some((id, &told.what, told.at))
        })
    }

    /// The windows that are evidence: those of members that are neither suspect nor muted.
    pub(crate) fn evidence<'a>(
        &'a self,
        now: Duration,
        dossier: &'a Dossier,
    ) -> impl Iterator<Item = (&'a NodeId, &'a Window, Duration)> {
        self.windows(now, dossier)
            .filter(|(id, _, _)| !self.muted.contains(id) && !self.suspects(id))
    }

    /// The other members whose first-hand vote stands, counted or not for its incident.
    pub(crate) fn accusers<'a>(
        &'a self,
        now: Duration,
        dossier: &'a Dossier,
    ) -> impl Iterator<Item = (&'a NodeId, VoteState)> {
        dossier.words.iter().filter_map(move |(id, word)| {
            let told = word.vote.as_ref()?;
            let is_cast =
                told.what.basis == Basis::FirstHand && told.what.state != VoteState::Withdrawn;
            let voice = self.voice(id, word, told.at).filter(|_| is_cast)?;
            self.stands_by(now, voice, told.at).then_some((id, told.what.state))
        })
    }

    /// How many live members saw bad evidence themselves.
    pub(crate) fn witnesses(&self, now: Duration, dossier: &Dossier) -> usize {
        let saw_myself = !self.is_suspect()
            && (dossier.circuit.standing_basis() == Some(Basis::FirstHand)
                || dossier.own.window().is_bad());
        let is_sound = |id: &&NodeId| !self.muted.contains(*id) && !self.suspects(id);
        let voters = self
            .accusers(now, dossier)
            .filter(|(_, state)| *state == VoteState::Stands)
            .map(|(id, _)| id)
            .filter(is_sound);
        let seers =
            self.evidence(now, dossier).filter(|(_, window, _)| window.is_bad()).map(|(id, ..)| id);
        let mut witnesses: Vec<&NodeId> = voters.chain(seers).collect();
        witnesses.sort_unstable();
        witnesses.dedup();
        witnesses.len() + usize::from(saw_myself)
    }

    /// Of how many members the majority of an endpoint is taken. Of observers, who is lost counts,
    /// and who has not said that it has no traffic: nobody knows what it sees, so that a minority
    /// cannot shrink itself into a majority, nor in the time before its loss is found out.
    pub(crate) fn denominator(&self, now: Duration, dossier: &Dossier) -> usize {
        let size = self.electorate.size();
        match self.rule.of {
            Denominator::Members => size,
            Denominator::Observers => {
                let may_observe = |id: &&NodeId| self.is_counted(now, dossier, id);
                let observers = self.electorate.live().filter(may_observe).count();
                let unseen = size.saturating_sub(self.electorate.live_count());
                (observers + unseen).max(OBSERVERS_MIN)
            }
        }
    }

    /// Whether a live member is one of those of whom the majority is taken.
    pub(crate) fn is_counted(&self, now: Duration, dossier: &Dossier, id: &NodeId) -> bool {
        match self.rule.of {
            Denominator::Members => true,
            Denominator::Observers => {
                *id != self.me && !self.is_idle(now, dossier, id) || self.observes(now, dossier, id)
            }
        }
    }

    /// Whether a vote of this member may count by who is asked.
    fn may_vote(&self, now: Duration, dossier: &Dossier, id: &NodeId, vote: &Vote) -> bool {
        match self.rule.of {
            Denominator::Members => true,
            Denominator::Observers => {
                vote.basis == Basis::FirstHand || self.observes(now, dossier, id)
            }
        }
    }

    /// Whether the member has traffic to the endpoint: a window with requests, or a first-hand
    /// vote.
    fn observes(&self, now: Duration, dossier: &Dossier, id: &NodeId) -> bool {
        if *id == self.me {
            let has_vote = dossier.circuit.standing_basis() == Some(Basis::FirstHand);
            return has_vote || dossier.own.window().requests > 0;
        }
        let is_it = |other: &NodeId| other == id;
        self.windows(now, dossier).any(|(other, window, _)| is_it(other) && window.requests > 0)
            || self.accusers(now, dossier).any(|(other, _)| is_it(other))
    }

    /// Whether another member has said that it has no traffic to the endpoint.
    fn is_idle(&self, now: Duration, dossier: &Dossier, id: &NodeId) -> bool {
        self.windows(now, dossier).any(|(other, window, _)| other == id && window.requests == 0)
    }

    /// Counts the votes of an endpoint.
    pub fn count(&self, now: Duration, endpoint: &EndpointKey) -> Tally {
        match self.dossiers.get(endpoint) {
            Some(dossier) => self.count_of(now, dossier, &self.ballot_box(now, dossier)),
            None => tally(self.electorate.size(), 0, 0, []),
        }
    }

    pub(crate) fn count_of(
        &self,
        now: Duration,
        dossier: &Dossier,
        ballot_box: &BallotBox<'_>,
    ) -> Tally {
        let BallotBox { votes, electorate, witnesses } = ballot_box;
        let ballots = votes.iter().filter(|weighed| weighed.is_ballot()).map(|weighed| Ballot {
            voter: weighed.voter,
            incident: weighed.vote.incident,
            basis: weighed.vote.basis,
        });
        let closed = dossier.circuit.closed();
        let holders = self.holders(now, dossier);
        let mut tally = Tally { holders, ..tally(*electorate, closed, *witnesses, ballots) };
        // However few observe, the members that could bear witness are as many as there are.
        if !has_witnesses(self.electorate.size(), tally.first_hand.max(*witnesses)) {
            tally.counted = tally.first_hand;
        }
        tally
    }

    /// How many live members have the endpoint out by their own word.
    pub(crate) fn holders(&self, now: Duration, dossier: &Dossier) -> usize {
        let others = dossier.words.keys().filter(|id| self.has_out(now, dossier, id)).count();
        others + usize::from(dossier.circuit.opening.is_some())
    }

    /// Whether another live member has the endpoint out by its own word.
    pub(crate) fn has_out(&self, now: Duration, dossier: &Dossier, id: &NodeId) -> bool {
        dossier.words.get(id).is_some_and(|word| {
            word.holds(dossier.circuit.closed()).is_some_and(|told| {
                let voice = self.voice(id, word, told.at);
                voice.is_some_and(|voice| self.stands_by(now, voice, told.at))
            })
        })
    }

    /// How many live members know of an incident that is not over, and do not have the endpoint
    /// out.
    pub(crate) fn abstainers(&self, dossier: &Dossier) -> usize {
        let closed = dossier.circuit.closed();
        let abstains = |(id, word): &(&NodeId, &Word)| {
            word.abstains(closed).is_some_and(|told| self.is_present(id, word, told.at))
        };
        dossier.words.iter().filter(abstains).count()
    }

    /// The largest incident for which another live member's valid vote stands; 0 without any.
    pub(crate) fn largest_standing(&self, now: Duration, endpoint: &EndpointKey) -> u64 {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return 0;
        };
        let closed = dossier.circuit.closed();
        self.ballot_box(now, dossier)
            .votes
            .iter()
            .filter(|weighed| *weighed.voter != self.me && weighed.is_ballot())
            .map(|weighed| weighed.vote.incident)
            .filter(|incident| is_valid(*incident, closed))
            .max()
            .unwrap_or(0)
    }
}

/// What a vote weighs by its voter's own word.
fn by_state(state: VoteState) -> Weight {
    match state {
        VoteState::Stands => Weight::Counts,
        VoteState::Withdrawn => Weight::Withdrawn,
        VoteState::Abstains => Weight::Abstains,
        VoteState::Shadow => Weight::Shadow,
    }
}
