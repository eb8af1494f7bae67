//! Which part of every limit this node holds: in a fleet each node admits its share, with nobody to ask.
//!
//! A limit is divided by the number of those that hold a share, and what does not divide goes to the
//! first of them, one each. Nobody's part is less than one, since a node that serves nobody is of no
//! use: of a limit that is smaller than the fleet each node has one.
//!
//! A part that shrinks takes back nothing that was admitted; a part that grows is there at once. Who
//! holds a share is the cluster's affair, which says so here.
//!
//! Invariants: the parts of all ranks are the limit together, if it is not smaller than their number; of
//! a higher rank, or among more, a part is never larger, so that a node that counts too many takes too
//! little and never too much.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::link::{Link, Standing};

/// One part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    rank: u32,
    among: u32,
}

impl Part {
    /// All of it.
    pub const WHOLE: Self = Self { rank: 0, among: 1 };

    /// That of the node which has `rank` others before it among so many; what is not possible is taken
    /// for the nearest that is.
    pub fn new(rank: usize, among: usize) -> Self {
        let among = u32::try_from(among).unwrap_or(u32::MAX).max(1);
        let rank = u32::try_from(rank).unwrap_or(u32::MAX).min(among - 1);
        Self { rank, among }
    }

    /// How many others come before this node, below [`Self::among`].
    pub fn rank(self) -> u32 {
        self.rank
    }

    /// How many hold a part, at least 1.
    pub fn among(self) -> u32 {
        self.among
    }

    /// This part of a limit, at least 1.
    pub fn of(self, limit: u64) -> u64 {
        let (rank, among) = (u64::from(self.rank), u64::from(self.among));
        let rest = u64::from(rank < limit.checked_rem(among).unwrap_or(0));
        (limit.checked_div(among).unwrap_or(limit) + rest).max(1)
    }
}

/// The part that this node holds, of every limit alike; read by each request, under no lock.
#[derive(Debug)]
pub struct Share {
    part: AtomicU64,
    /// The way to the ledger of a fleet that has one.
    link: OnceLock<Arc<Link>>,
}

impl Default for Share {
    /// The whole, and no ledger.
    fn default() -> Self {
        Self { part: AtomicU64::new(pack(Part::WHOLE)), link: OnceLock::new() }
    }
}

impl Share {
    /// The part that is held.
    pub fn get(&self) -> Part {
        let packed = self.part.load(Ordering::Relaxed);
        Part::new((packed & u64::from(u32::MAX)) as usize, (packed >> u32::BITS) as usize)
    }

    /// Keeps the limits in the ledger at the end of `link`, for good: a share joins one in its life.
    pub(super) fn join(&self, link: &Arc<Link>) {
        let is_first = self.link.set(Arc::clone(link)).is_ok();
        debug_assert!(is_first, "a share joins one ledger");
    }

    pub(super) fn link(&self) -> Option<&Arc<Link>> {
        self.link.get()
    }

    /// How far the ledger is to be relied on.
    pub(super) fn standing(&self) -> Standing {
        self.link.get().map_or(Standing::Away, |link| link.standing())
    }

    /// Holds this part from here on. Returns whether it is another.
    pub fn set(&self, part: Part) -> bool {
        self.part.swap(pack(part), Ordering::Relaxed) != pack(part)
    }
}

/// Both figures in one, so that nobody reads half of a change.
fn pack(part: Part) -> u64 {
    u64::from(part.among) << u32::BITS | u64::from(part.rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_holds_the_whole() {
        for limit in [1, 2, 7, 1_000_000_000_000, u64::MAX] {
            assert_eq!(Share::default().get().of(limit), limit);
        }
    }

    #[test]
    fn what_does_not_divide_goes_to_the_first_one_each() {
        let parts = |limit| [0, 1, 2].map(|rank| Part::new(rank, 3).of(limit));
        assert_eq!(parts(12), [4, 4, 4]);
        assert_eq!(parts(11), [4, 4, 3]);
        assert_eq!(parts(10), [4, 3, 3]);
        assert_eq!(parts(2), [1, 1, 1]);
        assert_eq!(parts(1), [1, 1, 1]);
    }

    #[test]
    fn by_chance_the_parts_of_all_ranks_are_the_limit_together() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        for _ in 0..20_000 {
            let among = chance.usize(1..200);
            let bits = chance.u32(1..41);
            let limit = chance.u64(1..1_u64 << bits);
            let sum: u64 = (0..among).map(|rank| Part::new(rank, among).of(limit)).sum();
            assert_eq!(sum, limit.max(among as u64), "{limit} among {among}");
        }
    }

    #[test]
    fn by_chance_who_counts_more_never_holds_more() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        for _ in 0..100_000 {
            let (among, limit) = (chance.usize(1..50), chance.u64(1..500));
            let rank = chance.usize(..among);
            let above = among + chance.usize(..10);
            let behind = chance.usize(rank..above);
            let (less, more) =
                (Part::new(behind, above).of(limit), Part::new(rank, among).of(limit));
            assert!(less <= more, "{behind}/{above} {less} > {rank}/{among} {more} of {limit}");
        }
    }

    #[test]
    fn what_is_set_is_got_and_a_change_is_told() {
        let share = Share::default();
        assert!(!share.set(Part::WHOLE));
        assert!(share.set(Part::new(2, 3)));
        assert!(!share.set(Part::new(2, 3)));
        assert_eq!((share.get().rank(), share.get().among()), (2, 3));
        for (part, nearest) in [((5, 3), (2, 3)), ((0, 0), (0, 1)), ((usize::MAX, 2), (1, 2))] {
            assert_eq!(Part::new(part.0, part.1), Part::new(nearest.0, nearest.1));
        }
    }
}
