//! The heartbeat of one connection: who is to be woken, and what has been read.
//!
//! A connection and the body that comes over it are two futures, polled by the same task one after the
//! other. Left to themselves they wake that task for each other's sake, so that each piece costs two
//! turns of it. A pulse stands between: a wake-up that comes while the two are being polled only says
//! that they are to be polled once more, at once; any other goes to the task.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Shared by a connection, its socket and whoever polls it.
pub(super) struct Pulse {
    /// Who polls. A mutex, because a waker is more than a word; never contended, since a worker is one
    /// thread, and held for a comparison only.
    parent: Mutex<Waker>,
    is_polling: AtomicBool,
    is_woken: AtomicBool,
    /// How often bytes came. A count and not a flag: of requests that share a connection each remembers
    /// where it began, and none makes another forget what was heard.
    reads: AtomicU64,
    /// Whether the socket is to be looked at even if nobody said that it is ready.
    is_to_look: AtomicBool,
    /// Answers with a status below 200 since the last request began.
    informational: AtomicU32,
}

impl Pulse {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            parent: Mutex::new(Waker::noop().clone()),
            is_polling: AtomicBool::new(false),
            is_woken: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            is_to_look: AtomicBool::new(false),
            informational: AtomicU32::new(0),
        })
    }

    /// From here on `waker` is woken.
    pub(super) fn attach(&self, waker: &Waker) {
        let mut parent = self.parent.lock().unwrap_or_else(PoisonError::into_inner);
        if !parent.will_wake(waker) {
            parent.clone_from(waker);
        }
    }

    /// A turn of polling begins.
    pub(super) fn begin(&self) {
        self.is_woken.store(false, Ordering::SeqCst);
        self.is_polling.store(true, Ordering::SeqCst);
    }

    /// The turn is over. Returns whether another is due. A wake-up from another thread that comes just
    /// here is seen by this or goes to the task: each side writes first and reads then.
    pub(super) fn end(&self) -> bool {
        self.is_polling.store(false, Ordering::SeqCst);
        self.is_woken.load(Ordering::SeqCst)
    }

    /// A request begins. Returns how often bytes came before.
    pub(super) fn expect(&self) -> u64 {
        // From here on bytes are welcome.
        self.is_to_look.store(false, Ordering::Relaxed);
        self.informational.store(0, Ordering::Relaxed);
        self.reads()
    }

    /// Bytes came.
    pub(super) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// How often bytes came.
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Counts an answer with a status below 200.
    pub(super) fn note_informational(&self) {
        self.informational.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were since the last request began.
    pub(super) fn informational(&self) -> u32 {
        self.informational.load(Ordering::Relaxed)
    }

    /// Has the socket looked at when it is next read.
    pub(super) fn ask_to_look(&self) {
        self.is_to_look.store(true, Ordering::Relaxed);
    }

    /// Whether it is to be looked at, which is asked once.
    pub(super) fn is_to_look(&self) -> bool {
        self.is_to_look.load(Ordering::Relaxed) && self.is_to_look.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Pulse {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            self.parent.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_wake_up_within_a_turn_asks_for_another_turn_and_wakes_nobody() {
        let (pulse, count) = (Pulse::new(), Arc::new(Count::default()));
        let (inner, outer) = (Waker::from(Arc::clone(&pulse)), Waker::from(Arc::clone(&count)));
        pulse.attach(&outer);
        pulse.begin();
        assert!(!pulse.end(), "nothing happened");
        pulse.begin();
        inner.wake_by_ref();
        assert!(pulse.end());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        inner.wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "between two turns the task is woken");
        pulse.begin();
        assert!(!pulse.end(), "what woke the task is not counted twice");
    }
}
