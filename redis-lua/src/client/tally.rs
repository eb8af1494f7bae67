//! What is counted of the traffic with Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{CODES, Trouble};

/// Kinds of trouble that are no error code.
const KINDS: [&str; 5] = ["away", "timeout", "busy", "tls", "wrong"];

/// What was counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Calls that were made, those that failed included.
    pub calls: u64,
    /// Calls that failed, by [`Trouble::kind`]; kinds that never came are left out.
    pub troubles: Vec<(&'static str, u64)>,
    /// Dials after the first one of a server.
    pub reconnects: u64,
    /// Redirections that were followed.
    pub redirects: u64,
    /// Times that a server had forgotten a script.
    pub scripts_missing: u64,
    /// Notices that were not published, since there was no room or no connection.
    pub notices_lost: u64,
    /// How long the newest good answer took.
    pub latency: Duration,
}

/// The counters behind [`Figures`].
#[derive(Default)]
pub(super) struct Tally {
    calls: AtomicU64,
    kinds: [AtomicU64; KINDS.len()],
    codes: [AtomicU64; CODES.len()],
    reconnects: AtomicU64,
    redirects: AtomicU64,
    scripts_missing: AtomicU64,
    notices_lost: AtomicU64,
    latency_nanos: AtomicU64,
}

impl Tally {
    pub(super) fn called(&self, count: usize) {
        add(&self.calls, count);
    }

    pub(super) fn failed(&self, trouble: Trouble) {
        let kind = trouble.kind();
        let named = KINDS.iter().zip(&self.kinds).chain(CODES.iter().zip(&self.codes));
        if let Some((_, counter)) = named.into_iter().find(|(name, _)| **name == kind) {
            add(counter, 1);
        }
    }

    pub(super) fn reconnected(&self) {
        add(&self.reconnects, 1);
    }

    pub(super) fn redirected(&self) {
        add(&self.redirects, 1);
    }

    pub(super) fn missed_script(&self) {
        add(&self.scripts_missing, 1);
    }

    pub(super) fn lost_notices(&self, count: usize) {
        add(&self.notices_lost, count);
    }

    pub(super) fn took(&self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency_nanos.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let named = KINDS.iter().zip(&self.kinds).chain(CODES.iter().zip(&self.codes));
        let troubles = named.map(|(name, counter)| (*name, read(counter)));
        Figures {
            calls: read(&self.calls),
            troubles: troubles.filter(|(_, count)| *count > 0).collect(),
            reconnects: read(&self.reconnects),
            redirects: read(&self.redirects),
            scripts_missing: read(&self.scripts_missing),
            notices_lost: read(&self.notices_lost),
            latency: Duration::from_nanos(read(&self.latency_nanos)),
        }
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}
