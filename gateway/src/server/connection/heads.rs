//! What the requests of one HTTP/2 connection weigh by their heads, which wait while bodies come.
//!
//! HTTP/2 lets a client write a field of a head by one byte that stands for it: what a head weighs here
//! is what it takes to keep it, not what came. One alone has h2's bound; a hundred of them that wait for
//! bodies nobody sends would be several MiB.
//!
//! Invariants: the heads that are held weigh no more than [`HEADS_BYTES_MAX`] together; a weight is
//! given back when its request was answered or dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::{Request, StatusCode};

use crate::error::ApiError;
use crate::server::guard::FIELDS_MAX;

/// What all heads of a connection may weigh, in bytes: twenty KiB for each of a hundred streams.
pub(super) const HEADS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What it takes to keep a field beside its bytes: a place of 104 in a map that may have twice as many.
pub(super) const FIELD_BYTES: usize = 208;
/// Who comes again after this finds that others have been answered.
const AGAIN: Duration = Duration::from_secs(1);

/// The heads of one connection.
#[derive(Clone, Default)]
pub(super) struct Heads(Arc<AtomicUsize>);

/// The weight of one head, given back when it is dropped.
pub(super) struct Held {
    heads: Heads,
    bytes: usize,
}

impl Heads {
    /// Takes the weight of a request's head.
    ///
    /// # Errors
    /// It has more fields than HTTP/1.1 may have, or all of them weigh too much: what its client is
    /// told.
    pub(super) fn hold<B>(&self, request: &Request<B>) -> Result<Held, ApiError> {
        let fields = request.headers().len();
        if fields > FIELDS_MAX {
            let message = "At most 100 headers are taken.";
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(ApiError::new(status, "invalid_request", message));
        }
        let fields = request.headers().iter();
        let bytes: usize =
            fields.map(|(name, value)| FIELD_BYTES + name.as_str().len() + value.len()).sum();
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let bytes = bytes + target;
        // Made first, so that it is given back whatever becomes of it.
        let held = Held { heads: self.clone(), bytes };
        if self.0.fetch_add(bytes, Ordering::Relaxed) + bytes > HEADS_BYTES_MAX {
            let message =
                "The requests of this connection that wait for their bodies are too large.";
            let overloaded = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message);
            return Err(overloaded.retry_after(AGAIN));
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.heads.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: usize, value: usize) -> Request<()> {
        let mut request = Request::get("/");
        for field in 0..fields {
            request = request.header(format!("x-{field}"), "y".repeat(value));
        }
        request.body(()).unwrap()
    }

    #[test]
    fn a_hundred_fields_are_taken_and_one_more_is_not() {
        let heads = Heads::default();
        let held = heads.hold(&request(100, 10)).ok().unwrap();
        let refused = heads.hold(&request(101, 10)).err().unwrap();
        assert_eq!(refused.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        drop(held);
        assert_eq!(heads.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_heads_of_a_connection_weigh_no_more_than_they_may_and_what_is_refused_weighs_nothing() {
        let heads = Heads::default();
        let mut held = Vec::new();
        let refused = loop {
            match heads.hold(&request(50, 300)) {
                Ok(one) => held.push(one),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(heads.0.load(Ordering::Relaxed) <= HEADS_BYTES_MAX);
        assert!((70..100).contains(&held.len()), "{}", held.len());
        held.pop();
        assert!(heads.hold(&request(50, 300)).is_ok());
        drop(held);
        assert_eq!(heads.0.load(Ordering::Relaxed), 0);
    }
}
