//! Slow evidence: how often the endpoint was slow, told apart from how many requests saw it.
//!
//! Forty requests that cross a limit in the same moment saw one slowness, so those of one kind
//! within the dedup interval are one piece. Only a slow request moves that interval: a fast answer
//! in between neither hides the next slow one nor starts anything afresh.
//!
//! Invariants:
//! - A piece as old as the window is gone, so that two slow requests hours apart are no trip.
//! - Two pieces of the same kind are at least the dedup interval apart.

use std::time::Duration;

use crate::SlowKind;
use crate::rule::SLOW_CONFIRMATIONS_MAX;

/// The pieces seen of late.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowEvidence {
    /// When each piece was seen, in no order. Bounded: a rule asks for no more pieces than this,
    /// and the oldest gives way.
    pieces: [Option<Duration>; SLOW_CONFIRMATIONS_MAX as usize],
    /// The latest piece of each kind, in the order of [`SlowKind::ALL`].
    latest: [Option<Duration>; SlowKind::ALL.len()],
}

impl SlowEvidence {
    /// Takes note that a request was slow, and says whether that is a new piece.
    pub(crate) fn add(&mut self, now: Duration, kind: SlowKind, dedup: Duration) -> bool {
        let [total, first_token, tokens_per_second] = &mut self.latest;
        let last = match kind {
            SlowKind::Total => total,
            SlowKind::FirstToken => first_token,
            SlowKind::TokensPerSecond => tokens_per_second,
        };
        if last.is_some_and(|last| now.saturating_sub(last) < dedup) {
            return false;
        }
        *last = Some(now);
        // An empty place sorts before every time, so it is taken before the oldest piece is.
        if let Some(place) = self.pieces.iter_mut().min() {
            *place = Some(now);
        }
        true
    }

    /// Counts the pieces that are younger than the window.
    pub(crate) fn count(&self, now: Duration, window: Duration) -> u32 {
        let young = |seen: &&Duration| now.saturating_sub(**seen) < window;
        self.pieces.iter().flatten().filter(young).fold(0, |count, _| count + 1)
    }

    /// The ages of the pieces that are younger than the window, the newest first and `None` behind
    /// the last.
    pub(crate) fn ages(
        &self,
        now: Duration,
        window: Duration,
    ) -> [Option<Duration>; SLOW_CONFIRMATIONS_MAX as usize] {
        let mut ages = self.pieces.map(|seen| {
            let age = now.saturating_sub(seen?);
            (age < window).then_some(age)
        });
        ages.sort_unstable_by_key(|age| (age.is_none(), *age));
        ages
    }

    /// Takes back the pieces seen at `since` or later. The next slow request of their kind is a new
    /// piece: it comes later than they did, and so at least as far behind the piece before them.
    pub(crate) fn discard(&mut self, since: Duration) {
        for seen in self.pieces.iter_mut().chain(&mut self.latest) {
            *seen = seen.filter(|seen| *seen < since);
        }
    }

    /// The pieces, the oldest first, and the latest of each kind.
    pub(crate) fn save(&self) -> (Vec<Duration>, [Option<Duration>; SlowKind::ALL.len()]) {
        let mut pieces: Vec<Duration> = self.pieces.iter().flatten().copied().collect();
        pieces.sort_unstable();
        (pieces, self.latest)
    }

    /// Makes evidence of what was saved; of more pieces than there is room for the first count.
    pub(crate) fn restore(
        saved: impl Iterator<Item = Duration>,
        latest: [Option<Duration>; SlowKind::ALL.len()],
    ) -> Self {
        let mut evidence = SlowEvidence { latest, ..SlowEvidence::default() };
        for (place, seen) in evidence.pieces.iter_mut().zip(saved) {
            *place = Some(seen);
        }
        evidence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEDUP: Duration = Duration::from_secs(5);
    const WINDOW: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_burst_is_one_piece_and_the_next_interval_another() {
        let mut evidence = SlowEvidence::default();
        assert!(evidence.add(at(10), SlowKind::Total, DEDUP));
        for _ in 0..40 {
            assert!(!evidence.add(at(14), SlowKind::Total, DEDUP));
        }
        assert!(evidence.add(at(15), SlowKind::Total, DEDUP));
        assert_eq!(evidence.count(at(15), WINDOW), 2);
    }

    #[test]
    fn the_kinds_do_not_hide_each_other() {
        let mut evidence = SlowEvidence::default();
        assert!(evidence.add(at(0), SlowKind::Total, DEDUP));
        assert!(evidence.add(at(0), SlowKind::FirstToken, DEDUP));
        assert!(evidence.add(at(0), SlowKind::TokensPerSecond, DEDUP));
        assert_eq!(evidence.count(at(0), WINDOW), 3);
    }

    #[test]
    fn a_piece_is_gone_when_it_is_as_old_as_the_window() {
        let mut evidence = SlowEvidence::default();
        evidence.add(at(0), SlowKind::Total, DEDUP);
        assert_eq!(evidence.count(at(29), WINDOW), 1);
        assert_eq!(evidence.count(at(30), WINDOW), 0);
    }

    #[test]
    fn the_oldest_piece_gives_way_when_there_is_no_room() {
        let mut evidence = SlowEvidence::default();
        for step in 0..20 {
            assert!(evidence.add(at(step * 5), SlowKind::Total, DEDUP));
        }
        assert_eq!(evidence.count(at(95), at(1_000)), SLOW_CONFIRMATIONS_MAX);
        assert_eq!(evidence.count(at(95), at(11)), 3);
    }

    #[test]
    fn discarding_takes_back_the_late_pieces_and_leaves_the_early_ones() {
        let mut evidence = SlowEvidence::default();
        evidence.add(at(0), SlowKind::Total, DEDUP);
        evidence.add(at(6), SlowKind::Total, DEDUP);
        evidence.add(at(6), SlowKind::TokensPerSecond, DEDUP);
        evidence.discard(at(6));
        assert_eq!(evidence.count(at(7), WINDOW), 1);
        assert!(evidence.add(at(7), SlowKind::Total, DEDUP));
        assert!(!evidence.add(at(8), SlowKind::Total, DEDUP));
    }
}
