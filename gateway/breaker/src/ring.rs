//! A sliding stretch of time in ten buckets, whatever is counted in them.
//!
//! Ten buckets in a fixed ring, so that recording allocates nothing and costs the same however much
//! traffic there is. What is given up is sharpness at the far edge: an entry counts for at least
//! nine tenths of the stretch and never longer than it.
//!
//! Invariants:
//! - Nothing older than the stretch counts.
//! - Resizing never lengthens the life of an entry.

use std::time::Duration;

/// The number of buckets; the ring is sharp to a tenth of its length.
const BUCKETS: u64 = 10;

/// What a bucket holds: sums that begin at nothing.
pub(crate) trait Content: Clone + Default {
    /// Adds the sums of another.
    fn add(&mut self, other: &Self);
}

/// The stretch of time with one number, and what fell into it.
#[derive(Clone, Debug, Default)]
struct Bucket<T> {
    /// Time since the origin divided by the bucket's width.
    number: u64,
    content: T,
}

/// The ring of buckets. Callers pass times that never run back.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T> {
    /// The width of one bucket in nanoseconds, at least 1.
    width: u64,
    /// Bounded: [`BUCKETS`]. A bucket's place is its number modulo that.
    buckets: [Bucket<T>; BUCKETS as usize],
}

impl<T: Content> Ring<T> {
    /// Makes an empty ring of this length.
    pub(crate) fn new(length: Duration) -> Self {
        let width = (nanoseconds(length) / BUCKETS).max(1);
        Ring {
            width,
            buckets: std::array::from_fn(|_| Bucket { number: 0, content: T::default() }),
        }
    }

    /// The bucket of `now`, to be added to; `None` never happens.
    pub(crate) fn current(&mut self, now: Duration) -> Option<&mut T> {
        self.bucket(self.number(now))
    }

    /// Adds an entry at `now`.
    pub(crate) fn add(&mut self, now: Duration, entry: &T) {
        if let Some(content) = self.current(now) {
            content.add(entry);
        }
    }

    /// The buckets that still count at `now`.
    pub(crate) fn counted(&self, now: Duration) -> impl Iterator<Item = &T> {
        let current = self.number(now);
        let counts = move |bucket: &&Bucket<T>| current.saturating_sub(bucket.number) < BUCKETS;
        self.buckets.iter().filter(counts).map(|bucket| &bucket.content)
    }

    /// Changes the length and keeps what still counts.
    ///
    /// An entry's place in the new ring is where its old bucket began, the earliest it can have
    /// been, so that resizing never lengthens the life of an entry.
    pub(crate) fn resize(&mut self, now: Duration, length: Duration) {
        let mut resized = Self::new(length);
        if resized.width == self.width {
            return;
        }
        let (old_current, current) = (self.number(now), resized.number(now));
        for bucket in &self.buckets {
            let number = bucket.number.saturating_mul(self.width) / resized.width;
            let counted = old_current.saturating_sub(bucket.number) < BUCKETS;
            let reaches = counted && current.saturating_sub(number) < BUCKETS;
            if reaches && let Some(content) = resized.bucket(number) {
                content.add(&bucket.content);
            }
        }
        *self = resized;
    }

    /// Empties every bucket that reaches beyond `since`. What fell into such a bucket before that
    /// moment goes too, for the ring knows no finer time than a bucket.
    pub(crate) fn discard(&mut self, since: Duration) {
        let first = self.number(since);
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.number >= first) {
            bucket.content = T::default();
        }
    }

    /// Empties all buckets.
    pub(crate) fn clear(&mut self) {
        self.discard(Duration::ZERO);
    }

    /// The buckets that still count at `now`, each with how long ago it began.
    pub(crate) fn save(&self, now: Duration) -> impl Iterator<Item = (Duration, &T)> {
        let current = self.number(now);
        let counts = move |bucket: &&Bucket<T>| current.saturating_sub(bucket.number) < BUCKETS;
        let began = |bucket: &Bucket<T>| bucket.number.saturating_mul(self.width);
        self.buckets.iter().filter(counts).map(move |bucket| {
            (now.saturating_sub(Duration::from_nanos(began(bucket))), &bucket.content)
        })
    }

    fn bucket(&mut self, number: u64) -> Option<&mut T> {
        // The place is below the length by the modulo; `get_mut` says so without a panic.
        let bucket = self.buckets.get_mut((number % BUCKETS) as usize)?;
        if bucket.number != number {
            *bucket = Bucket { number, content: T::default() };
        }
        Some(&mut bucket.content)
    }

    fn number(&self, now: Duration) -> u64 {
        nanoseconds(now) / self.width
    }
}

/// Nanoseconds in 64 bits, which is 584 years; a division of 128 bits would cost more than all the
/// rest of recording.
fn nanoseconds(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Content for u32 {
        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    fn at(tenths: u64) -> Duration {
        Duration::from_millis(tenths * 100)
    }

    fn sum(ring: &Ring<u32>, now: Duration) -> u32 {
        ring.counted(now).sum()
    }

    #[test]
    fn an_entry_counts_for_nine_tenths_of_the_length_and_never_longer_than_it() {
        for start in 0..20 {
            let mut ring = Ring::new(at(10));
            let now = at(start) + Duration::from_millis(37);
            ring.add(now, &1);
            assert_eq!(sum(&ring, now + at(9)), 1);
            assert_eq!(sum(&ring, now + at(10)), 0);
        }
    }

    #[test]
    fn a_ring_that_wrapped_holds_only_the_last_stretch() {
        let mut ring = Ring::new(at(10));
        for tenth in 0..95 {
            ring.add(at(tenth), &1);
        }
        assert_eq!(sum(&ring, at(94)), 10);
    }

    #[test]
    fn resizing_keeps_what_is_young_enough_and_never_lengthens_a_life() {
        let mut ring = Ring::new(at(100));
        ring.add(at(5), &1);
        ring.add(at(75), &10);
        ring.resize(at(80), at(50));
        assert_eq!(sum(&ring, at(80)), 10);
        ring.resize(at(80), at(1_000));
        assert_eq!(sum(&ring, at(80)), 10);
        assert_eq!(sum(&ring, at(75) + at(1_000)), 0);
    }

    #[test]
    fn what_is_gone_is_neither_resized_nor_saved() {
        let mut ring = Ring::new(at(100));
        ring.add(at(5), &1);
        assert_eq!(ring.save(at(105)).filter(|(_, entry)| **entry > 0).count(), 0);
        ring.resize(at(105), at(1_000));
        assert_eq!(sum(&ring, at(105)), 0);
    }

    #[test]
    fn an_entry_that_a_narrower_ring_does_not_reach_hides_no_other() {
        let mut ring = Ring::new(at(100));
        ring.add(at(55), &1);
        ring.add(at(140), &10);
        ring.resize(at(140), at(90));
        assert_eq!(sum(&ring, at(140)), 10);
    }

    #[test]
    fn discarding_takes_the_bucket_of_the_moment_and_all_later_ones() {
        let mut ring = Ring::new(at(100));
        for (tenth, entry) in [(5, 1), (15, 10), (25, 100), (35, 1_000)] {
            ring.add(at(tenth), &entry);
        }
        ring.discard(at(28));
        assert_eq!(sum(&ring, at(38)), 11);
        ring.clear();
        assert_eq!(sum(&ring, at(38)), 0);
    }

    #[test]
    fn the_ends_of_time_and_of_length_are_safe() {
        for length in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let mut ring = Ring::new(length);
            ring.add(Duration::MAX, &1);
            assert_eq!(sum(&ring, Duration::MAX), 1);
            ring.resize(Duration::MAX, Duration::from_secs(1));
        }
    }
}
