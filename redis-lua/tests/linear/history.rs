//! Histories: several callers at once on one endpoint, with what each asked and was told.
//!
//! When is told by one counter: a call that was answered before another was sent has the smaller
//! number, whichever task or thread they belong to. No clock is needed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorum::EndpointKey;
use quorum::ledger::{Answer, Call};
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::checker::{CALLS_MAX, Event, Verdict, judge};
use crate::ledger::{Ledger, still};

/// Callers on one endpoint.
pub(crate) const CALLERS: usize = 4;
/// Calls of each.
const CALLS: usize = 14;
/// Histories whose order is not found by then are not decided; the hardest so far took a hundredth.
const STEPS_MAX: u32 = 500_000;
/// The longest pause of a caller between two calls.
const PAUSE: Duration = Duration::from_millis(3);

const _: () = assert!(CALLERS * CALLS <= CALLS_MAX);

/// Why a caller was told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The call was not sent, for certain.
    Unsent,
    /// It may have been done, may still be done, or never.
    Lost,
}

/// How calls are made: by the ledger of the crate, by the book, or by either with a planted fault.
pub(crate) trait Door: Clone + Send + Sync + 'static {
    /// Makes one call for the caller of this number.
    fn call(
        &self,
        caller: usize,
        call: &Call,
    ) -> impl Future<Output = Result<Answer, Silence>> + Send;
}

/// What one history came to.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Its calls.
    pub(crate) events: Vec<Event<Call, Answer>>,
    /// Calls that were not sent, since the client said so.
    pub(crate) unsent: usize,
}

impl History {
    /// Whether it can be told as one call after the other.
    pub(crate) fn verdict(&self) -> Verdict {
        judge(&Ledger::new(), &self.events, STEPS_MAX)
    }

    /// Calls whose answer was lost.
    pub(crate) fn lost(&self) -> usize {
        self.events.iter().filter(|event| event.told.is_none()).count()
    }

    /// How often each outcome was told.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, usize> {
        let mut outcomes = BTreeMap::new();
        for (_, answer) in self.events.iter().filter_map(|event| event.told.as_ref()) {
            *outcomes.entry(format!("{:?}", answer.outcome)).or_default() += 1;
        }
        outcomes
    }

    /// The calls in the order of their sending, for a person.
    pub(crate) fn story(&self) -> String {
        let mut events: Vec<_> = self.events.iter().enumerate().collect();
        events.sort_by_key(|(_, event)| event.sent);
        let line = |(at, event): &(usize, &Event<Call, Answer>)| {
            let (sent, call) = (event.sent, &event.call);
            let told = event.told.as_ref().map(|(at, answer)| format!("by {at}: {answer:?}"));
            let told = told.unwrap_or_else(|| "no answer".to_owned());
            format!("#{at} at {sent} {}: {:?}\n    {told}", call.by, call.deed)
        };
        events.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Lets callers loose on an endpoint.
pub(crate) async fn record<D: Door>(door: &D, endpoint: &EndpointKey, seed: u64) -> History {
    let counter = Arc::new(AtomicU64::new(0));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut tasks = JoinSet::new();
    for number in 0..CALLERS {
        // The last is a second hand of the first node: two that may lead under one number at once.
        let id = format!("gw-{}", number % (CALLERS - 1));
        let caller = Caller::new(endpoint, &id, (CALLERS - 1) as u32, random.u64(..));
        tasks.spawn(run(door.clone(), number, caller, Arc::clone(&counter), random.fork()));
    }
    let mut history = History::default();
    for part in tasks.join_all().await {
        history.events.extend(part.events);
        history.unsent += part.unsent;
    }
    history
}

async fn run<D: Door>(
    door: D,
    number: usize,
    mut caller: Caller,
    counter: Arc<AtomicU64>,
    mut random: fastrand::Rng,
) -> History {
    let mut history = History::default();
    for _ in 0..CALLS {
        if random.bool() {
            tokio::time::sleep(PAUSE.mul_f64(random.f64())).await;
        }
        let call = caller.next();
        let sent = counter.fetch_add(1, Ordering::SeqCst);
        let told = door.call(number, &call).await;
        let told_at = counter.fetch_add(1, Ordering::SeqCst);
        let told = match told {
            Ok(mut answer) => {
                still(&mut answer.entry);
                caller.heard(&answer);
                Some((told_at, answer))
            }
            Err(Silence::Unsent) => {
                history.unsent += 1;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(Silence::Lost) => None,
        };
        history.events.push(Event { call, sent, told });
    }
    history
}
