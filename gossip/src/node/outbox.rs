//! What of *mine* has to be written for gossip, and what has to be pushed.
//!
//! chitchat spreads every write to everybody, so a key is written only when its number has grown,
//! and a key that *mine* holds no longer is deleted: by then its withdrawal has been stated, since
//! deletions are not noticed everywhere.
//!
//! # Invariants
//! - Written and pushed are the same bytes, signed once.
//! - The certificate is written before all that is signed with it.
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
use crate::records::{Body, CARD_KEY, CERTIFICATE_KEY, PULSE_KEY, Record, statement_key, to_value};
use crate::seal::{Place, Seals};
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
    /// The certificate's, which is stated anew when it changes.
    certificate_seq: u64,
    has_introduced: bool,
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
    /// Keys and values to write, in this order.
    pub(super) write: Vec<(String, String)>,
    /// Keys to delete.
    pub(super) delete: Vec<String>,
    /// The pulse, key and value, to be written when all else is.
    pub(super) pulse: Option<(String, String)>,
    /// Sealed records to push.
    pub(super) push: Vec<Vec<u8>>,
}

/// Whose seal the records get.
#[derive(Clone, Copy)]
pub(super) struct Sealer<'a> {
    pub(super) seals: &'a Seals,
    pub(super) node_id: &'a str,
    pub(super) generation: u64,
}

impl Sealer<'_> {
    fn seal(&self, key: &str, encoded: Vec<u8>) -> Option<Vec<u8>> {
        let place = Place { node_id: self.node_id, generation: self.generation, key };
        self.seals.seal(place, encoded).ok()
    }
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
        self.has_introduced = false;
    }

    /// Forgets what was written with another certificate.
    pub(super) fn change_seal(&mut self) {
        self.begin_life();
        self.certificate_seq += 1;
    }

    /// Works out what is to be written, deleted and pushed.
    pub(super) fn take(&mut self, mine: &Mine, sealer: Sealer<'_>, stats: &Stats) -> Letters {
        let lines = self.lines(mine, stats);
        let mut letters = Letters::default();
        letters.write.extend(self.introduce(sealer));
        for line in lines.values() {
            let is_newer =
                |told: &HashMap<String, u64>| told.get(&line.key).is_none_or(|seq| *seq < line.seq);
            let (is_news, is_newer) =
                (line.is_fresh && is_newer(&self.pushed), is_newer(&self.written));
            if !is_news && !is_newer {
                continue;
            }
            let Some(sealed) = sealer.seal(&line.key, line.encoded.clone()) else {
                continue;
            };
            if is_newer {
                self.written.insert(line.key.clone(), line.seq);
                letters.write.push((line.key.clone(), to_value(&sealed)));
            }
            if is_news {
                self.pushed.insert(line.key.clone(), line.seq);
                letters.push.push(sealed);
            }
        }
        let is_gone = |key: &String| !lines.contains_key(key);
        letters.delete = self.written.keys().filter(|key| is_gone(key)).cloned().collect();
        self.written.retain(|key, _| !is_gone(key));
        self.pushed.retain(|key, _| !is_gone(key));
        letters.pulse = self.raise(mine.pulse, sealer);
        letters
    }

    /// The certificate to be written, if it has not been.
    fn introduce(&mut self, sealer: Sealer<'_>) -> Option<(String, String)> {
        if self.has_introduced || !sealer.seals.is_secure() {
            return None;
        }
        let body = Body::Certificate(sealer.seals.chain());
        let encoded = codec::encode(&Record { seq: self.certificate_seq, body }).ok()?;
        let sealed = sealer.seal(CERTIFICATE_KEY, encoded)?;
        self.has_introduced = true;
        Some((CERTIFICATE_KEY.to_owned(), to_value(&sealed)))
    }

    /// The pulse to be written, if it has grown.
    fn raise(&mut self, pulse: u64, sealer: Sealer<'_>) -> Option<(String, String)> {
        if pulse <= self.pulse {
            return None;
        }
        let record = Record { seq: self.seq_max, body: Body::Pulse(pulse) };
        let sealed = sealer.seal(PULSE_KEY, codec::encode(&record).ok()?)?;
        self.pulse = pulse;
        Some((PULSE_KEY.to_owned(), to_value(&sealed)))
    }

    /// All of *mine*, to be pushed a last time.
    pub(super) fn everything(
        &mut self,
        mine: &Mine,
        sealer: Sealer<'_>,
        stats: &Stats,
    ) -> Vec<Vec<u8>> {
        let lines = self.lines(mine, stats).into_values();
        lines.filter_map(|line| sealer.seal(&line.key, line.encoded)).collect()
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
mod tests;
