//! Ways to the ledger that lead to the book, late and lossy, some with a fault that is planted.
//!
//! By them the checker is checked: it must let pass what the book itself answers, whatever was lost on
//! the way, and must catch each fault.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorum::ledger::{Answer, Book, Call, Deed};

use crate::history::{Door, Silence};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A step is written whatever the version.
    LostUpdate,
    /// A reader is now and then told what was told to a reader before.
    StaleRead,
}

/// A book behind a network.
#[derive(Clone)]
pub(crate) struct BookDoor {
    book: Arc<Mutex<Book>>,
    told: Arc<Mutex<Option<Answer>>>,
    random: Arc<Mutex<fastrand::Rng>>,
    fault: Fault,
}

impl BookDoor {
    /// An empty book.
    pub(crate) fn new(fault: Fault, seed: u64) -> Self {
        let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { book: Arc::default(), told: Arc::default(), random, fault }
    }

    fn do_it(&self, call: &Call) -> Answer {
        let mut call = call.clone();
        let mut book = self.book.lock().unwrap();
        let endpoint = call.endpoint.clone();
        let mut read = || {
            book.apply(
                Duration::ZERO,
                &Call { deed: Deed::Read, endpoint: endpoint.clone(), ..call.clone() },
            )
        };
        if self.fault == Fault::LostUpdate && matches!(call.deed, Deed::Advance { .. }) {
            call.floor.version = read().entry.floor.version;
        }
        let answer = book.apply(Duration::ZERO, &call);
        drop(book);
        if self.fault == Fault::StaleRead && call.deed == Deed::Read {
            let mut told = self.told.lock().unwrap();
            let is_stale = self.random.lock().unwrap().u32(0..4) == 0;
            return told.replace(answer.clone()).filter(|_| is_stale).unwrap_or(answer);
        }
        answer
    }

    async fn travel(&self) {
        let spent = Duration::from_micros(self.random.lock().unwrap().u64(0..5_000));
        tokio::time::sleep(spent).await;
    }
}

impl Door for BookDoor {
    async fn call(&self, _caller: usize, call: &Call) -> Result<Answer, Silence> {
        let chance = self.random.lock().unwrap().u32(0..20);
        self.travel().await;
        if chance == 0 {
            // Nobody waits any longer; half of what was given up on arrives all the same.
            let (door, call) = (self.clone(), call.clone());
            tokio::spawn(async move {
                door.travel().await;
                if door.random.lock().unwrap().bool() {
                    door.do_it(&call);
                }
            });
            return Err(Silence::Lost);
        }
        let answer = self.do_it(call);
        self.travel().await;
        Ok(answer)
    }
}
