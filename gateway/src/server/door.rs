//! The same care of connections for a listener other than the clients': the operators'.
//!
//! Whoever connects there is no better behaved: heads that do not come, answers that nobody takes, and
//! requests that are refused half-way are met in the same way.
//!
//! Invariant: HTTP/1.1 only. An answer about a large fleet is tens of megabytes, and over HTTP/2 one
//! connection could ask for a hundred of them at once.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::Body;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::connection::{Entry, Patiences};
use super::{Asked, Stop};
use crate::metrics::Meters;
use crate::proxy::Cut;

/// How long an operator's connection is waited for: until its request head begins, and is there,
const HEAD: Duration = Duration::from_secs(10);
/// between two requests, and
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// until it takes something of what is written to it.
const WRITE: Duration = Duration::from_secs(30);

/// Where the connections of operators come in.
pub(crate) struct Door {
    entry: Entry,
    /// Never told to stop: whoever drops the future ends the connection.
    stop: watch::Sender<Stop>,
}

impl Door {
    /// A door that counts in `meters` whom it shows out.
    pub(crate) fn new(meters: &Meters) -> Self {
        let (first_byte, head) = (HEAD, HEAD);
        let patiences = Patiences { first_byte, head, keep_alive: KEEP_ALIVE, write: WRITE };
        let mut entry = Entry::new(patiences, None, meters);
        entry.is_plain = true;
        Self { entry, stop: watch::Sender::new(Stop::Serving) }
    }

    /// Serves a connection by `answer` until it ends.
    pub(crate) async fn receive<A, F, B>(&self, stream: TcpStream, answer: A)
    where
        A: Fn(Asked) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes> + Cut + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        self.entry.receive(stream, answer, self.stop.subscribe()).await;
    }
}
