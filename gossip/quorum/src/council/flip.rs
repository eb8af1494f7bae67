//! The flip: the fleet takes an endpoint out, by its votes or by the word of those who have it out.
//!
//! Invariant: nothing here opens without more than half of the electorate.

use std::time::Duration;

use crate::council::weigh::Weighed;
use crate::council::{Council, Decision, Denominator, announce};
use crate::dossier::Dossier;
use crate::statement::{EndpointKey, PoolKey, Stage};
use crate::steward;
use crate::tally::{Tally, is_valid, quorum_of};
use crate::view::CapView;

/// All of a pool, in thousandths.
const WHOLE_MILLI: usize = 1_000;

/// What the cap says of one more opening.
enum Leave {
    /// This node may open.
    Granted {
        /// Whether it is to take the first step, whatever its rank for the endpoint.
        is_warden: bool,
    },
    /// Others have it out, and there is no room for it here: what made room is on its way.
    Crowded,
    /// It waits: for room, or for the member that keeps the count.
    Refused,
}

impl Council {
    /// Opens the endpoint for the fleet if a majority says so. A fleet of one has no majority to
    /// ask: its own breaker says it all.
    pub(super) fn flip(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let is_told = !dossier.words.is_empty();
        if dossier.circuit.opening.is_some() || self.electorate.size() < 2 || !is_told {
            return;
        }
        // Where only observers count, whether this node is one is as it sees it at this moment.
        if self.rule.of == Denominator::Observers && !dossier.own.is_of(now) {
            return;
        }
        let ballot_box = self.ballot_box(now, dossier);
        let count = self.count_of(now, dossier, &ballot_box);
        let closed = dossier.circuit.closed();
        let is_held = count.holders >= quorum_of(self.electorate.size());
        let (leave, decided) = if count.is_open() || is_held {
            let since = valid_since(&ballot_box.votes, closed);
            let decided = since.get(count.quorum - 1).copied().unwrap_or(now).min(now);
            (self.leave(now, endpoint, is_held), decided)
        } else {
            (Leave::Refused, now)
        };
        let Some(is_warden) = self.wait_for_room(now, endpoint, leave) else {
            return;
        };
        if count.is_open() {
            self.open(now, endpoint, (decided, is_warden), count);
        } else {
            self.join(endpoint, count);
        }
    }

    /// Waits where the cap says so; for what made room elsewhere no longer than for any news, since
    /// what all others have out is out. Returns whether this node is the warden once it may open.
    fn wait_for_room(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        leave: Leave,
    ) -> Option<bool> {
        let patience = self.window_lapse();
        let dossier = self.dossiers.get_mut(endpoint)?;
        match leave {
            Leave::Granted { is_warden } => {
                dossier.crowded_since = None;
                Some(is_warden)
            }
            Leave::Crowded => {
                let since = *dossier.crowded_since.get_or_insert(now);
                let is_over = now >= since.saturating_add(patience);
                dossier.crowded_since.take_if(|_| is_over);
                is_over.then_some(false)
            }
            Leave::Refused => {
                dossier.crowded_since = None;
                None
            }
        }
    }

    /// Whether there is room for an endpoint that the ledger has out: what made room for it elsewhere in
    /// the pool may be on its way.
    pub(super) fn has_room_beside(&mut self, now: Duration, endpoint: &EndpointKey) -> bool {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return false;
        };
        let (cap, size) = self.cap_of(dossier);
        let has_room = cap >= size || self.open_in(&dossier.pool) < cap;
        let leave = if has_room { Leave::Granted { is_warden: false } } else { Leave::Crowded };
        self.wait_for_room(now, endpoint, leave).is_some()
    }

    /// Whether the cap lets this node say that the endpoint may go.
    pub(super) fn may_open(&self, now: Duration, endpoint: &EndpointKey, is_held: bool) -> bool {
        match self.leave(now, endpoint, is_held) {
            Leave::Granted { is_warden: true | false } => true,
            Leave::Crowded | Leave::Refused => false,
        }
    }

    /// Whether the cap binds for an endpoint that is not out.
    pub(super) fn is_capped(&self, dossier: &Dossier) -> bool {
        let (cap, size) = self.cap_of(dossier);
        cap < size && dossier.circuit.opening.is_none()
    }

    /// Whether there is a place under the cap for a cast that may open the endpoint.
    pub(super) fn has_place(&self, now: Duration, endpoint: &EndpointKey) -> bool {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return false;
        };
        let is_kept = |other: &&EndpointKey| {
            let beside = self.dossiers.get(*other).filter(|one| one.pool == dossier.pool);
            let is_left = |one: &Dossier| one.leave_until.is_some_and(|until| now < until);
            *other != endpoint
                && beside.is_some_and(|one| one.circuit.opening.is_none() && is_left(one))
        };
        let kept = self.stirred.iter().filter(is_kept).count();
        let taken = self.open_in(&dossier.pool) + self.unjoined_beside(endpoint, dossier) + kept;
        taken < self.cap_of(dossier).0
    }

    /// Keeps the place for as long as the answer to the cast may be on its way: two casts must not fill
    /// one place.
    pub(super) fn reserve(&mut self, now: Duration, endpoint: &EndpointKey) {
        let interval = self.rule.interval;
        if let Some(dossier) = self.dossiers.get_mut(endpoint) {
            dossier.leave_until = Some(now.saturating_add(interval));
        }
    }

    /// Opens by the votes, the deciding one of which was cast at `decided`.
    fn open(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        (decided, is_warden): (Duration, bool),
        count: Tally,
    ) {
        let leads = is_warden || self.rank(endpoint) == Some(0);
        let is_abandoned = self.is_abandoned(now, endpoint);
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let electorate = self.denominator(now, dossier);
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        let circuit = &mut dossier.circuit;
        let opening = circuit.open(endpoint, decided, &count);
        if is_abandoned {
            // Whoever opens takes it up: all by the same step, which no word has to bring.
            circuit.take_up(now, (&self.me, endpoint));
        } else if leads && circuit.is_unled() {
            let remaining = opening.due.saturating_sub(now);
            circuit.take_step(now, &self.me, Stage::Waiting { remaining });
        }
        let opening = circuit.opening.clone().unwrap_or(opening);
        let endpoint = endpoint.clone();
        self.pending.push(Decision::Opened { endpoint, opening, tally: count, electorate });
    }

    /// Joins an opening whose votes are gone, or were never heard here.
    pub(super) fn join(&mut self, endpoint: &EndpointKey, tally: Tally) {
        let electorate = self.electorate.size();
        let dossier = self.dossiers.get_mut(endpoint);
        if let Some(opening) = dossier.and_then(|dossier| dossier.circuit.join()) {
            let endpoint = endpoint.clone();
            self.pending.push(Decision::Opened { endpoint, opening, tally, electorate });
        }
    }

    /// Whether the incident that is known to be led is one that nobody has out any more.
    fn is_abandoned(&self, now: Duration, endpoint: &EndpointKey) -> bool {
        let dossier = self.dossiers.get(endpoint);
        dossier.is_some_and(|dossier| dossier.circuit.is_led() && self.holders(now, dossier) == 0)
    }

    /// Asks the cap. Where it binds, one member, the warden, keeps the count of the pool, and the
    /// others open what they know it to have opened, or what a majority has out, `is_held`: if each
    /// kept its own count, two could fill the last place differently. An opening may overtake the
    /// closing that made room for it, so the others look at their own count as well. What a majority
    /// has out fills a place even if this node, which may have restarted, has not joined it yet.
    fn leave(&self, now: Duration, endpoint: &EndpointKey, is_held: bool) -> Leave {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return Leave::Refused;
        };
        let (cap, size) = self.cap_of(dossier);
        if cap >= size {
            return Leave::Granted { is_warden: false };
        }
        let pool = EndpointKey::new(dossier.pool.as_str());
        let warden = steward::first(&pool, self.electorate.leaders());
        let is_warden = warden == Some(&self.me);
        let is_begun = is_held || warden.is_some_and(|id| self.has_out(now, dossier, id));
        let joined = self.open_in(&dossier.pool);
        let has_room =
            if is_held { joined } else { joined + self.unjoined_beside(endpoint, dossier) } < cap;
        match (is_warden || is_begun, has_room) {
            (true, true) => Leave::Granted { is_warden },
            (true, false) if is_begun => Leave::Crowded,
            (true | false, _) => Leave::Refused,
        }
    }

    /// How many endpoints of the pool may be out at once, and how many there are.
    fn cap_of(&self, dossier: &Dossier) -> (usize, usize) {
        let size = self.pools.get(&dossier.pool).copied().unwrap_or(1);
        let share = usize::try_from(self.rule.max_open_share_milli).unwrap_or(WHOLE_MILLI);
        ((size.saturating_mul(share) / WHOLE_MILLI).max(1), size)
    }

    fn open_in(&self, pool: &PoolKey) -> usize {
        let is_open = |other: &&EndpointKey| {
            let other = self.dossiers.get(*other);
            other.is_some_and(|other| other.pool == *pool && other.circuit.opening.is_some())
        };
        self.stirred.iter().filter(is_open).count()
    }

    /// How many other endpoints of the pool a majority may have out that are not out here. For the
    /// cap the word of any live member counts, whether or not it counts for a flip yet.
    fn unjoined_beside(&self, endpoint: &EndpointKey, dossier: &Dossier) -> usize {
        let quorum = quorum_of(self.electorate.size());
        let is_beside =
            |other: &&Dossier| other.pool == dossier.pool && other.circuit.opening.is_none();
        let is_unjoined = |key: &&EndpointKey| {
            let other = self.dossiers.get(*key).filter(is_beside);
            *key != endpoint && other.is_some_and(|other| self.claimants(other) >= quorum)
        };
        self.stirred.iter().filter(is_unjoined).count()
    }

    /// How many live members say that they have the endpoint out.
    fn claimants(&self, dossier: &Dossier) -> usize {
        let closed = dossier.circuit.closed();
        let claims = dossier.words.iter().filter(|(id, word)| {
            let is_its_life = self.electorate.generation(id) == Some(word.generation);
            self.electorate.is_live(id) && is_its_life && word.holds(closed).is_some()
        });
        claims.count()
    }

    /// The cap, if it refuses to let the endpoint go.
    pub(crate) fn cap(&self, now: Duration, endpoint: &EndpointKey) -> Option<CapView> {
        let dossier = self.dossiers.get(endpoint)?;
        let is_held = self.holders(now, dossier) >= quorum_of(self.electorate.size());
        match self.leave(now, endpoint, is_held) {
            Leave::Granted { is_warden: true | false } => None,
            Leave::Crowded | Leave::Refused => {
                let (most, of) = self.cap_of(dossier);
                let pool = EndpointKey::new(dossier.pool.as_str());
                let warden = steward::first(&pool, self.electorate.leaders()).cloned();
                let open = self.open_in(&dossier.pool) + self.unjoined_beside(endpoint, dossier);
                Some(CapView { most, of, open, warden })
            }
        }
    }

    /// Lets go of an opening while no majority is live: at once when its own time is over, or when
    /// this node is cut off for good. No step is taken, so that what the others do stands.
    pub(super) fn let_go(&mut self, now: Duration, endpoint: &EndpointKey, is_cut_off: bool) {
        let max_open = self.rule.max_open;
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        let circuit = &mut dossier.circuit;
        if is_cut_off || circuit.is_expired(now, max_open) {
            let incident = circuit.opening.as_ref().map_or(0, |opening| opening.incident);
            announce(&mut self.pending, endpoint, incident, circuit.let_go());
        }
    }

    /// Lets go of an opening that no longer has its votes here, while so many live members know of
    /// it and do not have it out that no majority can have it: a vote was taken back as it was
    /// counted, or they have restarted. Else the views would differ for as long as the incident
    /// lasts; for the others to follow instead would be a flip without a majority. Who observes is
    /// not asked, since a member's word counts from the end of its observing.
    pub(super) fn yield_to_majority(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let is_open = dossier.circuit.opening.is_some();
        let size = self.electorate.size();
        let may_hold = size.saturating_sub(self.abstainers(dossier));
        let is_outvoted =
            is_open && may_hold < quorum_of(size) && !self.count(now, endpoint).is_open();
        let patience = self.rule.interval;
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        if !is_outvoted {
            dossier.outvoted_since = None;
        } else if now >= dossier.outvoted_since.get_or_insert(now).saturating_add(patience) {
            dossier.outvoted_since = None;
            self.let_go(now, endpoint, true);
        }
    }

    /// The place of this node among those that may lead `endpoint`.
    pub(super) fn rank(&self, endpoint: &EndpointKey) -> Option<u32> {
        steward::rank(&self.me, endpoint, self.electorate.leaders())
    }
}

/// Since when each of the votes that count was cast, the earliest first: the flip is as old as the
/// vote that made the majority.
fn valid_since(votes: &[Weighed<'_>], closed: u64) -> Vec<Duration> {
    let mut since: Vec<Duration> = votes
        .iter()
        .filter(|weighed| weighed.is_ballot() && is_valid(weighed.vote.incident, closed))
        .map(|weighed| weighed.since)
        .collect();
    since.sort_unstable();
    since
}
