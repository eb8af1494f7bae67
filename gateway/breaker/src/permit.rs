//! The permission to send one request, and the half-open places that are out.
//!
//! A permit is an object because its one verdict must arrive exactly once and in the right era:
//! [`Breaker::settle`](crate::Breaker::settle) consumes it, so no request can be counted twice, and
//! it remembers the epoch it was given in, so an answer that comes minutes later cannot speak about
//! a state it never saw.
//!
//! Invariants:
//! - A permit is made only by a breaker and cannot be copied.
//! - A half-open place is out exactly as long as its permit is neither settled nor lost.

use std::time::Duration;

use crate::rule::HALF_OPEN_REQUESTS_MAX;

/// The terms on which a permit was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    /// The circuit was closed: the request is evidence.
    Closed,
    /// The circuit was half-open: the request decides what becomes of it.
    HalfOpen,
    /// The request was let through in spite of the circuit or of the fleet.
    PassThrough,
}

/// The permission to send one request. Hand it back to [`Breaker::settle`](crate::Breaker::settle)
/// with what came of it, on every path: a permit of the probe or canary rung that is dropped blocks
/// its place until its deadline and then counts against the endpoint.
///
/// It cannot be settled twice:
/// ```compile_fail,E0382
/// # use std::time::Duration;
/// # let mut breaker = breaker::Breaker::new(breaker::Rule::default(), 1);
/// # let permit = breaker.admit(Duration::ZERO, breaker::Errand::Probe).0.expect("closed");
/// breaker.settle(Duration::ZERO, permit, breaker::Outcome::Success);
/// breaker.settle(Duration::ZERO, permit, breaker::Outcome::Success);
/// ```
#[must_use = "a permit that is not settled says nothing, and a half-open one counts as lost"]
#[derive(Debug)]
pub struct Permit {
    pub(crate) epoch: u64,
    pub(crate) place: Place,
    is_slow: bool,
}

/// The terms with what the breaker needs to find the permit's traces again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// See [`Terms::Closed`].
    Closed,
    /// On the probe or the canary rung; see [`Terms::HalfOpen`].
    Tried {
        /// Its index in [`Places`].
        index: usize,
    },
    /// On the ramp; see [`Terms::HalfOpen`].
    Ramp,
    /// See [`Terms::PassThrough`].
    PassThrough,
    /// Refused by a breaker that is not obeyed, so that its verdict is not one the breaker would
    /// have heard; see [`Terms::PassThrough`].
    Unheard,
}

impl Permit {
    pub(crate) fn new(epoch: u64, place: Place) -> Self {
        Permit { epoch, place, is_slow: false }
    }

    /// Says on what terms the permit was given.
    pub fn terms(&self) -> Terms {
        match self.place {
            Place::Closed => Terms::Closed,
            Place::Tried { index: _ } | Place::Ramp => Terms::HalfOpen,
            Place::PassThrough | Place::Unheard => Terms::PassThrough,
        }
    }

    /// The epoch the permit was given in.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the request crossed a slow limit while it was running.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Remembers that the request was slow, and says whether that is new.
    pub(crate) fn mark_slow(&mut self) -> bool {
        !std::mem::replace(&mut self.is_slow, true)
    }
}

/// The half-open permits that are out: when each was given. They all belong to one epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Bounded: no rule gives out more than this.
    given: [Option<Duration>; HALF_OPEN_REQUESTS_MAX as usize],
}

impl Places {
    /// Takes a place unless `most` are out, and returns its index.
    pub(crate) fn take(&mut self, now: Duration, most: u32) -> Option<usize> {
        if self.out() >= most {
            return None;
        }
        let (index, place) =
            self.given.iter_mut().enumerate().find(|(_, place)| place.is_none())?;
        *place = Some(now);
        Some(index)
    }

    /// Gives a place back.
    pub(crate) fn free(&mut self, index: usize) {
        if let Some(place) = self.given.get_mut(index) {
            *place = None;
        }
    }

    /// The number of places that are out.
    pub(crate) fn out(&self) -> u32 {
        self.given.iter().flatten().fold(0, |count, _| count + 1)
    }

    /// Whether a permit has been out for `deadline` or longer.
    pub(crate) fn has_overdue(&self, now: Duration, deadline: Duration) -> bool {
        self.given.iter().flatten().any(|given| now.saturating_sub(*given) >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_can_be_taken_again_only_after_it_was_given_back() {
        let mut places = Places::default();
        let first = places.take(Duration::ZERO, 2).unwrap();
        let second = places.take(Duration::ZERO, 2).unwrap();
        assert_ne!(first, second);
        assert_eq!(places.take(Duration::ZERO, 2), None);
        places.free(first);
        assert_eq!((places.out(), places.take(Duration::ZERO, 2)), (1, Some(first)));
    }

    #[test]
    fn no_rule_takes_more_places_than_there_are() {
        let mut places = Places::default();
        let taken = (0..100).filter_map(|_| places.take(Duration::ZERO, u32::MAX)).count();
        assert_eq!(taken, HALF_OPEN_REQUESTS_MAX as usize);
    }

    #[test]
    fn a_permit_says_slow_once() {
        let mut permit = Permit::new(0, Place::Closed);
        assert!(!permit.is_slow());
        assert!(permit.mark_slow());
        assert!(!permit.mark_slow());
        assert!(permit.is_slow());
    }
}
