//! What a person or a metric may ask of a council: who counts, who votes what, who leads.

use std::ops::Bound;
use std::time::Duration;

use crate::council::{BallotBox, Council, Weighed};
use crate::dossier::Dossier;
use crate::electorate::Presence;
use crate::statement::{EndpointKey, Forced, NodeId, Override, Standing, Step, Vote, Window};
use crate::steward::Leaders;
use crate::tally::{Tally, quorum_of};

/// A member as the council counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its name.
    pub id: NodeId,
    /// Whether it is this node.
    pub is_me: bool,
    /// Its generation; 0 for this node, which knows its own elsewhere.
    pub generation: u64,
    /// Whether it is alive, or for how long it has been lost.
    pub presence: Presence,
    /// How it takes part.
    pub standing: Standing,
    /// Of how many endpoints it is the steward.
    pub steward_of: usize,
    /// Whether it accuses nearly everything alone, by its own word or in this node's eyes.
    pub is_suspect: bool,
    /// Whether its votes and windows do not count on this node, by an operator's word.
    pub is_muted: bool,
}

/// What a member is to the majority of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatView {
    /// Its name.
    pub id: NodeId,
    /// Whether it is alive, or for how long it has been lost.
    pub presence: Presence,
    /// How it takes part.
    pub standing: Standing,
    /// What it counts as.
    pub part: Part,
}

/// What a member counts as where the votes on one endpoint are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It is one of those that say the endpoint is bad.
    Vote,
    /// It counts, and says nothing against the endpoint.
    NoVote,
    /// It counts, and its vote does not.
    Void(Weight),
    /// It is not heard of, and still counts.
    Lost,
    /// Only observers count, and it has said that it has no traffic to the endpoint.
    Idle,
}

/// Why votes enough do not take the endpoint out: the cap on a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapView {
    /// How many endpoints of the pool may be out at once.
    pub most: usize,
    /// How many it has.
    pub of: usize,
    /// How many are out.
    pub open: usize,
    /// The member that keeps the count; the others wait for its word.
    pub warden: Option<NodeId>,
}

/// A vote as the council weighs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteView {
    /// Who cast it.
    pub voter: NodeId,
    /// What it says.
    pub vote: Vote,
    /// How long ago it was cast.
    pub age: Duration,
    /// Whether it counts, and if not, why.
    pub weight: Weight,
}

/// Whether a vote counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It counts.
    Counts,
    /// Its voter took it back.
    Withdrawn,
    /// It was not renewed in time.
    Lapsed,
    /// Its voter is not alive, has restarted since, or is back and has not renewed it yet.
    VoterLost,
    /// It is for an incident that is over.
    IncidentClosed,
    /// Its voter suspects itself.
    Abstains,
    /// Its voter's breaker only pretends.
    Shadow,
    /// This node suspects its voter.
    Suspect,
    /// An operator muted its voter here.
    Muted,
    /// Its voter changed its mind too often.
    Flapping,
    /// It is seconded, and fewer than two live members saw anything themselves.
    NoWitness,
    /// Only observers count, and its voter has no traffic to the endpoint.
    NotObserver,
}

/// All that the council knows of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Whether the fleet has it out.
    pub is_open: bool,
    /// The incident that stands, or the last one that closed.
    pub incident: u64,
    /// How long the fleet has had it out.
    pub open_for: Option<Duration>,
    /// How long until the cool-down is over.
    pub due_in: Option<Duration>,
    /// How many times the cool-down has doubled.
    pub level: u32,
    /// The furthest step of recovery known.
    pub step: Option<Step>,
    /// Who leads it.
    pub steward: Option<NodeId>,
    /// What an operator ordered, and for how long it still holds.
    pub forced: Forced,
    /// The time the order still holds; `None`: no order, or until changed.
    pub forced_for: Option<Duration>,
    /// Who gave the order to which node, and why.
    pub order: Option<(NodeId, String)>,
    /// The count of the votes.
    pub tally: Tally,
    /// The denominator.
    pub electorate: usize,
    /// Every vote known, counting or not.
    pub votes: Vec<VoteView>,
    /// Who holds the canary slot, how many times it was handed on, and the successes so far.
    pub canary: Option<(NodeId, u32, u32)>,
    /// How many live members saw bad evidence themselves.
    pub witnesses: usize,
    /// The windows that stand, each with its writer and how long ago it was stated.
    pub windows: Vec<(NodeId, Window, Duration)>,
    /// The cap, where it alone keeps the endpoint in.
    pub cap: Option<CapView>,
}

/// Where the fleet stands with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Whether the fleet has it out.
    pub is_open: bool,
    /// Whether its canary slot is given out.
    pub is_tried: bool,
    /// How many votes count.
    pub counted: usize,
}

impl Council {
    /// The denominator.
    pub fn electorate_size(&self) -> usize {
        self.electorate.size()
    }

    /// How many members are live.
    pub fn live_count(&self) -> usize {
        self.electorate.live_count()
    }

    /// The names of all that count, lost ones too, this node's among them, in their order.
    pub fn names(&self) -> impl Iterator<Item = &NodeId> {
        self.electorate.names()
    }

    /// The names of those of them that are live, in their order.
    pub fn live(&self) -> impl Iterator<Item = &NodeId> {
        self.electorate.live()
    }

    /// How many votes open an endpoint.
    pub fn quorum(&self) -> usize {
        quorum_of(self.electorate.size())
    }

    /// Whether enough members are live for any flip.
    pub fn has_quorum(&self) -> bool {
        self.electorate.has_quorum()
    }

    /// In how long this node lets go of what the fleet has out, since no majority is live; `None`
    /// while one is.
    pub fn lets_go_in(&self, now: Duration) -> Option<Duration> {
        self.electorate.cut_off_in(now)
    }

    /// Whether the fleet has an endpoint out.
    pub fn is_open(&self, key: &EndpointKey) -> bool {
        self.dossiers.get(key).is_some_and(|dossier| dossier.circuit.opening.is_some())
    }

    /// The members, in the order of their names.
    pub fn members(&self, now: Duration) -> Vec<MemberView> {
        let mut views: Vec<MemberView> = self
            .electorate
            .roll(now)
            .map(|(id, presence, standing)| MemberView {
                id: id.clone(),
                is_me: *id == self.me,
                generation: self.electorate.generation(id).unwrap_or(0),
                presence,
                standing,
                steward_of: 0,
                is_suspect: self.electorate.suspects_itself(id) || self.suspects(id),
                is_muted: self.muted.contains(id),
            })
            .collect();
        let leaders = Leaders::new(self.electorate.leaders());
        for endpoint in self.dossiers.keys() {
            let led_by = leaders.first(endpoint);
            if let Some(view) = views.iter_mut().find(|view| Some(&view.id) == led_by) {
                view.steward_of += 1;
            }
        }
        views
    }

    /// What is known of an endpoint; `None` if it is not enrolled.
    pub fn endpoint(&self, now: Duration, key: &EndpointKey) -> Option<EndpointView> {
        self.look(now, key, &Leaders::new(self.electorate.leaders()))
    }

    /// What is known of each of these endpoints, in their order; `None` for one that is not enrolled.
    /// Cheaper than to ask for them one by one.
    pub fn endpoints<'k>(
        &self,
        now: Duration,
        keys: impl IntoIterator<Item = &'k EndpointKey>,
    ) -> Vec<Option<EndpointView>> {
        let leaders = Leaders::new(self.electorate.leaders());
        keys.into_iter().map(|key| self.look(now, key, &leaders)).collect()
    }

    /// Where the fleet stands with an endpoint, for far less than all that is known of it; `None` if it
    /// is not enrolled.
    pub fn glance(&self, now: Duration, key: &EndpointKey) -> Option<Glance> {
        let opening = self.dossiers.get(key)?.circuit.opening.as_ref();
        Some(Glance {
            is_open: opening.is_some(),
            is_tried: opening.is_some_and(|opening| opening.slot.is_some()),
            counted: self.count(now, key).counted,
        })
    }

    fn look(
        &self,
        now: Duration,
        key: &EndpointKey,
        leaders: &Leaders<'_>,
    ) -> Option<EndpointView> {
        let dossier = self.dossiers.get(key)?;
        let circuit = &dossier.circuit;
        let opening = circuit.opening.as_ref();
        let ballot_box = self.ballot_box(now, dossier);
        let tally = self.count_of(now, dossier, &ballot_box);
        // A fleet of one flips nothing, so that nothing is kept in either.
        let is_wanted = opening.is_none() && tally.is_open() && self.electorate.size() > 1;
        let order = circuit.order.as_ref().filter(|_| circuit.forced(now) != Forced::Auto);
        Some(EndpointView {
            is_open: opening.is_some(),
            incident: opening.map_or(circuit.closed(), |opening| opening.incident),
            open_for: opening.map(|opening| now.saturating_sub(opening.since)),
            due_in: opening.map(|opening| opening.due.saturating_sub(now)),
            level: opening.map_or(0, |opening| opening.level),
            step: circuit.step_at(now),
            steward: leaders.first(key).cloned(),
            forced: circuit.forced(now),
            forced_for: order.and_then(|held| held.until).map(|until| until.saturating_sub(now)),
            order: order.map(|held| (held.order.author.clone(), held.order.reason.clone())),
            tally,
            electorate: ballot_box.electorate,
            witnesses: ballot_box.witnesses,
            votes: vote_views(now, ballot_box),
            canary: opening
                .and_then(|opening| opening.slot.as_ref())
                .map(|slot| (slot.holder.clone(), slot.turn, slot.successes)),
            windows: self.window_views(now, dossier),
            cap: is_wanted.then(|| self.cap(now, key)).flatten(),
        })
    }

    /// What each member is to the majority of an endpoint, in the order of their names; `None` if
    /// the endpoint is not enrolled.
    pub fn seats(&self, now: Duration, key: &EndpointKey) -> Option<Vec<SeatView>> {
        let dossier = self.dossiers.get(key)?;
        let votes = self.ballot_box(now, dossier).votes;
        let part = |id: &NodeId, presence| {
            let weight = votes.iter().find(|weighed| weighed.voter == id).map(|one| one.weight);
            match (presence, weight) {
                (Presence::Lost(_), _) => Part::Lost,
                (Presence::Live, Some(Weight::Counts)) => Part::Vote,
                (Presence::Live, Some(Weight::Withdrawn | Weight::IncidentClosed) | None) => {
                    if self.is_counted(now, dossier, id) { Part::NoVote } else { Part::Idle }
                }
                (Presence::Live, Some(weight)) => Part::Void(weight),
            }
        };
        let seat = |(id, presence, standing): (&NodeId, Presence, Standing)| SeatView {
            id: id.clone(),
            presence,
            standing,
            part: part(id, presence),
        };
        Some(self.electorate.roll(now).map(seat).collect())
    }

    /// The endpoints of which something was said that may still change, at most `most` of them, in
    /// their order, from the one after `after` on, and from the first on after the last.
    pub fn stirred<'a>(
        &'a self,
        after: Option<&EndpointKey>,
        most: usize,
    ) -> impl Iterator<Item = &'a EndpointKey> {
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let rest = self.stirred.range((start, Bound::Unbounded));
        rest.chain(self.stirred.iter()).take(most.min(self.stirred.len()))
    }

    /// The names of all endpoints that this node takes charge of, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &EndpointKey> {
        self.dossiers.keys()
    }

    /// Whether an endpoint is one of these.
    pub fn is_stirred(&self, key: &EndpointKey) -> bool {
        self.stirred.contains(key)
    }

    /// Every vote known on an endpoint, counting or not.
    pub fn votes_on(&self, now: Duration, key: &EndpointKey) -> Vec<VoteView> {
        let dossier = self.dossiers.get(key);
        dossier.map(|dossier| vote_views(now, self.ballot_box(now, dossier))).unwrap_or_default()
    }

    /// The furthest step of recovery of an endpoint that is known.
    pub fn step_of(&self, now: Duration, key: &EndpointKey) -> Option<Step> {
        self.dossiers.get(key).and_then(|dossier| dossier.circuit.step_at(now))
    }

    /// Whether the last incident of an endpoint was closed since its own time was over, as against
    /// having recovered.
    pub fn has_timed_out(&self, now: Duration, key: &EndpointKey) -> bool {
        let max_open = self.rule.max_open;
        self.dossiers.get(key).is_some_and(|dossier| dossier.circuit.has_timed_out(now, max_open))
    }

    /// The last incident of an endpoint that is over; 0 without any.
    pub fn closed_incident(&self, key: &EndpointKey) -> u64 {
        self.dossiers.get(key).map_or(0, |dossier| dossier.circuit.closed())
    }

    /// The newest order about an endpoint that is known, whether or not it is over.
    pub fn last_order(&self, now: Duration, key: &EndpointKey) -> Option<Override> {
        self.dossiers.get(key).and_then(|dossier| dossier.circuit.order_at(now))
    }

    fn window_views(&self, now: Duration, dossier: &Dossier) -> Vec<(NodeId, Window, Duration)> {
        let mine = dossier.window_at(now);
        let mine = (mine.requests > 0).then(|| (self.me.clone(), mine, Duration::ZERO));
        let theirs = self
            .windows(now, dossier)
            .map(|(id, window, at)| (id.clone(), window.clone(), now.saturating_sub(at)));
        mine.into_iter().chain(theirs).collect()
    }
}

fn vote_views(now: Duration, ballot_box: BallotBox<'_>) -> Vec<VoteView> {
    let view = |Weighed { voter, vote, since, weight }| VoteView {
        voter: voter.clone(),
        vote: vote.into_owned(),
        age: now.saturating_sub(since),
        weight,
    };
    ballot_box.votes.into_iter().map(view).collect()
}

impl Part {
    /// The word used in the admin API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vote => "vote",
            Self::NoVote => "no_vote",
            Self::Void(weight) => weight.as_str(),
            Self::Lost => "lost",
            Self::Idle => "idle",
        }
    }
}

impl Weight {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Counts,
        Self::Withdrawn,
        Self::Lapsed,
        Self::VoterLost,
        Self::IncidentClosed,
        Self::Abstains,
        Self::Shadow,
        Self::Suspect,
        Self::Muted,
        Self::Flapping,
        Self::NoWitness,
        Self::NotObserver,
    ];

    /// The word used in the admin API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Withdrawn => "withdrawn",
            Self::Lapsed => "lapsed",
            Self::VoterLost => "voter_lost",
            Self::IncidentClosed => "incident_closed",
            Self::Abstains => "abstains",
            Self::Shadow => "shadow",
            Self::Suspect => "suspect",
            Self::Muted => "muted",
            Self::Flapping => "flapping",
            Self::NoWitness => "no_witness",
            Self::NotObserver => "not_observer",
        }
    }
}
