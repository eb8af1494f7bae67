//! A table of votes in, a verdict out: the majority rule itself.
//!
//! Order, repetition and duplication of ballots change nothing; one voter weighs one.

use std::collections::BTreeMap;

use crate::statement::{Basis, NodeId};

/// How far above the closed incident a vote's incident may lie. A fleet needs one or two; the bound
/// keeps a lying member from burning all numbers by one vote for the largest.
pub const INCIDENT_GAP_MAX: u64 = 1_024;

/// An electorate of this size or more needs two witnesses before seconded votes count.
const SECONDING_FROM: usize = 3;
/// How many witnesses seconded votes then need.
const WITNESSES_MIN: usize = 2;

/// One standing vote for *open*, as the rule weighs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ballot<'a> {
    /// Who voted.
    pub voter: &'a NodeId,
    /// For which incident.
    pub incident: u64,
    /// On what basis.
    pub basis: Basis,
}

/// What the ballots amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Voters whose ballot is valid and first-hand.
    pub first_hand: usize,
    /// Voters whose ballot is valid and seconded.
    pub seconded: usize,
    /// Ballots that count: first-hand ones, and seconded ones if there are enough witnesses.
    pub counted: usize,
    /// Members that have the endpoint out by their own word: a majority of them is joined, even if
    /// the votes are gone.
    pub holders: usize,
    /// Ballots for an incident already closed, or an impossible one.
    pub void: usize,
    /// How many must count: strictly more than half of the electorate.
    pub quorum: usize,
    /// The largest incident among the valid ballots; 0 without any.
    pub incident: u64,
}

impl Tally {
    /// Whether a majority says that the endpoint is bad.
    pub fn is_open(&self) -> bool {
        self.counted >= self.quorum
    }
}

/// The least number that is strictly more than half of `electorate`: 2 of 2, 2 of 3, 3 of 4.
pub fn quorum_of(electorate: usize) -> usize {
    electorate / 2 + 1
}

/// Whether a ballot for `incident` can count while `closed` is the last closed incident.
pub fn is_valid(incident: u64, closed: u64) -> bool {
    incident > closed && incident - closed <= INCIDENT_GAP_MAX
}

/// Whether seconded votes count in an electorate with so many witnesses: live members that saw bad
/// evidence themselves, whether or not it was enough for a vote of their own. One node's bad
/// network convinces nobody else.
pub fn has_witnesses(electorate: usize, witnesses: usize) -> bool {
    electorate < SECONDING_FROM || witnesses >= WITNESSES_MIN
}

/// Counts `ballots` of members of an electorate of `electorate` nodes, `closed` being the last
/// incident that is over. `witnesses` live members saw bad evidence themselves; who casts a valid
/// first-hand ballot is one anyway.
pub fn tally<'a>(
    electorate: usize,
    closed: u64,
    witnesses: usize,
    ballots: impl IntoIterator<Item = Ballot<'a>>,
) -> Tally {
    let mut best: BTreeMap<&NodeId, Ballot<'a>> = BTreeMap::new();
    let mut void = 0;
    for ballot in ballots {
        if !is_valid(ballot.incident, closed) {
            void += 1;
            continue;
        }
        best.entry(ballot.voter)
            .and_modify(|kept| *kept = stronger(*kept, ballot))
            .or_insert(ballot);
    }
    let first_hand = best.values().filter(|b| b.basis == Basis::FirstHand).count();
    let seconded = best.len() - first_hand;
    let seconded_count = has_witnesses(electorate, witnesses.max(first_hand));
    Tally {
        first_hand,
        seconded,
        counted: if seconded_count { best.len() } else { first_hand },
        holders: 0,
        void,
        quorum: quorum_of(electorate),
        incident: best.values().map(|b| b.incident).max().unwrap_or(0),
    }
}

/// Of two valid ballots of one voter, the one with the better basis, then the larger incident.
fn stronger<'a>(one: Ballot<'a>, other: Ballot<'a>) -> Ballot<'a> {
    let weight = |ballot: &Ballot<'_>| (ballot.basis == Basis::FirstHand, ballot.incident);
    if weight(&other) > weight(&one) { other } else { one }
}
