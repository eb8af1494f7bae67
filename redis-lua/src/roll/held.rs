//! Who is on the roll, as this node has read it: a value that changes only when told.
//!
//! # Invariants
//! - A member is its greatest generation; a row of a smaller one changes nothing.
//! - Nobody is given up because a row is absent, or because Redis is: who was alive at the last reading
//!   stays so for one lease. Then it is not known to be alive, and still listed.
//! - Who is not alive is listed for [`KEEP`], and no more than [`MEMBERS_MAX`] are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use quorum::NodeId;
use quorum::electorate::MEMBERS_MAX;
use tokio::time::Instant;

use super::Member;
use super::rows::{Page, Row};

/// How long a member is listed that is not alive: as long as by gossip.
const KEEP: Duration = Duration::from_secs(15 * 60);

/// What has been read of the roll.
pub(super) struct Held {
    me: NodeId,
    /// For how long a reading says who is alive.
    lease: Duration,
    /// By name; at most [`MEMBERS_MAX`].
    kept: BTreeMap<NodeId, Kept>,
    /// The number of the last change that was read; 0: all is to be read.
    change: u64,
    /// The server's moment at the last reading, in milliseconds.
    at_ms: u64,
    /// When the roll was last read.
    read_at: Option<Instant>,
    /// Who was listed so far, while all is being read.
    listing: Option<BTreeSet<NodeId>>,
}

struct Kept {
    row: Row,
    said: Arc<[u8]>,
    /// When it was last known to be alive; `None`: never.
    seen_at: Option<Instant>,
    /// Whether nothing was found of it when all was read.
    is_missing: bool,
    /// Since when it has been listed without being alive.
    idle_since: Instant,
}

impl Held {
    pub(super) fn new(me: NodeId, lease: Duration) -> Self {
        let (kept, listing) = (BTreeMap::new(), None);
        Self { me, lease, kept, change: 0, at_ms: 0, read_at: None, listing }
    }

    /// From where on is to be read: the number of the last known change, and the moment of the last
    /// reading.
    pub(super) fn from(&self) -> (u64, u64) {
        (self.change, self.at_ms)
    }

    /// When the roll was last read.
    pub(super) fn read_at(&self) -> Option<Instant> {
        self.read_at
    }

    /// Lets all be read anew.
    pub(super) fn read_anew(&mut self) {
        (self.change, self.at_ms, self.listing) = (0, 0, None);
    }

    /// Takes a page in that was read at `now`. Returns whether there is more to be read.
    pub(super) fn take(&mut self, now: Instant, page: Page) -> bool {
        if page.is_from_start {
            self.listing = Some(BTreeSet::new());
        }
        // A server whose clock is behind that of the last one: leases may have ended unnoticed.
        let must_begin = page.at_ms < self.at_ms;
        (self.change, self.at_ms, self.read_at) = (page.change, page.at_ms, Some(now));
        let mut is_short = false;
        for row in page.rows {
            is_short |= !self.row(now, row);
        }
        for id in &page.over {
            if let Some(kept) = self.kept.get_mut(id) {
                kept.row.is_alive = false;
            }
        }
        if !page.has_more
            && let Some(listed) = self.listing.take()
        {
            for (id, kept) in &mut self.kept {
                kept.is_missing = !listed.contains(id);
            }
        }
        for kept in self.kept.values_mut().filter(|kept| kept.row.is_alive && !kept.is_missing) {
            (kept.seen_at, kept.idle_since) = (Some(now), now);
        }
        self.kept.retain(|_, kept| now.saturating_duration_since(kept.idle_since) < KEEP);
        if must_begin || is_short {
            self.read_anew();
        }
        page.has_more || must_begin || is_short
    }

    /// Takes one row in. Returns false if what it says is not known.
    fn row(&mut self, now: Instant, mut row: Row) -> bool {
        if row.id == self.me {
            return true;
        }
        let known = self.kept.get(&row.id);
        if known.is_some_and(|known| known.row.generation > row.generation) {
            return true;
        }
        if let Some(listing) = &mut self.listing {
            listing.insert(row.id.clone());
        }
        let is_same = |known: &&Kept| {
            let of = |row: &Row| (row.generation, row.nonce, row.mark);
            of(&known.row) == of(&row)
        };
        let (was_said, seen_at, idle_since) = match known.filter(is_same) {
            Some(known) => (Some(Arc::clone(&known.said)), known.seen_at, known.idle_since),
            None => (None, None, now),
        };
        // What stands under a row's name is what it says only if it came with it.
        let said = row.said.take().or(was_said);
        let is_known = said.is_some() || self.listing.is_some();
        if known.is_none() && !self.has_room() {
            return true;
        }
        let said = said.unwrap_or_default();
        let kept = Kept { said, seen_at, is_missing: false, idle_since, row };
        self.kept.insert(kept.row.id.clone(), kept);
        is_known
    }

    /// Makes room for another by letting go of who has been idle for longest, if somebody is.
    fn has_room(&mut self) -> bool {
        if self.kept.len() < MEMBERS_MAX {
            return true;
        }
        let idle = self.kept.iter().filter(|(_, kept)| !kept.row.is_alive);
        let longest = idle.min_by_key(|(_, kept)| kept.idle_since).map(|(id, _)| id.clone());
        longest.is_some_and(|id| self.kept.remove(&id).is_some())
    }

    /// All members but this node, by name.
    pub(super) fn members(&self, now: Instant) -> Vec<Member> {
        let member = |kept: &Kept| {
            let seen_at = if kept.is_missing { kept.seen_at } else { self.read_at };
            let is_recent = seen_at.is_some_and(|at| now < at + self.lease);
            Member {
                id: kept.row.id.clone(),
                generation: kept.row.generation,
                address: kept.row.address.clone(),
                is_live: kept.row.is_alive && is_recent,
                pulse: kept.row.pulse,
                said: Arc::clone(&kept.said),
                seen_at: kept.seen_at,
            }
        };
        self.kept.values().map(member).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    fn row(id: &str, generation: u64, mark: u64, said: Option<&str>) -> Row {
        Row {
            id: NodeId::new(id),
            generation,
            nonce: 1,
            mark,
            pulse: mark,
            address: "10.0.0.1:80".to_owned(),
            said: said.map(|said| said.as_bytes().into()),
            is_alive: true,
        }
    }

    fn all(at_ms: u64, change: u64, rows: Vec<Row>) -> Page {
        Page { at_ms, change, is_from_start: true, rows, ..Page::default() }
    }

    fn news(at_ms: u64, change: u64, rows: Vec<Row>) -> Page {
        Page { at_ms, change, rows, ..Page::default() }
    }

    fn held() -> Held {
        Held::new(NodeId::new("me"), LEASE)
    }

    fn live(held: &Held, now: Instant) -> Vec<String> {
        let members = held.members(now).into_iter().filter(|member| member.is_live);
        members.map(|member| member.id.to_string()).collect()
    }

    #[test]
    fn who_was_read_to_be_alive_is_so_for_a_lease() {
        let (mut held, now) = (held(), Instant::now());
        assert!(!held.take(now, all(1, 9, vec![row("a", 1, 8, Some("x")), row("me", 1, 9, None)])));
        assert_eq!(held.from(), (9, 1));
        assert_eq!(live(&held, now + LEASE - Duration::from_millis(1)), ["a"]);
        // Redis is away: nobody is known to be alive, and nobody is forgotten.
        assert_eq!(live(&held, now + LEASE), [""; 0]);
        assert_eq!(held.members(now + LEASE).len(), 1);
        held.take(now + 2 * LEASE, news(2, 9, Vec::new()));
        assert_eq!(live(&held, now + 2 * LEASE), ["a"]);
        let over = vec![NodeId::new("a"), NodeId::new("stranger")];
        held.take(now + 2 * LEASE, Page { over, ..news(3, 9, Vec::new()) });
        assert_eq!(live(&held, now + 2 * LEASE), [""; 0]);
        assert_eq!(held.members(now + 2 * LEASE)[0].seen_at, Some(now + 2 * LEASE));
    }

    #[test]
    fn whose_row_is_absent_is_not_given_up_at_once() {
        let (mut held, now) = (held(), Instant::now());
        held.take(now, all(1, 9, vec![row("a", 1, 8, Some("x")), row("b", 1, 9, Some("y"))]));
        // All was lost, and only one has written again.
        let later = now + Duration::from_secs(1);
        held.take(later, all(2, 20, vec![row("b", 1, 20, Some("z"))]));
        assert_eq!(live(&held, later), ["a", "b"]);
        held.take(later + LEASE, news(3, 20, Vec::new()));
        assert_eq!(live(&held, later + LEASE), ["b"]);
        // It comes back by its own row.
        held.take(later + LEASE, news(4, 21, vec![row("a", 1, 21, Some("x"))]));
        assert_eq!(live(&held, later + LEASE), ["a", "b"]);
    }

    #[test]
    fn a_past_life_changes_nothing() {
        let (mut held, now) = (held(), Instant::now());
        held.take(now, all(1, 9, vec![row("a", 7, 9, Some("x"))]));
        held.take(now, news(2, 10, vec![row("a", 6, 10, Some("old"))]));
        let member = &held.members(now)[0];
        assert_eq!((member.generation, &*member.said), (7, &b"x"[..]));
        held.take(now, news(3, 11, vec![row("a", 8, 11, Some("new"))]));
        let member = &held.members(now)[0];
        assert_eq!((member.generation, &*member.said), (8, &b"new"[..]));
    }

    #[test]
    fn what_a_member_says_stands_until_it_says_something_else() {
        let (mut held, now) = (held(), Instant::now());
        held.take(now, all(1, 9, vec![row("a", 7, 9, Some("x"))]));
        let beat = Row { pulse: 50, ..row("a", 7, 9, None) };
        assert!(!held.take(now, news(2, 10, vec![beat])));
        let member = &held.members(now)[0];
        assert_eq!((member.pulse, &*member.said), (50, &b"x"[..]));
        // Something that this node has not read: it reads all.
        assert!(held.take(now, news(3, 11, vec![row("a", 7, 3, None)])));
        assert_eq!(held.from(), (0, 0));
        // What is too large to be shown is nothing that is said.
        assert!(!held.take(now, all(4, 11, vec![row("a", 7, 3, None)])));
        assert_eq!(*held.members(now)[0].said, []);
    }

    #[test]
    fn a_server_with_a_clock_that_is_behind_is_read_from_the_start() {
        let (mut held, now) = (held(), Instant::now());
        held.take(now, all(1_000, 9, vec![row("a", 7, 9, Some("x"))]));
        assert!(held.take(now, news(900, 9, Vec::new())));
        assert_eq!(held.from(), (0, 0));
        assert!(!held.take(now, all(901, 9, vec![row("a", 7, 9, Some("x"))])));
        assert_eq!(live(&held, now), ["a"]);
    }

    #[test]
    fn no_more_are_kept_than_may_be_members() {
        let (mut held, now) = (held(), Instant::now());
        let rows = |from: usize, to: usize, is_alive| {
            let rows =
                (from..to).map(|at| Row { is_alive, ..row(&format!("n{at:05}"), 1, 5, Some("")) });
            rows.collect::<Vec<_>>()
        };
        held.take(now, all(1, 9, rows(0, 10, false)));
        held.take(now, news(2, 10, rows(10, MEMBERS_MAX + 20, true)));
        let members = held.members(now);
        assert_eq!(members.len(), MEMBERS_MAX);
        assert!(members.iter().all(|member| member.is_live), "who is alive comes first");
        held.take(now + KEEP, news(3, 10, Vec::new()));
        assert_eq!(held.members(now + KEEP).len(), MEMBERS_MAX);
        let over = members.iter().map(|member| member.id.clone()).collect();
        held.take(now + KEEP, Page { over, ..news(4, 10, Vec::new()) });
        held.take(now + 2 * KEEP, news(5, 10, Vec::new()));
        assert_eq!(held.members(now + 2 * KEEP), []);
    }
}
