//! Which entries of the ledger cannot be used though Redis answers, and for how long that forbids to
//! rely on it.
//!
//! The client says how Redis fares by a beat of its own, which says nothing of what this node is refused
//! elsewhere: a user who may not touch our keys, a key of another type, a slot that two servers disown.
//! So each call is judged by its endpoint and its deed. An entry that is read well and cannot be written
//! is found out only by another write, which needs the ledger: it is tried again, at growing intervals.
//!
//! Invariants:
//! - A failed deed is cleared by the same deed alone, or with time once nobody tries it any more.
//! - From the second time within [`QUIET`] on each pause is twice the one before, and at most [`HOLD_MAX`].
//! - Held are as many blots as there are endpoints and deeds, at most.

use std::collections::BTreeMap;
use std::time::Duration;

use quorum::EndpointKey;
use redis_lua::error::Trouble;

use super::reach::Cause;

/// A deed that is plainly refused for this long is refused for good: nobody could flip that endpoint.
const REFUSED_FOR: Duration = Duration::from_millis(500);
/// So is one that is not answered, or sent elsewhere, for this long while Redis answers its client: a call
/// that was late, or a slot that moves, says nothing.
const UNANSWERED_FOR: Duration = Duration::from_secs(3);
/// The shortest and the longest pause before the ledger is relied on again.
const HOLD_MIN: Duration = Duration::from_secs(1);
const HOLD_MAX: Duration = Duration::from_secs(60);
/// After so long without a failure the next is a first one.
const QUIET: Duration = Duration::from_secs(120);

/// The deed that is done while the ledger is not relied on as well; each is called as its script.
const READ: &str = "read";

/// All that is wrong with entries.
#[derive(Debug, Default)]
pub(super) struct Spoils {
    blots: BTreeMap<(EndpointKey, &'static str), Blot>,
    /// Why the ledger is not relied on, and until when at least.
    held: Option<(Cause, Duration)>,
    /// How long the last such pause was, and when it ended.
    hold: Duration,
    released_at: Option<Duration>,
}

/// A deed that fails.
#[derive(Debug)]
struct Blot {
    trouble: Trouble,
    since: Duration,
    failed_at: Duration,
    /// Whether it has lasted, so that the next failure counts at once.
    is_known: bool,
}

impl Blot {
    /// Whether it has failed for longer than may pass.
    fn has_lasted(&self) -> bool {
        self.failed_at >= self.since.saturating_add(patience(self.trouble))
    }
}

/// For how long a deed may fail with this trouble.
fn patience(trouble: Trouble) -> Duration {
    match trouble {
        Trouble::Refused(code) => match code {
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "NOPROTO" | "NOSCRIPT" | "CROSSSLOT"
            | "WRONGTYPE" | "ERR" | "other" => REFUSED_FOR,
            _ => UNANSWERED_FOR,
        },
        Trouble::Wrong(_) | Trouble::Tls(_) => REFUSED_FOR,
        Trouble::Away | Trouble::Timeout | Trouble::Busy => UNANSWERED_FOR,
    }
}

impl Spoils {
    /// Notes that a deed has failed at `now`. That there was no room for it says nothing.
    pub(super) fn failed(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        deed: &'static str,
        trouble: Trouble,
    ) {
        if trouble == Trouble::Busy {
            return;
        }
        let fresh = Blot { trouble, since: now, failed_at: now, is_known: false };
        let blot = self.blots.entry((endpoint.clone(), deed)).or_insert(fresh);
        (blot.trouble, blot.failed_at) = (trouble, now);
    }

    /// Notes that a deed was done.
    pub(super) fn went_well(&mut self, endpoint: &EndpointKey, deed: &'static str) {
        if !self.blots.is_empty() {
            self.blots.remove(&(endpoint.clone(), deed));
        }
    }

    /// Leaves out endpoints that there are no more, and, while Redis `is_down`, what says nothing of one
    /// entry since nothing is answered.
    pub(super) fn tidy(
        &mut self,
        now: Duration,
        is_down: bool,
        is_there: impl Fn(&EndpointKey) -> bool,
    ) {
        self.blots.retain(|(endpoint, _), blot| {
            let is_fresh = now < blot.failed_at.saturating_add(QUIET);
            is_fresh && is_there(endpoint) && !(is_down && blot.trouble.is_everywhere())
        });
    }

    /// Why the ledger is not to be relied on at `now`, although Redis answers; `None`: it may be.
    pub(super) fn look(&mut self, now: Duration) -> Option<Cause> {
        let standing = self.standing();
        match (self.held.take(), standing) {
            (None, None) => {}
            (None, Some(cause)) => {
                let is_again = |at: Duration| now < at.saturating_add(QUIET);
                self.hold = match self.released_at {
                    Some(at) if is_again(at) => self.hold.saturating_mul(2).min(HOLD_MAX),
                    Some(_) | None => HOLD_MIN,
                };
                self.held = Some((cause, now.saturating_add(self.hold)));
            }
            // Reading goes on meanwhile: whoever cannot be read has no need to be tried.
            (Some((_, until)), Some(cause)) if now < until || cause.deed() == Some(READ) => {
                self.held = Some((cause, until));
            }
            (Some((cause, until)), None) if now < until => self.held = Some((cause, until)),
            (Some(_), _) => self.released_at = Some(now),
        }
        self.held.as_ref().map(|(cause, _)| cause.clone())
    }

    /// Whether none of these endpoints' entries can be used, by a trouble that is not the entry's.
    pub(super) fn is_total<'a>(
        &self,
        endpoints: impl IntoIterator<Item = &'a EndpointKey>,
    ) -> bool {
        let is_out = |endpoint: &EndpointKey| {
            let read = self.blots.get(&(endpoint.clone(), READ));
            read.is_some_and(|blot| blot.trouble.is_everywhere())
        };
        endpoints.into_iter().all(is_out)
    }

    /// What fails lately, lasting or not.
    pub(super) fn newest(&self) -> Option<Cause> {
        let newest = self.blots.iter().max_by_key(|(_, blot)| blot.failed_at);
        newest.map(|(place, blot)| cause(place, blot))
    }

    /// A deed that has failed for too long and was not tried since, one that reads before any other.
    fn standing(&mut self) -> Option<Cause> {
        let tried_from = self.released_at;
        let mut found: Option<Cause> = None;
        for (place, blot) in &mut self.blots {
            let is_of_now = tried_from.is_none_or(|from| blot.failed_at > from);
            blot.is_known |= blot.has_lasted();
            let is_better = found.is_none() || place.1 == READ;
            if blot.is_known && is_of_now && is_better {
                found = Some(cause(place, blot));
            }
        }
        found
    }
}

fn cause((endpoint, deed): &(EndpointKey, &'static str), blot: &Blot) -> Cause {
    Cause::Entry { endpoint: endpoint.clone(), deed, trouble: blot.trouble }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn endpoint() -> EndpointKey {
        EndpointKey::new("m/b")
    }

    /// Fails with the deed every tenth of a second in `from..=to`, and says whether it spoils at the end.
    fn fail(spoils: &mut Spoils, (from, to): (u64, u64), deed: &'static str, why: Trouble) -> bool {
        let mut is_spoiled = false;
        for now in (from..=to).step_by(100).map(at) {
            spoils.failed(now, &endpoint(), deed, why);
            is_spoiled = spoils.look(now).is_some();
        }
        is_spoiled
    }

    #[test]
    fn whatever_is_refused_for_long_spoils_be_it_of_one_entry_or_of_all() {
        let refused = ["NOPERM", "CROSSSLOT", "NOSCRIPT", "WRONGTYPE", "ERR"];
        let soon = refused.map(Trouble::Refused).into_iter().chain([Trouble::Wrong("an answer")]);
        for trouble in soon {
            assert!(!fail(&mut Spoils::default(), (0, 400), READ, trouble), "{trouble}");
            assert!(fail(&mut Spoils::default(), (0, 500), READ, trouble), "{trouble}");
        }
        for trouble in [Trouble::Timeout, Trouble::Away, Trouble::Refused("MOVED")] {
            assert!(!fail(&mut Spoils::default(), (0, 2_900), READ, trouble), "{trouble}");
            assert!(fail(&mut Spoils::default(), (0, 3_000), READ, trouble), "{trouble}");
        }
        assert!(!fail(&mut Spoils::default(), (0, 9_000), READ, Trouble::Busy));
    }

    #[test]
    fn one_failure_of_which_nothing_follows_does_not_spoil_by_lying_there() {
        let mut spoils = Spoils::default();
        spoils.failed(at(0), &endpoint(), "take", Trouble::Refused("WRONGTYPE"));
        assert_eq!(spoils.look(at(60_000)), None);
        spoils.tidy(at(120_000), false, |_| true);
        assert_eq!(spoils.newest(), None);
    }

    #[test]
    fn a_failed_write_is_not_cleared_by_a_good_read() {
        let mut spoils = Spoils::default();
        for now in (0..=500).step_by(100) {
            spoils.failed(at(now), &endpoint(), "cast", Trouble::Refused("NOPERM"));
            spoils.went_well(&endpoint(), READ);
        }
        let cause = spoils.look(at(500)).unwrap();
        assert_eq!(cause.to_string(), "the entry of m/b cannot be used (cast: NOPERM)");
        spoils.went_well(&endpoint(), "cast");
        assert!(spoils.look(at(1_499)).is_some(), "a pause is a pause");
        assert_eq!(spoils.look(at(1_500)), None);
    }

    #[test]
    fn what_is_tried_again_in_vain_is_tried_ever_more_seldom_and_at_least_once_a_minute() {
        let mut spoils = Spoils::default();
        let trouble = Trouble::Refused("NOPERM");
        assert!(fail(&mut spoils, (0, 500), "cast", trouble));
        let (mut now, mut pauses) = (500, Vec::new());
        for _ in 0..8 {
            let began = now;
            while spoils.look(at(now)).is_some() {
                now += 100;
            }
            pauses.push((now - began) / 1_000);
            // On trial it is known already: the first failure is enough.
            now += 100;
            assert!(fail(&mut spoils, (now, now), "cast", trouble));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        while spoils.look(at(now)).is_some() {
            now += 100;
        }
        spoils.went_well(&endpoint(), "cast");
        now += 120_000;
        assert!(fail(&mut spoils, (now, now + 500), "cast", trouble));
        assert!(spoils.look(at(now + 1_400)).is_some());
        assert_eq!(
            spoils.look(at(now + 1_500)),
            None,
            "after two quiet minutes it is a first time"
        );
    }

    #[test]
    fn an_entry_that_cannot_be_read_holds_until_it_can() {
        let mut spoils = Spoils::default();
        let trouble = Trouble::Refused("WRONGTYPE");
        assert!(fail(&mut spoils, (0, 60_000), READ, trouble));
        spoils.went_well(&endpoint(), READ);
        assert_eq!(spoils.look(at(60_100)), None);
    }

    #[test]
    fn one_bad_key_is_not_all_of_redis() {
        let (one, other) = (endpoint(), EndpointKey::new("m/a"));
        let mut spoils = Spoils::default();
        spoils.failed(at(0), &one, READ, Trouble::Refused("WRONGTYPE"));
        assert!(!spoils.is_total([&one]), "that is the key's own trouble");
        spoils.failed(at(0), &one, READ, Trouble::Refused("NOPERM"));
        assert!(spoils.is_total([&one]) && !spoils.is_total([&one, &other]));
        spoils.failed(at(0), &other, READ, Trouble::Refused("NOPERM"));
        assert!(spoils.is_total([&one, &other]));
        spoils.tidy(at(0), true, |_| true);
        assert!(
            !spoils.is_total([&one]),
            "while nothing is answered, that says nothing of an entry"
        );
    }
}
