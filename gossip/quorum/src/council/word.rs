//! What this node says to the ledger of each endpoint: its vote, and whether it has it out.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::council::{Council, Denominator};
use crate::dossier::Dossier;
use crate::ledger::{Against, Begin, WORDS_MAX, Word};
use crate::statement::{Basis, EndpointKey, NodeId};
use crate::tally::{has_witnesses, quorum_of};
use crate::view::Weight;

/// A word stands for so many intervals unless it is cast anew.
const LEASE_INTERVALS: u32 = 5;

/// A word names no more members than this whose words do not count: as many as have words. Where there
/// are more, it opens nothing.
const DISCOUNTED_MAX: usize = WORDS_MAX;

/// The longest name that a ledger keeps, in bytes.
const NAME_BYTES_MAX: usize = 253;

impl Council {
    /// What this node has to say to the ledger at `now`, by endpoint, without the numbers of the casts.
    /// Of endpoints that are not among them it has nothing to say, and what it said is to be taken back
    /// by an empty word.
    ///
    /// A word may open an endpoint where the cap binds only if there is a place for it, which is kept when
    /// the word is cast: see [`seal`](Self::seal).
    pub fn words(&self, now: Duration) -> Vec<(EndpointKey, Word)> {
        let absent = self.absent(now);
        let known = |endpoint| self.dossiers.get_key_value(endpoint);
        self.stirred
            .iter()
            .filter_map(known)
            .filter_map(|(endpoint, dossier)| {
                let mut word = self.word(now, endpoint, dossier, &absent)?;
                let has_place = !self.is_capped(dossier) || self.has_place(now, endpoint);
                word.opening.take_if(|_| !has_place);
                Some((endpoint.clone(), word))
            })
            .collect()
    }

    /// The word as it may be cast at this very `now`: where the cap binds, the place is kept for an
    /// interval, and a word that finds none opens nothing.
    pub fn seal(&mut self, now: Duration, endpoint: &EndpointKey, mut word: Word) -> Word {
        let dossier = self.dossiers.get(endpoint);
        let is_capped = dossier.is_some_and(|dossier| self.is_capped(dossier));
        if word.opening.is_some() && is_capped {
            let has_place = self.has_place(now, endpoint);
            word.opening.take_if(|_| !has_place);
            if has_place {
                self.reserve(now, endpoint);
            }
        }
        word
    }

    /// How long a word stands.
    pub fn word_lease(&self) -> Duration {
        self.rule.interval.saturating_mul(LEASE_INTERVALS)
    }

    fn word(
        &self,
        now: Duration,
        endpoint: &EndpointKey,
        dossier: &Dossier,
        absent: &BTreeSet<&NodeId>,
    ) -> Option<Word> {
        let ballot_box = self.ballot_box(now, dossier);
        let count = self.count_of(now, dossier, &ballot_box);
        // In a smaller electorate the ledger would ask for no witnesses, however many members there are.
        let asks_for_witnesses = !has_witnesses(ballot_box.electorate, 0);
        let counts = |weight: Weight| {
            weight == Weight::Counts || weight == Weight::NoWitness && asks_for_witnesses
        };
        let mine = ballot_box.votes.iter().find(|one| *one.voter == self.me);
        let vote = mine.filter(|one| counts(one.weight)).map(|one| Against {
            incident: one.vote.incident,
            is_first_hand: one.vote.basis == Basis::FirstHand,
        });
        let is_witness = !self.is_suspect()
            && (dossier.circuit.standing_basis() == Some(Basis::FirstHand)
                || dossier.own.window().is_bad());
        let is_out = dossier.circuit.opening.is_some();
        let hold = dossier.circuit.step_at(now).filter(|step| step.is_held);
        let is_held = count.holders >= quorum_of(self.electorate.size());
        let may_be_opened = !is_out && (count.is_open() || is_held);
        if vote.is_none() && !is_witness && hold.is_none() && !may_be_opened {
            return None;
        }
        let of_no_weight = |weight: Weight| {
            matches!(
                weight,
                Weight::Muted | Weight::Suspect | Weight::Flapping | Weight::NotObserver
            )
        };
        let unheard = ballot_box.votes.iter().filter(|one| of_no_weight(one.weight));
        let unheard = unheard.map(|one| one.voter).chain(absent.iter().copied());
        let is_named = |id: &&NodeId| **id != self.me && is_keepable(id.as_str());
        let discounted: BTreeSet<&NodeId> = unheard.filter(is_named).collect();
        let may_open = discounted.len() <= DISCOUNTED_MAX
            && self.may_judge(now, dossier)
            && (is_out || may_be_opened || !self.is_capped(dossier))
            && (is_out || self.may_open(now, endpoint, is_held));
        let incident = count.incident.max(vote.map_or(0, |vote| vote.incident)).max(1);
        Some(Word {
            seq: 0,
            vote,
            is_witness,
            hold,
            lease: self.word_lease(),
            electorate: u32::try_from(ballot_box.electorate).unwrap_or(u32::MAX),
            discounted: discounted.into_iter().take(DISCOUNTED_MAX).cloned().collect(),
            opening: may_open.then(|| begin(now, endpoint, dossier, incident)),
        })
    }

    /// Whether this node may let its cast open anything: it does not while it observes, nor alone, nor
    /// by an old view of whether it is an observer.
    fn may_judge(&self, now: Duration, dossier: &Dossier) -> bool {
        let recent = self.rule.interval;
        let is_informed = match self.rule.of {
            Denominator::Members => true,
            Denominator::Observers => dossier.own.is_within(now, recent),
        };
        now >= self.observing_until && self.electorate.size() >= 2 && is_informed
    }

    /// Whose words do not count on any endpoint: of those who are lost, or went so lately that their words
    /// may stand still, and of those who are muted or suspect.
    fn absent(&self, now: Duration) -> BTreeSet<&NodeId> {
        let suspects = self.voices.iter().filter(|(_, voice)| voice.is_suspect).map(|(id, _)| id);
        let since = now.saturating_sub(self.word_lease());
        self.electorate.absent(since).chain(&self.muted).chain(suspects).collect()
    }
}

/// Whether a ledger keeps words under this name: of another's there are none to be discounted.
fn is_keepable(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain)
}

/// How the endpoint would go out, or is out already.
fn begin(now: Duration, endpoint: &EndpointKey, dossier: &Dossier, incident: u64) -> Begin {
    let circuit = &dossier.circuit;
    let opening = circuit.opening.clone();
    let opening = opening.unwrap_or_else(|| circuit.beginning(endpoint, now, incident));
    let cool_down = circuit.cool_down(endpoint, &opening);
    Begin { level: opening.level, cool_down }
}
