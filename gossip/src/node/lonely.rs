//! Notices that a node with seeds hears nobody, and says so.
//!
//! A node whose seeds do not answer serves all the same, so that nobody else would notice it. What is
//! wrong with one peer's certificate `transport::trouble` says; here is what it cannot see: names that
//! do not resolve, packets that do not arrive, members that do not run.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// Three members that start together have found each other by then.
const LONELY_AFTER: Duration = Duration::from_secs(10);

/// How long this node has heard nobody.
#[derive(Default)]
pub(super) struct Lonely {
    since: Option<Instant>,
    /// Whether it has been said since somebody was heard.
    is_said: bool,
}

impl Lonely {
    /// Takes note of one round: whether anybody else is heard, and for how many addresses of others the
    /// seeds stand; `None`: nobody else is looked for.
    pub(super) fn note(&mut self, now: Instant, is_heard: bool, others: Option<usize>) {
        let Some(addresses) = self.due(now, is_heard, others) else { return };
        let what = match addresses {
            0 => "no name in cluster.seeds stands for anybody else; check the names and the DNS",
            _ => {
                "no other member answers; is one of cluster.seeds running, and do its UDP packets pass \
                 both ways?"
            }
        };
        warn!(addresses, "this node is alone: {what}");
    }

    fn due(&mut self, now: Instant, is_heard: bool, others: Option<usize>) -> Option<usize> {
        let Some(addresses) = others.filter(|_| !is_heard) else {
            *self = Self::default();
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let is_due = !self.is_said && now >= since + LONELY_AFTER;
        self.is_said |= is_due;
        is_due.then_some(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_each_time_it_has_lasted() {
        let (mut lonely, begin) = (Lonely::default(), Instant::now());
        let mut at = |seconds, is_heard| {
            let due = lonely.due(begin + Duration::from_secs(seconds), is_heard, Some(2));
            due.is_some()
        };
        assert!(!at(0, false) && !at(9, false) && at(10, false) && !at(60, false));
        assert!(!at(61, true) && !at(62, false) && !at(71, false) && at(72, false));
    }

    #[test]
    fn who_looks_for_nobody_is_not_lonely() {
        let (mut lonely, begin) = (Lonely::default(), Instant::now());
        let later = begin + LONELY_AFTER * 2;
        assert_eq!([begin, later].map(|now| lonely.due(now, false, None)), [None, None]);
        assert_eq!([begin, later].map(|now| lonely.due(now, false, Some(0))), [None, Some(0)]);
    }
}
