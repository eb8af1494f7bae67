//! Decides whether a history of concurrent calls can be told as one call after the other.
//!
//! The search is that of Wing and Gong (1993): the next call in order is any that was sent before
//! another, still to come, was answered. It has Lowe's memo (2017): the same calls done with the same
//! state reached are not looked at twice.
//!
//! A call that was never answered may have been done at any time after it was sent, or never. Where
//! doing it changes nothing it is left out, which is the same.

use std::collections::HashSet;

/// The most calls in one history: they are a set of bits.
pub(crate) const CALLS_MAX: usize = 64;

/// What is done with one call after the other.
pub(crate) trait Model: Clone {
    /// What is asked.
    type Call;
    /// What is told.
    type Answer;

    /// Does the call; whether that is what was told. `None`: nothing was told, which is always so.
    fn explains(&mut self, call: &Self::Call, told: Option<&Self::Answer>) -> bool;

    /// The whole state, so that two states that differ have different ones.
    fn key(&self) -> String;
}

/// One call and what its caller knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Event<C, A> {
    /// The call.
    pub(crate) call: C,
    /// When it was sent, by a count that grows with every sending and answer of the history.
    pub(crate) sent: u64,
    /// What the caller was told, and when.
    pub(crate) told: Option<(u64, A)>,
}

/// What the checker finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is an order that explains everything that was told.
    Legal,
    /// There is none; the longest beginning of one that was found.
    Illegal(Vec<usize>),
    /// Not decided within the number of steps allowed.
    TooHard,
}

/// Looks for an order in at most `steps_max` steps.
pub(crate) fn judge<M: Model>(
    initial: &M,
    history: &[Event<M::Call, M::Answer>],
    steps_max: u32,
) -> Verdict {
    assert!(history.len() <= CALLS_MAX, "{} calls", history.len());
    let mut by_end: Vec<usize> = (0..history.len()).collect();
    by_end.sort_by_key(|at| end(&history[*at]));
    let (seen, order, longest) = (HashSet::new(), Vec::new(), Vec::new());
    let mut search = Search { history, by_end, seen, order, longest, left: steps_max };
    match search.extend(0, initial) {
        Some(true) => Verdict::Legal,
        Some(false) => Verdict::Illegal(search.longest),
        None => Verdict::TooHard,
    }
}

fn end<C, A>(event: &Event<C, A>) -> u64 {
    event.told.as_ref().map_or(u64::MAX, |(at, _)| *at)
}

struct Search<'a, M: Model> {
    history: &'a [Event<M::Call, M::Answer>],
    /// The calls by when they were answered: to try them so finds most orders at once.
    by_end: Vec<usize>,
    /// What was looked at, at most one for each step.
    seen: HashSet<(u64, String)>,
    order: Vec<usize>,
    longest: Vec<usize>,
    left: u32,
}

impl<M: Model> Search<'_, M> {
    /// Whether what has been `done`, ending in `state`, is the beginning of an order; `None`: too hard.
    fn extend(&mut self, done: u64, state: &M) -> Option<bool> {
        let waiting = |at: &usize| done & (1 << at) == 0;
        let first_end = self.by_end.iter().copied().find(waiting).map(|at| end(&self.history[at]));
        let Some(first_end) = first_end.filter(|end| *end < u64::MAX) else { return Some(true) };
        let candidates: Vec<usize> = self.by_end.iter().copied().filter(waiting).collect();
        for at in candidates {
            let event = &self.history[at];
            if event.sent > first_end {
                continue;
            }
            self.left = self.left.checked_sub(1)?;
            let mut next = state.clone();
            if !next.explains(&event.call, event.told.as_ref().map(|(_, answer)| answer)) {
                continue;
            }
            let key = next.key();
            if event.told.is_none() && key == state.key() {
                continue;
            }
            let done = done | (1 << at);
            if !self.seen.insert((done, key)) {
                continue;
            }
            self.order.push(at);
            if self.order.len() > self.longest.len() {
                self.longest.clone_from(&self.order);
            }
            if self.extend(done, &next)? {
                return Some(true);
            }
            self.order.pop();
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Model, Verdict, judge};

    /// One number that is written and read, and written on condition.
    #[derive(Clone)]
    struct Register(u32);

    enum Deed {
        Read,
        Write(u32),
        Swap(u32, u32),
    }

    impl Model for Register {
        type Call = Deed;
        type Answer = u32;

        fn explains(&mut self, call: &Deed, told: Option<&u32>) -> bool {
            match call {
                Deed::Read => {}
                Deed::Write(number) => self.0 = *number,
                Deed::Swap(from, to) => self.0 = if self.0 == *from { *to } else { self.0 },
            }
            told.is_none_or(|told| *told == self.0)
        }

        fn key(&self) -> String {
            self.0.to_string()
        }
    }

    fn call(sent: u64, call: Deed, told_at: u64, told: u32) -> Event<Deed, u32> {
        Event { call, sent, told: Some((told_at, told)) }
    }

    fn lost(sent: u64, call: Deed) -> Event<Deed, u32> {
        Event { call, sent, told: None }
    }

    fn verdict(history: &[Event<Deed, u32>]) -> Verdict {
        judge(&Register(0), history, 10_000)
    }

    #[test]
    fn two_reads_beside_a_write_may_see_it_in_either_order_but_not_lose_it_again() {
        let seen = |first, second| {
            [
                call(0, Deed::Write(1), 9, 1),
                call(1, Deed::Read, 2, first),
                call(3, Deed::Read, 4, second),
            ]
        };
        assert_eq!(verdict(&seen(0, 0)), Verdict::Legal);
        assert_eq!(verdict(&seen(0, 1)), Verdict::Legal);
        assert_eq!(verdict(&seen(1, 1)), Verdict::Legal);
        assert!(matches!(verdict(&seen(1, 0)), Verdict::Illegal(_)));
    }

    #[test]
    fn a_read_after_an_answered_write_that_does_not_see_it_is_stale() {
        let history = [call(0, Deed::Write(1), 1, 1), call(2, Deed::Read, 3, 0)];
        assert!(matches!(verdict(&history), Verdict::Illegal(longest) if longest == [0]));
    }

    #[test]
    fn two_conditional_writes_from_the_same_number_do_not_both_succeed() {
        let history = [call(0, Deed::Swap(0, 1), 3, 1), call(1, Deed::Swap(0, 2), 2, 2)];
        assert!(matches!(verdict(&history), Verdict::Illegal(_)));
    }

    #[test]
    fn a_write_without_an_answer_may_come_at_any_time_or_never() {
        let early = [lost(0, Deed::Write(1)), call(1, Deed::Read, 2, 1), call(3, Deed::Read, 4, 1)];
        assert_eq!(verdict(&early), Verdict::Legal);
        let late = [lost(0, Deed::Write(1)), call(1, Deed::Read, 2, 0), call(3, Deed::Read, 4, 1)];
        assert_eq!(verdict(&late), Verdict::Legal);
        let never = [lost(0, Deed::Write(1)), call(1, Deed::Read, 2, 0), call(3, Deed::Read, 4, 0)];
        assert_eq!(verdict(&never), Verdict::Legal);
        let before_it_was_sent = [call(0, Deed::Read, 1, 1), lost(2, Deed::Write(1))];
        assert!(matches!(verdict(&before_it_was_sent), Verdict::Illegal(_)));
    }

    #[test]
    fn a_search_that_is_too_long_says_so() {
        let all_at_once = |number: u32| call(u64::from(number), Deed::Write(number), 100, number);
        let mut history: Vec<_> = (0..12).map(all_at_once).collect();
        history.push(call(200, Deed::Read, 201, 99));
        assert_eq!(judge(&Register(0), &history, 100), Verdict::TooHard);
        assert!(matches!(judge(&Register(0), &history, 1_000_000), Verdict::Illegal(_)));
    }
}
