//! What of *mine* has to be written for gossip, and what has to be pushed.
//!
//! chitchat spreads every write to everybody, so a key is written only when its number has grown,
//! and a key that *mine* holds no longer is deleted: by then its withdrawal has been stated, since
//! deletions are not noticed everywhere.
//!
//! # Invariants
//! - Written and pushed are the same bytes.
//! - News is pushed once; a pulse never is.
//! - A pulse is written after all that its set states or takes back, and names the greatest number
//!   stated until then.
//! - No more than [`RECORDS_MAX`] statements, and none that a reader would refuse.

use std::collections::HashMap;

use quorum::Card;
use tracing::warn;

use crate::Mine;
use crate::codec;
use crate::push::RECORDS_MAX;
use crate::records::{Body, CARD_KEY, PULSE_KEY, Record, statement_key};
use crate::stats::{self, Stats};

/// What has been written and pushed so far.
#[derive(Default)]
pub(super) struct Outbox {
    /// The number under which each key was written. At most one more than [`RECORDS_MAX`].
    written: HashMap<String, u64>,
    /// The number under which each key was pushed; bounded with `written`.
    pushed: HashMap<String, u64>,
    card: Option<Card>,
    /// The card carries no number of its own; it is stated anew when it changes.
    card_seq: u64,
    /// The pulse as it was written.
    pulse: u64,
    /// The greatest number of a statement so far.
    seq_max: u64,
    /// Statements that could not be carried the last time, so that it is said once.
    unstated: usize,
}

/// What follows from a new *mine*.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Letters {
    /// Keys and values to write.
    pub(super) write: Vec<(String, String)>,
    /// Keys to delete.
    pub(super) delete: Vec<String>,
    /// The pulse, key and value, to be written when all else is.
    pub(super) pulse: Option<(String, String)>,
    /// Encoded records to push.
    pub(super) push: Vec<Vec<u8>>,
}

/// One record to state.
struct Line {
    key: String,
    is_fresh: bool,
    seq: u64,
    encoded: Vec<u8>,
}

impl Outbox {
    /// Forgets what was written, since a new life of chitchat begins with nothing.
    pub(super) fn begin_life(&mut self) {
        self.written.clear();
        self.pulse = 0;
    }

    /// Works out what is to be written, deleted and pushed.
    pub(super) fn take(&mut self, mine: &Mine, stats: &Stats) -> Letters {
        let lines = self.lines(mine, stats);
        let mut letters = Letters::default();
        for line in lines.values() {
            let is_newer =
                |told: &HashMap<String, u64>| told.get(&line.key).is_none_or(|seq| *seq < line.seq);
            if line.is_fresh && is_newer(&self.pushed) {
                self.pushed.insert(line.key.clone(), line.seq);
                letters.push.push(line.encoded.clone());
            }
            if is_newer(&self.written) {
                self.written.insert(line.key.clone(), line.seq);
                letters.write.push((line.key.clone(), Record::to_value(&line.encoded)));
            }
        }
        let is_gone = |key: &String| !lines.contains_key(key);
        letters.delete = self.written.keys().filter(|key| is_gone(key)).cloned().collect();
        self.written.retain(|key, _| !is_gone(key));
        self.pushed.retain(|key, _| !is_gone(key));
        letters.pulse = self.raise(mine.pulse);
        letters
    }

    /// The pulse to be written, if it has grown.
    fn raise(&mut self, pulse: u64) -> Option<(String, String)> {
        if pulse <= self.pulse {
            return None;
        }
        let record = Record { seq: self.seq_max, body: Body::Pulse(pulse) };
        let encoded = codec::encode(&record).ok()?;
        self.pulse = pulse;
        Some((PULSE_KEY.to_owned(), Record::to_value(&encoded)))
    }

    /// All of *mine*, to be pushed a last time.
    pub(super) fn everything(&mut self, mine: &Mine, stats: &Stats) -> Vec<Vec<u8>> {
        self.lines(mine, stats).into_values().map(|line| line.encoded).collect()
    }

    /// The records of *mine* by key; of two with the same key the one with the greater number.
    fn lines(&mut self, mine: &Mine, stats: &Stats) -> HashMap<String, Line> {
        let mut lines = HashMap::new();
        let mut unstated = mine.stated.len().saturating_sub(RECORDS_MAX);
        for stated in mine.stated.iter().take(RECORDS_MAX) {
            let key = statement_key(&stated.statement);
            let body = Body::Statement(stated.statement.clone());
            let Ok(encoded) = codec::encode(&Record { seq: stated.seq, body }) else {
                unstated += 1;
                continue;
            };
            let seq = stated.seq;
            self.seq_max = self.seq_max.max(seq);
            let line = Line { key: key.clone(), is_fresh: stated.fresh, seq, encoded };
            if lines.get(&key).is_none_or(|there: &Line| there.seq < seq) {
                lines.insert(key, line);
            }
        }
        lines.extend(self.card_line(mine).map(|line| (line.key.clone(), line)));
        if unstated > self.unstated {
            warn!(unstated, "statements beyond the bounds are not carried");
            stats::add(&stats.unstated, unstated - self.unstated);
        }
        self.unstated = unstated;
        lines
    }

    fn card_line(&mut self, mine: &Mine) -> Option<Line> {
        let card = mine.card.as_ref()?;
        if self.card.as_ref() != Some(card) {
            self.card = Some(card.clone());
            self.card_seq += 1;
        }
        let seq = self.card_seq;
        let encoded = codec::encode(&Record { seq, body: Body::Card(card.clone()) }).ok()?;
        Some(Line { key: CARD_KEY.to_owned(), is_fresh: true, seq, encoded })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorum::{Basis, EndpointKey, Evidence, Standing, Stated, Statement, Vote, VoteState};

    use super::*;

    fn vote(endpoint: &str, seq: u64, fresh: bool) -> Stated {
        let vote = Vote {
            incident: 1,
            basis: Basis::FirstHand,
            state: VoteState::Stands,
            reason: "504".to_owned(),
            evidence: Evidence::default(),
            age: Duration::ZERO,
        };
        Stated { seq, fresh, statement: Statement::Vote(EndpointKey::new(endpoint), vote) }
    }

    fn mine(stated: Vec<Stated>) -> Mine {
        Mine { card: None, stated, pulse: 0 }
    }

    fn take(outbox: &mut Outbox, stated: Vec<Stated>) -> (usize, usize, usize) {
        let letters = outbox.take(&mine(stated), &Stats::default());
        (letters.write.len(), letters.delete.len(), letters.push.len())
    }

    #[test]
    fn a_key_is_written_when_its_number_has_grown_and_pushed_when_it_is_news() {
        let mut outbox = Outbox::default();
        assert_eq!(take(&mut outbox, vec![vote("a", 1, true)]), (1, 0, 1));
        assert_eq!(take(&mut outbox, vec![vote("a", 1, true)]), (0, 0, 0));
        assert_eq!(take(&mut outbox, vec![vote("a", 2, false)]), (1, 0, 0));
        assert_eq!(take(&mut outbox, vec![vote("a", 1, true)]), (0, 0, 0));
        assert_eq!(take(&mut outbox, vec![]), (0, 1, 0));
        assert_eq!(take(&mut outbox, vec![]), (0, 0, 0));
    }

    #[test]
    fn the_greater_number_is_stated_whatever_the_order() {
        for stated in [
            vec![vote("a", 1, true), vote("a", 2, true)],
            vec![vote("a", 2, true), vote("a", 1, true)],
        ] {
            let letters = Outbox::default().take(&mine(stated), &Stats::default());
            let [(key, value)] = letters.write.as_slice() else {
                panic!("one key is written");
            };
            assert_eq!(Record::from_value(key, value).unwrap().seq, 2);
        }
    }

    #[test]
    fn a_new_life_is_told_everything_again_but_pushes_nothing_twice() {
        let mut outbox = Outbox::default();
        take(&mut outbox, vec![vote("a", 1, true), vote("b", 2, true)]);
        outbox.begin_life();
        assert_eq!(take(&mut outbox, vec![vote("a", 1, true), vote("b", 2, true)]), (2, 0, 0));
    }

    #[test]
    fn a_changed_card_is_news() {
        let mut outbox = Outbox::default();
        let card = |standing| Card {
            version: String::new(),
            config_hash: String::new(),
            standing,
            is_suspect: false,
        };
        let stats = Stats::default();
        let mut mine = Mine { card: Some(card(Standing::Serving)), ..Mine::default() };
        assert_eq!(outbox.take(&mine, &stats).push.len(), 1);
        assert_eq!(outbox.take(&mine, &stats), Letters::default());
        mine.card = Some(card(Standing::Left));
        assert_eq!(outbox.take(&mine, &stats).push.len(), 1);
    }

    #[test]
    fn a_pulse_is_written_when_it_has_grown_and_names_what_was_stated_before_it() {
        let (mut outbox, stats) = (Outbox::default(), Stats::default());
        let mut all = mine(vec![vote("a", 7, false), vote("b", 4, false)]);
        let mut pulse = |all: &Mine| {
            let (key, value) = outbox.take(all, &stats).pulse?;
            let record = Record::from_value(&key, &value).unwrap();
            Some((record.seq, record.body))
        };
        assert_eq!(pulse(&all), None, "there is none yet");
        all.pulse = 3;
        assert_eq!(pulse(&all), Some((7, Body::Pulse(3))));
        assert_eq!(pulse(&all), None);
        all.pulse = 2;
        assert_eq!(pulse(&all), None, "it does not shrink");
        all.stated.clear();
        all.pulse = 4;
        assert_eq!(pulse(&all), Some((7, Body::Pulse(4))), "what was taken back counts too");
        outbox.begin_life();
        assert!(outbox.take(&all, &stats).pulse.is_some(), "a new life is told again");
    }

    #[test]
    fn what_is_beyond_the_bounds_is_counted_and_left_out() {
        let stats = Stats::default();
        let mut stated: Vec<_> =
            (0..RECORDS_MAX as u64).map(|number| vote(&number.to_string(), 1, false)).collect();
        stated.push(vote("one too many", 1, false));
        stated[0] = vote(&"long".repeat(100), 1, false);
        let letters = Outbox::default().take(&mine(stated), &stats);
        assert_eq!(letters.write.len(), RECORDS_MAX - 1);
        assert_eq!(stats.unstated.load(std::sync::atomic::Ordering::Relaxed), 2);
    }
}
