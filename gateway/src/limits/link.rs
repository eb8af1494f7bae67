//! The way from a request to the teller, and how far the ledger is to be relied on.
//!
//! Requests run on threads of their own and must not speak to Redis themselves: one that is dropped
//! half-way would leave a place taken that nobody uses. So they hand what they want to one task, wait
//! for a little while, and whoever is gone by then is not counted.
//!
//! Invariants: no request waits for longer than [`ASK_MAX`], however often it asks, and none at all
//! while the ledger is away or slow; both queues are bounded, and what finds them full is decided without
//! the ledger.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use metrics::Counter;
use tokio::sync::{mpsc, oneshot};

use super::{Allowance, Charge, Full};
use crate::clock;
use crate::metrics::Meters;

/// A request that the ledger has to be asked about waits for no longer than this, all its limits together.
pub const ASK_MAX: Duration = Duration::from_millis(25);
/// Most requests that have asked and that the teller has not seen yet.
const ASKS_MAX: usize = 256;
/// Most subjects that something is kept of.
pub(super) const SUBJECTS_MAX: usize = 10_000;

/// How far the ledger is to be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Standing {
    /// There is none, or it is away: each node holds its share.
    Away,
    /// It is there, but nobody can wait for it.
    Slow,
    /// It is there.
    Quick,
}

/// For how long one request will yet wait for the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(Duration);

impl Default for Patience {
    /// That of a request that has not waited: [`ASK_MAX`].
    fn default() -> Self {
        Self(ASK_MAX)
    }
}

impl Patience {
    /// Whether there is any left.
    pub fn is_left(self) -> bool {
        !self.0.is_zero()
    }
}

/// One request that waits to be admitted.
pub(super) struct Demand {
    pub(super) allowance: Arc<Allowance>,
    pub(super) tokens: u64,
    pub(super) reply: oneshot::Sender<Result<Charge, Full>>,
}

/// What comes to the teller.
pub(super) struct Intake {
    pub(super) demands: mpsc::Receiver<Demand>,
    /// Subjects that something is to be said of.
    pub(super) told: mpsc::Receiver<Arc<Allowance>>,
}

/// What is counted.
struct Counts {
    granted: Counter,
    refused: Counter,
    late: Counter,
    lost: Counter,
}

/// The way to the teller.
pub struct Link {
    standing: AtomicU8,
    demands: mpsc::Sender<Demand>,
    told: mpsc::Sender<Arc<Allowance>>,
    counts: Counts,
}

impl fmt::Debug for Link {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Link").field("standing", &self.standing()).finish_non_exhaustive()
    }
}

impl Link {
    /// Both ends of a way; the ledger is away at first.
    pub(super) fn new(meters: &Meters) -> (Arc<Self>, Intake) {
        let (demands, demanded) = mpsc::channel(ASKS_MAX);
        let (told, telling) = mpsc::channel(SUBJECTS_MAX);
        let asks = |result| meters.counter("limit_asks_total", &[("result", result)]);
        let counts = Counts {
            granted: asks("granted"),
            refused: asks("refused"),
            late: asks("late"),
            lost: meters.counter("limit_corrections_lost_total", &[]),
        };
        let standing = AtomicU8::new(Standing::Away as u8);
        let link = Self { standing, demands, told, counts };
        (Arc::new(link), Intake { demands: demanded, told: telling })
    }

    pub(super) fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Relaxed) {
            one if one == Standing::Quick as u8 => Standing::Quick,
            one if one == Standing::Slow as u8 => Standing::Slow,
            _ => Standing::Away,
        }
    }

    pub(super) fn stand(&self, standing: Standing) {
        self.standing.store(standing as u8, Ordering::Relaxed);
    }

    /// Has the teller look at a subject. Returns whether there was place for it.
    pub(super) fn tell(&self, allowance: &Arc<Allowance>) -> bool {
        self.told.try_send(Arc::clone(allowance)).is_ok()
    }

    /// Counts corrections that the ledger will not hear of.
    pub(super) fn lose(&self, count: usize) {
        self.counts.lost.increment(count as u64);
    }

    /// Asks for the place of a request, which loses as much patience as that takes; `None`: there was no
    /// answer in time.
    pub(super) async fn ask(
        &self,
        allowance: &Arc<Allowance>,
        tokens: u64,
        patience: &mut Patience,
    ) -> Option<Result<Charge, Full>> {
        if self.standing() != Standing::Quick || !patience.is_left() {
            return None;
        }
        let (began, whole) = (clock::instant(), patience.0);
        let (reply, told) = oneshot::channel();
        let demand = Demand { allowance: Arc::clone(allowance), tokens, reply };
        let sent = self.demands.try_send(demand).is_ok();
        let told = match sent {
            true => tokio::time::timeout_at(began + whole, told).await,
            false => return self.late(),
        };
        patience.0 = match &told {
            Ok(_) => whole.saturating_sub(began.elapsed()),
            Err(_) => Duration::ZERO,
        };
        match told {
            Ok(Ok(told)) => {
                let is_granted = told.is_ok();
                let count = if is_granted { &self.counts.granted } else { &self.counts.refused };
                count.increment(1);
                Some(told)
            }
            // The teller has dropped it, and knows why.
            Ok(Err(_)) => self.late(),
            // Whoever had little patience left cannot tell.
            Err(_) if whole < ASK_MAX => self.late(),
            Err(_) => {
                let (quick, slow) = (Standing::Quick as u8, Standing::Slow as u8);
                let order = Ordering::Relaxed;
                let _ = self.standing.compare_exchange(quick, slow, order, order);
                self.late()
            }
        }
    }

    fn late<T>(&self) -> Option<T> {
        self.counts.late.increment(1);
        None
    }
}

/// Has `share` rely on a ledger that is there and that nobody looks after.
#[cfg(test)]
pub(crate) fn rely_on_one(share: &super::Share) {
    let (link, _) = Link::new(&Meters::new());
    share.join(&link);
    link.stand(Standing::Quick);
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Share, Whom};
    use super::*;
    use crate::config::Limits;

    #[tokio::test(start_paused = true)]
    async fn however_often_a_request_asks_it_waits_for_no_longer_than_that() {
        let (link, mut intake) = Link::new(&Meters::new());
        link.stand(Standing::Quick);
        let limits = Limits { rpm: Some(1), ..Limits::default() };
        let whom = Whom::new(Kind::Model, "m");
        let allowance = Allowance::new(&limits, &Arc::new(Share::default()), whom).unwrap();
        let answers = async {
            let mut unanswered = Vec::new();
            while let Some(demand) = intake.demands.recv().await {
                if unanswered.is_empty() {
                    tokio::time::sleep(ASK_MAX / 2).await;
                    demand.reply.send(demand.allowance.take(Duration::ZERO, 1)).unwrap();
                    unanswered.push(None);
                } else {
                    unanswered.push(Some(demand));
                }
            }
        };
        let asks = async {
            let (began, mut patience) = (clock::instant(), Patience::default());
            assert!(link.ask(&allowance, 1, &mut patience).await.unwrap().is_ok());
            for _ in 0..4 {
                assert!(link.ask(&allowance, 1, &mut patience).await.is_none());
                assert!(!patience.is_left());
            }
            // The runtime's timers tick by the millisecond.
            assert!(began.elapsed() <= ASK_MAX + 2 * Duration::from_millis(1));
            assert_eq!(link.standing(), Standing::Quick, "half of it is no measure");
            assert!(link.ask(&allowance, 1, &mut Patience::default()).await.is_none());
            assert_eq!(link.standing(), Standing::Slow);
        };
        tokio::select! {
            () = answers => panic!("the way is open"),
            () = asks => {}
        }
    }
}
