//! One life of one node as gossip holds it: whether it lives, and its records, opened.
//!
//! chitchat's state is read whole after every change, so what has been opened is kept by version,
//! and opened once. Signatures are checked apart from the reading, since chitchat waits during it.
//!
//! # Invariants
//! - A life that was live stays live for at least [`LIVE_INTERVALS_MIN`] intervals after its last
//!   heartbeat, and none for more than [`LIVE_INTERVALS_MAX`].
//! - A statement is replaced only by one with a greater number, and one that comes after a pulse is
//!   younger than it: what somebody kept and plays again changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use chitchat::NodeState;
use quorum::{Card, Heard};
use tokio::time::Instant;

use crate::push::{Layer, RECORDS_MAX};
use crate::records::{Body, CARD_KEY, CERTIFICATE_KEY, PULSE_KEY, Record, from_value, is_next};
use crate::seal::{Place, Seals};
use crate::stats::{Reject, Stats};

/// In a large fleet a member's heartbeat arrives many times per interval by way of others, so that
/// the detector's mean gets short and it gives a member up after little more than one interval. A
/// member whose machine paused for a moment is not dead.
const LIVE_INTERVALS_MIN: u32 = 3;

/// In a small and young fleet the detector takes up to nine intervals, and heartbeats that are
/// still being passed on add up to four: more than the ten seconds promised at an interval of one
/// second.
const LIVE_INTERVALS_MAX: u32 = 5;

/// Keys besides the statements: certificate, card, pulse.
const KEYS_BESIDES: usize = 3;

/// What gossip holds of one life of one node.
#[derive(Default)]
pub(super) struct Life {
    /// Greatest version and last collected version when the records were read.
    pub(super) versions: (u64, u64),
    /// By key. At most as many as a node may state, and those beside.
    lines: BTreeMap<String, Line>,
    has_unread: bool,
    /// The greatest number of a statement.
    pub(super) seq_max: u64,
    /// Keys, deleted ones included.
    pub(super) keys: usize,
    heartbeat: u64,
    /// When the heartbeat last grew; `None` before it grew for the first time.
    beat: Option<Instant>,
    /// When the life was first seen.
    since: Option<Instant>,
    pub(super) is_live: bool,
    /// Whether it has been over for so long that it is told on no more.
    pub(super) is_fading: bool,
}

/// What is under a key.
struct Line {
    version: u64,
    text: Text,
}

enum Text {
    /// As it came, and the record that was there before it.
    Unread(String, Option<Record>),
    Read(Record),
    /// It cannot be read, or nobody signed it.
    Bad,
}

impl Line {
    fn record(&self) -> Option<&Record> {
        match &self.text {
            Text::Unread(_, before) => before.as_ref(),
            Text::Read(record) => Some(record),
            Text::Bad => None,
        }
    }
}

impl Life {
    /// Notes what has changed in chitchat's state, to be opened later.
    pub(super) fn note(&mut self, state: &NodeState) {
        let versions = (state.max_version(), state.last_gc_version());
        self.keys = state.key_values_including_deleted().count();
        if self.versions == versions {
            return;
        }
        self.versions = versions;
        let mut before = std::mem::take(&mut self.lines);
        let present = state.key_values_including_deleted().filter(|(_, held)| !held.is_deleted());
        for (key, held) in present.take(RECORDS_MAX + KEYS_BESIDES) {
            let line = match before.remove(key) {
                Some(line) if line.version == held.version => line,
                line => {
                    let before = line.and_then(|line| line.record().cloned());
                    let text = Text::Unread(held.value.clone(), before);
                    Line { version: held.version, text }
                }
            };
            self.has_unread |= matches!(line.text, Text::Unread(..));
            self.lines.insert(key.to_owned(), line);
        }
    }

    /// Opens what has been noted, the certificate first.
    pub(super) fn open(
        &mut self,
        (node_id, generation): (&str, u64),
        seals: &mut Seals,
        stats: &Stats,
    ) {
        if !std::mem::take(&mut self.has_unread) {
            return;
        }
        let place = |key| Place { node_id, generation, key };
        if let Some(line) = self.lines.get_mut(CERTIFICATE_KEY) {
            let is_other = introduce(line, place(CERTIFICATE_KEY), seals, stats);
            if is_other {
                // What was signed with another key may be good by this one.
                self.lines.retain(|_, line| !matches!(line.text, Text::Bad));
                self.versions = (0, 0);
            }
        }
        let pulse = self.pulse_line();
        let mut seq_max = self.seq_max;
        for (key, line) in &mut self.lines {
            let Text::Unread(value, before) = &mut line.text else {
                continue;
            };
            let before = before.take();
            let opened = from_value(value).map_err(Reject::from);
            let opened = opened.and_then(|sealed| seals.open(place(key), &sealed));
            line.text = match opened {
                Ok(record) => judge(record, before, (line.version, pulse, self.seq_max), stats),
                Err(reason) => {
                    stats.reject(reason);
                    Text::Bad
                }
            };
            if let Text::Read(Record { seq, body: Body::Statement(_) }) = &line.text {
                seq_max = seq_max.max(*seq);
            }
        }
        self.seq_max = seq_max;
    }

    /// Forgets all records, so that they are read and opened anew.
    pub(super) fn forget(&mut self) {
        self.lines.clear();
        self.versions = (0, 0);
    }

    /// Takes note of the heartbeat and of what the detector says.
    pub(super) fn judge(
        &mut self,
        heartbeat: u64,
        is_live: bool,
        interval: Duration,
        now: Instant,
    ) {
        self.since.get_or_insert(now);
        if heartbeat != self.heartbeat {
            // The first heartbeat may be an old one that somebody still passes on.
            self.beat = (self.heartbeat != 0).then_some(now);
            self.heartbeat = heartbeat;
        }
        let is_within = |intervals: u32| {
            let silence = self.beat.map(|beat| now.saturating_duration_since(beat));
            silence.is_some_and(|silence| silence < interval * intervals)
        };
        self.is_live = match is_live {
            true => is_within(LIVE_INTERVALS_MAX),
            false => self.is_live && is_within(LIVE_INTERVALS_MIN),
        };
    }

    /// When the heartbeat last grew.
    pub(super) fn beat(&self) -> Option<Instant> {
        self.beat
    }

    /// Whether the life has been seen for this long.
    pub(super) fn is_older_than(&self, age: Duration, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) > age)
    }

    /// Whether a record is there that its node has signed for this life.
    pub(super) fn is_proven(&self) -> bool {
        self.lines.values().any(|line| line.record().is_some())
    }

    /// The records that can be read, by key.
    pub(super) fn records(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.lines.iter().filter_map(|(key, line)| Some((key.as_str(), line.record()?)))
    }

    /// The pulse, and the greatest number of a statement made before it was raised.
    pub(super) fn pulse(&self) -> Option<(u64, u64)> {
        let record = self.lines.get(PULSE_KEY)?.record()?;
        match record.body {
            Body::Pulse(pulse) => Some((pulse, record.seq)),
            Body::Card(_) | Body::Statement(_) | Body::Certificate(_) => None,
        }
    }

    /// The number up to which the key is held, see [`Self::merged`].
    pub(super) fn newest(&self, key: &str) -> u64 {
        let own = self.lines.get(key).and_then(Line::record).map_or(0, |record| record.seq);
        let whole = self.pulse().filter(|_| key != CARD_KEY).map_or(0, |(_, seq)| seq);
        own.max(whole)
    }

    /// The version of the pulse that has been read, with its number.
    fn pulse_line(&self) -> Option<(u64, u64)> {
        let line = self.lines.get(PULSE_KEY)?;
        match &line.text {
            Text::Read(record) => Some((line.version, record.seq)),
            Text::Unread(..) | Text::Bad => None,
        }
    }

    /// The card and the statements, those that were pushed laid over those that gossip brought.
    pub(super) fn merged(&self, layer: Option<&Layer>) -> (Option<Card>, Vec<Heard>) {
        let mut newest: BTreeMap<&str, &Record> = self.records().collect();
        // What gossip has brought is whole up to the pulse: an older push that is not in it has been
        // taken back since.
        let whole = self.pulse().map_or(0, |(_, seq)| seq);
        for (key, record) in layer.into_iter().flat_map(Layer::records) {
            if key != CARD_KEY && record.seq <= whole {
                continue;
            }
            if newest.get(key).is_none_or(|there| there.seq < record.seq) {
                newest.insert(key, record);
            }
        }
        let card = newest.get(CARD_KEY).and_then(|record| match &record.body {
            Body::Card(card) => Some(card.clone()),
            Body::Statement(_) | Body::Pulse(_) | Body::Certificate(_) => None,
        });
        let heard = newest.into_values().filter_map(|record| match &record.body {
            Body::Card(_) | Body::Pulse(_) | Body::Certificate(_) => None,
            Body::Statement(statement) => {
                Some(Heard { seq: record.seq, statement: statement.clone() })
            }
        });
        (card, heard.collect())
    }
}

/// Opens the line of a certificate. Says whether it is another one than before.
fn introduce(line: &mut Line, place: Place<'_>, seals: &mut Seals, stats: &Stats) -> bool {
    let Text::Unread(value, _) = &line.text else {
        return false;
    };
    let introduced = from_value(value).map_err(Reject::from).and_then(|sealed| {
        let record = crate::codec::decode(&sealed.record)?;
        match &record.body {
            Body::Certificate(chain) => {
                let is_other = seals.introduce(place, &sealed, (record.seq, chain))?;
                Ok((is_other, record))
            }
            Body::Card(_) | Body::Statement(_) | Body::Pulse(_) => Err(Reject::Undecodable),
        }
    });
    match introduced {
        Ok((is_other, record)) => {
            line.text = Text::Read(record);
            is_other
        }
        Err(reason) => {
            stats.reject(reason);
            line.text = Text::Bad;
            false
        }
    }
}

/// What becomes of a record that its writer has signed: it may be an old one, played again.
fn judge(
    record: Record,
    before: Option<Record>,
    (version, pulse, seq_max): (u64, Option<(u64, u64)>, u64),
    stats: &Stats,
) -> Text {
    if let Some(before) = before {
        if (before.seq, pulse_of(&before)) > (record.seq, pulse_of(&record)) {
            stats.reject(Reject::Implausible);
            return Text::Read(before);
        }
        if before.seq == record.seq {
            // Sealed anew with another key.
            return Text::Read(record);
        }
    }
    let is_statement = matches!(record.body, Body::Statement(_));
    let is_stale = pulse.is_some_and(|(at, seq)| version > at && record.seq <= seq);
    if is_statement && is_stale || !is_next(&record, seq_max) {
        stats.reject(Reject::Implausible);
        return Text::Bad;
    }
    Text::Read(record)
}

fn pulse_of(record: &Record) -> u64 {
    match record.body {
        Body::Pulse(pulse) => pulse,
        Body::Card(_) | Body::Statement(_) | Body::Certificate(_) => 0,
    }
}

#[cfg(test)]
mod tests;
