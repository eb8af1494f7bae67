//! The mock's books: how many requests came, how each ended, and what the last ones said.
//!
//! A gateway is judged at its upstream: "no second attempt", "cancelled within 200 ms" and "byte
//! for byte" are claims about what arrived here, so the books must not miss an end, whichever way
//! it comes. Each request therefore holds an [`Entry`], and dropping it is an end as well.
//!
//! Invariants: `requests = in_flight + completed + cut_short + aborted`, unless the books were
//! reset while requests were in flight; those then end without being counted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::HeaderMap;
use hyper::http::request::Parts;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The header by which a gateway's own probes are told from its clients' requests.
const PROBE_HEADER: &str = "x-quorumgate-probe";
/// Paths counted apart; further ones are counted as [`OTHER_PATH`].
const PATHS_MAX: usize = 64;
const OTHER_PATH: &str = "other";
/// Characters of a path that are kept.
const PATH_CHARACTERS_MAX: usize = 256;
/// Requests remembered; the oldest goes first.
const RECORDS_MAX: usize = 64;
/// Bytes of each body that are remembered.
const RECORD_BODY_BYTES_MAX: usize = 64 * 1024;
/// Headers whose value is a credential.
const SECRET_HEADERS: [&str; 3] = ["authorization", "x-api-key", "api-key"];

/// What was counted since the start or the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Model requests received: every POST below `/v1/`, counted at its head.
    pub requests: u64,
    /// Those among `requests` that carry `x-quorumgate-probe`, canaries left out.
    pub probes: u64,
    /// Those among `requests` that carry `x-quorumgate-probe: canary`: a gateway's own, in place of
    /// a client's small request.
    pub canaries: u64,
    /// Model requests not ended yet; a reset keeps this figure.
    pub in_flight: u64,
    /// Ended with a whole answer handed to the connection, an error answer included.
    pub completed: u64,
    /// Ended by a fault of the mock's own that lets the connection go.
    pub cut_short: u64,
    /// Ended by a client that went away before the answer was complete.
    pub aborted: u64,
    /// Connections accepted.
    pub connections: u64,
    /// `requests` by path: at most 64 paths, the rest under `other`.
    pub by_path: BTreeMap<String, u64>,
}

/// A model request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedRequest {
    /// The method; model requests are POST.
    pub method: String,
    /// Path and query, at most 256 characters.
    pub path: String,
    /// The value of `x-request-id`, if there was one.
    pub request_id: Option<String>,
    /// Headers in order of arrival, repeated ones repeated; credentials are masked to their last
    /// four characters unless [`Behaviour::show_keys`](super::Behaviour::show_keys) is set.
    pub headers: Vec<(String, String)>,
    /// The first 64 KiB of the body; bytes that are no UTF-8 are replaced.
    pub body: String,
    /// The length of the whole body.
    pub body_bytes: usize,
    /// The SHA-256 of the whole body, in hexadecimal digits.
    pub body_sha256: String,
}

#[derive(Debug, Default)]
struct Books {
    counts: Counts,
    records: VecDeque<RecordedRequest>,
    /// Tells entries made before a reset from those after it.
    epoch: u64,
}

/// The books of one mock, shared by its connections.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// A plain lock: it is held for a few additions, never over an await, and an entry must be
    /// able to write its end from `drop`.
    books: Mutex<Books>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Books> {
        // The books are whole after every statement, so a panic elsewhere does not spoil them.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of the counts.
    pub(super) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Returns copies of the remembered requests, the oldest first.
    pub(super) fn records(&self) -> Vec<RecordedRequest> {
        self.lock().records.iter().cloned().collect()
    }

    /// Starts anew: counts are zero but for `in_flight`, remembered requests are forgotten.
    pub(super) fn reset(&self) {
        let mut books = self.lock();
        let in_flight = books.counts.in_flight;
        books.counts = Counts { in_flight, ..Counts::default() };
        books.records.clear();
        books.epoch += 1;
    }

    /// Counts an accepted connection.
    pub(super) fn connected(&self) {
        self.lock().counts.connections += 1;
    }

    /// Counts a model request by its head.
    pub(super) fn begin(self: &Arc<Self>, head: &Parts) -> Entry {
        let path: String = head.uri.path().chars().take(PATH_CHARACTERS_MAX).collect();
        let mut books = self.lock();
        let counts = &mut books.counts;
        counts.requests += 1;
        counts.in_flight += 1;
        match head.headers.get(PROBE_HEADER).map(|mark| mark.as_bytes()) {
            Some(b"canary") => counts.canaries += 1,
            Some(_) => counts.probes += 1,
            None => {}
        }
        let known = counts.by_path.contains_key(&path);
        // One place is kept for the rest.
        let key = if known || counts.by_path.len() < PATHS_MAX - 1 {
            path
        } else {
            OTHER_PATH.to_owned()
        };
        *counts.by_path.entry(key).or_default() += 1;
        Entry { ledger: Arc::clone(self), epoch: books.epoch, end: End::Aborted }
    }

    /// Remembers a request whose body has arrived.
    pub(super) fn record(&self, head: &Parts, body: &[u8], show_keys: bool) {
        let kept = body.get(..RECORD_BODY_BYTES_MAX).unwrap_or(body);
        let path = head.uri.path_and_query().map_or("", |path| path.as_str());
        let record = RecordedRequest {
            method: head.method.to_string(),
            path: path.chars().take(PATH_CHARACTERS_MAX).collect(),
            request_id: head
                .headers
                .get("x-request-id")
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
            headers: readable_headers(&head.headers, show_keys),
            body: String::from_utf8_lossy(kept).into_owned(),
            body_bytes: body.len(),
            body_sha256: digest(body),
        };
        let mut books = self.lock();
        if books.records.len() >= RECORDS_MAX {
            books.records.pop_front();
        }
        books.records.push_back(record);
    }
}

fn digest(body: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(body).into();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn readable_headers(headers: &HeaderMap, show_keys: bool) -> Vec<(String, String)> {
    let readable = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let is_secret = SECRET_HEADERS.contains(&name.as_str());
        let text = if is_secret && !show_keys { masked(&text) } else { text };
        (name.as_str().to_owned(), text)
    };
    headers.iter().map(readable).collect()
}

/// Hides all but the last four characters.
pub(super) fn masked(secret: &str) -> String {
    let hidden = secret.chars().count().saturating_sub(4);
    let tail: String = secret.chars().skip(hidden).collect();
    format!("***{tail}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Completed,
    CutShort,
    Aborted,
}

/// One model request in the books. Dropped without a word, it counts as aborted: hyper drops
/// what it was serving when the client goes away.
#[derive(Debug)]
pub(super) struct Entry {
    ledger: Arc<Ledger>,
    epoch: u64,
    end: End,
}

impl Entry {
    /// The whole answer was handed to the connection.
    pub(super) fn complete(mut self) {
        self.end = End::Completed;
    }

    /// The mock let the connection go on purpose.
    pub(super) fn cut_short(mut self) {
        self.end = End::CutShort;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut books = self.ledger.lock();
        let is_current = books.epoch == self.epoch;
        let counts = &mut books.counts;
        counts.in_flight = counts.in_flight.saturating_sub(1);
        if !is_current {
            return;
        }
        match self.end {
            End::Completed => counts.completed += 1,
            End::CutShort => counts.cut_short += 1,
            End::Aborted => counts.aborted += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn head(path: &str) -> Parts {
        Request::post(path)
            .header("authorization", "Bearer sk-12345")
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    #[test]
    fn every_end_is_counted_once() {
        let ledger = Arc::new(Ledger::default());
        ledger.begin(&head("/v1/a")).complete();
        ledger.begin(&head("/v1/a")).cut_short();
        drop(ledger.begin(&head("/v1/b")));
        let open = ledger.begin(&head("/v1/b"));
        let counts = ledger.counts();
        assert_eq!((counts.requests, counts.in_flight), (4, 1));
        assert_eq!((counts.completed, counts.cut_short, counts.aborted), (1, 1, 1));
        drop(open);
    }

    #[test]
    fn an_end_after_a_reset_is_not_counted() {
        let ledger = Arc::new(Ledger::default());
        let entry = ledger.begin(&head("/v1/a"));
        ledger.reset();
        assert_eq!(ledger.counts(), Counts { in_flight: 1, ..Counts::default() });
        entry.complete();
        assert_eq!(ledger.counts(), Counts::default());
    }

    #[test]
    fn paths_beyond_the_bound_are_counted_together() {
        let ledger = Arc::new(Ledger::default());
        for number in 0..200 {
            ledger.begin(&head(&format!("/v1/{number}"))).complete();
        }
        let by_path = ledger.counts().by_path;
        assert_eq!(by_path.len(), PATHS_MAX);
        assert_eq!(by_path.values().sum::<u64>(), 200);
    }

    #[test]
    fn records_are_bounded_in_number_and_length() {
        let ledger = Ledger::default();
        for number in 0..100 {
            ledger.record(&head(&format!("/v1/{number}")), &vec![b'x'; 100_000], false);
        }
        let records = ledger.records();
        assert_eq!((records.len(), records[0].path.as_str()), (64, "/v1/36"));
        assert_eq!((records[0].body.len(), records[0].body_bytes), (65_536, 100_000));
    }

    #[test]
    fn a_credential_is_recorded_by_its_last_four_characters_unless_asked() {
        let ledger = Ledger::default();
        ledger.record(&head("/v1/a"), b"", false);
        ledger.record(&head("/v1/a"), b"", true);
        let keys = ledger.records().into_iter().map(|record| record.headers[0].1.clone());
        assert_eq!(keys.collect::<Vec<_>>(), ["***2345", "Bearer sk-12345"]);
    }
}
