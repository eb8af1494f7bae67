//! Answers that take their time, on a thread of their own.
//!
//! The list of ten thousand endpoints and the page of metrics take tens of milliseconds to write. On one
//! of the few threads that the rest of the control plane shares, rounds of gossip would wait for them.
//!
//! Invariants: one at a time, so that however many ask, one core at most goes into it; who waits is
//! bounded by the connections of the listener. Whoever leaves while it waits costs nothing more.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Whose turn it is.
pub(super) struct Aside(Arc<Semaphore>);

impl Default for Aside {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Aside {
    /// What `deed` returns, once those before it are done; `None` if it panicked.
    pub(super) async fn take<T: Send + 'static>(
        &self,
        deed: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.0).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            // It is over when the deed is, even if nobody waits for it any more.
            let _turn = turn;
            deed()
        });
        done.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn what_takes_its_time_holds_nobody_up() {
        let (aside, (done, wait)) = (Aside::default(), mpsc::channel());
        let slow = aside.take(move || wait.recv().unwrap());
        // On the one thread of this runtime it would wait for ever.
        let other = async { done.send(7).unwrap() };
        assert_eq!(tokio::join!(slow, other).0, Some(7));
    }

    #[tokio::test]
    async fn one_is_done_at_a_time() {
        let aside = Aside::default();
        let at_once = || {
            let turns = Arc::clone(&aside.0);
            aside.take(move || turns.available_permits())
        };
        assert_eq!(tokio::join!(at_once(), at_once(), at_once()), (Some(0), Some(0), Some(0)));
        assert_eq!(aside.0.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_deed_that_panics_gives_its_turn_back() {
        let aside = Aside::default();
        assert_eq!(aside.take(|| assert!(std::hint::black_box(false))).await, None);
        assert_eq!(aside.take(|| 1).await, Some(1));
    }
}
