//! What has kept a server from being relied on: where, at which step, and why.
//!
//! An operator who reads only *away* cannot tell a name that does not resolve from a port that nobody
//! listens on. So each thing that is done on the way to *up* has a name, and whatever fails carries it.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::Trouble;

/// A try that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setback {
    /// The server's address; empty where it is no single server.
    pub(super) server: String,
    /// What was being done, out of a fixed set of words.
    pub(super) step: &'static str,
    pub(super) trouble: Trouble,
}

impl Setback {
    /// One that no server alone is to blame for.
    pub(super) fn nowhere(step: &'static str, trouble: Trouble) -> Self {
        Self { server: String::new(), step, trouble }
    }

    /// One of a server.
    pub(super) fn at(server: &impl ToString, step: &'static str, trouble: Trouble) -> Self {
        Self { server: server.to_string(), step, trouble }
    }
}

/// Does one step, until `deadline` at the latest.
///
/// # Errors
/// The step's own, or [`Trouble::Timeout`], with the server and the step.
pub(super) async fn step<T>(
    server: &impl ToString,
    name: &'static str,
    deadline: Instant,
    work: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Setback> {
    let done = timeout_at(deadline, work).await.unwrap_or(Err(Trouble::Timeout));
    done.map_err(|trouble| Setback::at(server, name, trouble))
}

/// The moment that is `span` from here.
pub(super) fn within(span: Duration) -> Instant {
    Instant::now() + span
}
