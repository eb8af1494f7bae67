//! Keeps this node's papers with the ledger: which calls are due, and what their answers mean.
//!
//! The council proposes and the ledger commits; between them somebody has to remember what was read
//! when, which word stands until when, who leads and under which number, and what was asked and not yet
//! answered. It knows no clock and no Redis: calls come out, answers go in.
//!
//! Invariants:
//! - One call an endpoint is in flight, and no more than `IN_FLIGHT_MAX` in all.
//! - A call that nobody answered may have been done: the endpoint is read before anything follows from it.
//! - An answer that took longer than an interval is no answer: what it says of leads is old.
//! - Whoever is refused waits, or begins again from the entry it was shown, a few times at most.

mod file;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use quorum::ledger::{Answer, Call, Deed, Word};
use quorum::{Council, EndpointKey, Reliance};

use self::file::File;

/// Calls under way at any moment.
const IN_FLIGHT_MAX: usize = 256;

/// Endpoints of which nothing is going on are read in turn, so many in each interval.
const ROTATED_MAX: usize = 512;

/// A call that was never answered is given up after this: longer than the carrier's own deadline.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3);

/// What one node has to do with the ledger.
#[derive(Debug, Default)]
pub struct Clerk {
    /// A file for each endpoint of the council.
    files: BTreeMap<EndpointKey, File>,
    /// The number of the last word that was cast.
    seq: u64,
    /// The endpoint read last in turn, and how many more may be read in this interval.
    turn: Option<EndpointKey>,
    turns_left: usize,
    refilled_at: Option<Duration>,
}

impl Clerk {
    /// The calls to be made at `now`. Each is to be answered by [`answered`](Self::answered), even if no
    /// answer comes. While the council does not rely on the ledger it only reads what it has not read
    /// since: see [`is_reconciled`](Self::is_reconciled).
    pub fn calls(&mut self, now: Duration, council: &mut Council) -> Vec<Call> {
        self.open_files(council);
        for file in self.files.values_mut() {
            file.give_up(now, GIVEN_UP_AFTER);
        }
        let in_flight = self.files.values().filter(|file| file.is_waiting()).count();
        let mut room = IN_FLIGHT_MAX.saturating_sub(in_flight);
        let mut calls = Vec::new();
        if council.reliance() == Reliance::Ledger {
            self.act(now, council, &mut room, &mut calls);
            self.rotate(now, council, &mut room, &mut calls);
        } else {
            self.reconcile(now, council, &mut room, &mut calls);
        }
        calls
    }

    /// Takes in what became of a call; `None`: no answer came in time. Returns whether the council has
    /// something to decide.
    pub fn answered(
        &mut self,
        now: Duration,
        council: &mut Council,
        call: &Call,
        answer: Option<&Answer>,
    ) -> bool {
        let interval = council.interval();
        let Some(file) = self.files.get_mut(&call.endpoint) else {
            return false;
        };
        let Some(answer) = file.take(now, interval, call, answer) else {
            return false;
        };
        file.enter(now, (council.me(), council.generation()), &answer.entry);
        let has_news = council.enter(now, &call.endpoint, &answer.entry);
        file.settle(now, interval, &call.deed, answer);
        has_news
    }

    /// Notes that somebody has changed an entry, which has this version since.
    pub fn noticed(&mut self, endpoint: &EndpointKey, version: u64) {
        if let Some(file) = self.files.get_mut(endpoint) {
            file.notice(version);
        }
    }

    /// Whether every endpoint was read since the ledger was last out of reach: from then on the council
    /// may rely on it.
    pub fn is_reconciled(&self) -> bool {
        !self.files.is_empty() && self.files.values().all(File::is_read)
    }

    /// Forgets what it knew of the ledger, which is out of reach.
    pub fn lose(&mut self) {
        self.files.values_mut().for_each(File::lose);
    }

    /// The calls by which this node takes leave: its words are taken back and what it leads let go of. No
    /// answer need be given.
    pub fn parting(&mut self, now: Duration, council: &Council) -> Vec<Call> {
        let mut calls = Vec::new();
        for (endpoint, file) in &mut self.files {
            if file.has_word() {
                self.seq += 1;
                let word = empty(council, self.seq);
                calls.push(file.send(now, council, endpoint, Deed::Cast(word)));
            }
            if let Some(number) = file.leads(now) {
                calls.push(file.send(now, council, endpoint, Deed::Release { number }));
            }
        }
        calls
    }

    /// Keeps a file of each endpoint of the council, and of no other.
    fn open_files(&mut self, council: &Council) {
        for key in council.keys() {
            if !self.files.contains_key(key) {
                self.files.insert(key.clone(), File::default());
            }
        }
        if self.files.len() > council.keys().count() {
            let known: BTreeSet<&EndpointKey> = council.keys().collect();
            self.files.retain(|key, _| known.contains(key));
        }
    }

    /// Does what each endpoint of which something is going on asks for.
    fn act(
        &mut self,
        now: Duration,
        council: &mut Council,
        room: &mut usize,
        calls: &mut Vec<Call>,
    ) {
        let mut words: BTreeMap<EndpointKey, Word> = council.words(now).into_iter().collect();
        for (endpoint, file) in &mut self.files {
            let word = words.remove(endpoint);
            // What the ledger has lost it is told again, even if nothing is said of the endpoint.
            let is_behind =
                council.is_ahead(endpoint) || file.order_due(now, council, endpoint).is_some();
            let is_busy =
                word.is_some() || council.is_stirred(endpoint) || file.is_busy() || is_behind;
            if *room == 0 || file.is_waiting() || !is_busy {
                continue;
            }
            let deed = file.next(now, council, (endpoint, word), &mut self.seq);
            if let Some(deed) = deed {
                *room -= 1;
                calls.push(file.send(now, council, endpoint, deed));
            }
        }
    }

    /// Reads the others in turn.
    fn rotate(
        &mut self,
        now: Duration,
        council: &Council,
        room: &mut usize,
        calls: &mut Vec<Call>,
    ) {
        let interval = council.interval();
        if self.refilled_at.is_none_or(|at| now >= at.saturating_add(interval)) {
            self.refilled_at = Some(now);
            self.turns_left = ROTATED_MAX.min(self.files.len());
        }
        let (before, most) = (calls.len(), self.turns_left.min(*room));
        if most == 0 {
            return;
        }
        let after = self.turn.take().map_or(Bound::Unbounded, Bound::Excluded);
        for (endpoint, file) in self.files.range_mut((after, Bound::Unbounded)) {
            if calls.len() - before >= most {
                break;
            }
            if !file.is_waiting() && file.is_old(now, interval) {
                calls.push(file.send(now, council, endpoint, Deed::Read));
            }
        }
        let sent = calls.len() - before;
        // Short of its room it has come to the end: the next turn begins with the first.
        self.turn = calls.last().filter(|_| sent == most).map(|one| one.endpoint.clone());
        self.turns_left -= sent;
        *room -= sent;
    }

    /// Reads what was not read since the ledger was out of reach.
    fn reconcile(
        &mut self,
        now: Duration,
        council: &Council,
        room: &mut usize,
        calls: &mut Vec<Call>,
    ) {
        for (endpoint, file) in &mut self.files {
            if *room > 0 && !file.is_read() && !file.is_waiting() && file.is_ready(now) {
                *room -= 1;
                calls.push(file.send(now, council, endpoint, Deed::Read));
            }
        }
    }
}

/// A word that says nothing: it takes back what was said.
fn empty(council: &Council, seq: u64) -> Word {
    let lease = council.word_lease();
    let electorate = u32::try_from(council.electorate_size()).unwrap_or(u32::MAX);
    Word { seq, lease, electorate, ..Word::default() }
}
