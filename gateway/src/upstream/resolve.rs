//! The addresses behind a name: asked of the system, kept, and asked anew while they are used.
//!
//! The system's resolver is asked, so that names mean here what they mean to every other program of the
//! machine (hosts file, search domains, its own cache). It tells no time to live; an answer is taken to
//! be good for [`FRESH`], and is replaced in the background while requests go on with what is known.
//!
//! Invariants: a name has one question under way at most, and one begins at most every [`PAUSE`]; an
//! empty or failed answer never replaces a good one; names come from the configuration alone, which
//! bounds the table.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock;

/// An answer is good for this long, give or take [`SPREAD`].
const FRESH: Duration = Duration::from_secs(30);
/// Names are asked anew at moments spread by this share, so that nodes do not ask together.
const SPREAD: f64 = 0.2;
/// The shortest time between two questions for one name.
const PAUSE: Duration = Duration::from_secs(1);
/// After a bad answer that left a good one standing, the name is asked anew after this long.
const RETRY: Duration = Duration::from_secs(5);
/// An answer that has not been fresh for as long as it was is used only if no other comes in this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Addresses of one name that are kept.
const ADDRESSES_MAX: usize = 50;

/// What answers for a name.
pub type Lookup = Box<dyn Fn(&str) -> Answering + Send + Sync>;
/// An answer under way.
pub type Answering = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// The names, shared by all workers.
pub(super) struct Resolver {
    lookup: Lookup,
    names: Mutex<HashMap<String, Arc<Name>>>,
}

struct Name {
    /// A plain mutex, held for a few comparisons and never over an await.
    state: Mutex<State>,
    /// Counts the answers, for those who have no address yet.
    answers: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// The last good answer.
    addresses: Option<Arc<[IpAddr]>>,
    asked_at: Option<Instant>,
    /// When the answer is no longer fresh.
    stale_at: Option<Instant>,
    is_asking: bool,
}

/// What to do about a name.
enum Step {
    Have(Arc<[IpAddr]>),
    /// There is a question under way; until then, at the latest, whatever is known by then is taken.
    Wait(watch::Receiver<u64>, Option<Instant>),
    /// It was asked a moment ago, in vain.
    Nothing,
}

/// The system's resolver.
pub(super) fn system() -> Lookup {
    Box::new(|name| {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

impl Resolver {
    pub(super) fn new(lookup: Lookup) -> Arc<Self> {
        Arc::new(Self { lookup, names: Mutex::default() })
    }

    /// The addresses of `name`, in the resolver's order; `None` if there never was any.
    ///
    /// # Cancel safety
    /// The question goes on without whoever asked it first.
    pub(super) async fn resolve(self: &Arc<Self>, name: &str) -> Option<Arc<[IpAddr]>> {
        let entry = Arc::clone(guard(&self.names).entry(name.to_owned()).or_default());
        // The question that is waited for may have been asked in vain; another is not waited for.
        match self.step(name, &entry) {
            Step::Have(addresses) => Some(addresses),
            Step::Nothing => None,
            Step::Wait(mut answers, until) => {
                match until {
                    Some(until) => {
                        let _ = tokio::time::timeout_at(until, answers.changed()).await;
                    }
                    None => {
                        let _ = answers.changed().await;
                    }
                }
                guard(&entry.state).addresses.clone()
            }
        }
    }

    /// Forgets all names but `wanted`.
    pub(super) fn retain(&self, wanted: &HashSet<&str>) {
        guard(&self.names).retain(|name, _| wanted.contains(name.as_str()));
    }

    /// Nobody could be reached at what `name` stands for: the next who asks has it asked anew.
    pub(super) fn distrust(&self, name: &str) {
        let entry = guard(&self.names).get(name).map(Arc::clone);
        if let Some(entry) = entry {
            guard(&entry.state).stale_at = None;
        }
    }

    fn step(self: &Arc<Self>, name: &str, entry: &Arc<Name>) -> Step {
        let now = clock::instant();
        let mut state = guard(&entry.state);
        let is_stale = state.stale_at.is_none_or(|at| now >= at);
        let is_paused = state.asked_at.is_some_and(|at| now < at + PAUSE);
        // Taken before the question, so that no answer can come unseen.
        let answers = entry.answers.subscribe();
        if is_stale && !is_paused && !state.is_asking {
            (state.is_asking, state.asked_at) = (true, Some(now));
            let asking = Asking { entry: Arc::clone(entry) };
            let answer = (self.lookup)(name);
            let name = name.to_owned();
            tokio::spawn(async move { asking.learn(&name, answer.await) });
        }
        // Connections that stayed warm may have asked for no address in a long time.
        let is_old = state.stale_at.is_some_and(|at| now >= at + FRESH);
        let until = state.asked_at.map_or(now, |at| at + PATIENCE);
        match &state.addresses {
            Some(_) if is_old && state.is_asking && now < until => Step::Wait(answers, Some(until)),
            Some(addresses) => Step::Have(Arc::clone(addresses)),
            None if state.is_asking => Step::Wait(answers, None),
            None => Step::Nothing,
        }
    }
}

/// A question under way. Dropped in the middle, by a runtime that ends say, it is as if never asked.
struct Asking {
    entry: Arc<Name>,
}

impl Asking {
    fn learn(self, name: &str, answer: io::Result<Vec<IpAddr>>) {
        let mut state = guard(&self.entry.state);
        state.stale_at = state.addresses.as_ref().map(|_| clock::instant() + RETRY);
        match answer {
            Ok(addresses) if !addresses.is_empty() => {
                let spread = 1.0 - SPREAD + 2.0 * SPREAD * fastrand::f64();
                state.stale_at = Some(clock::instant() + FRESH.mul_f64(spread));
                let addresses: Arc<[IpAddr]> = addresses.into_iter().take(ADDRESSES_MAX).collect();
                if state.addresses.as_ref() != Some(&addresses) {
                    tracing::debug!(name, count = addresses.len(), "a name has other addresses");
                }
                state.addresses = Some(addresses);
            }
            Ok(_) => tracing::warn!(name, "a name has no address; the last known ones stay"),
            Err(error) => {
                tracing::warn!(name, %error, "a name cannot be resolved; the last known ones stay");
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        guard(&self.entry.state).is_asking = false;
        self.entry.answers.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Default for Name {
    fn default() -> Self {
        Self { state: Mutex::default(), answers: watch::Sender::new(0) }
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
