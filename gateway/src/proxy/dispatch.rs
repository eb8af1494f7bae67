//! Where a request goes: endpoint after endpoint, pool after pool, while nothing was sent to the client.
//!
//! The pool that was asked for comes first, then its fallbacks in their order; then the endpoint that
//! failed last once more, if its failure was of a kind that passes; then, where every endpoint of the
//! pool that was asked for is presumed dead, one of those nonetheless.
//!
//! Invariants: one deadline and one number of attempts for all pools; of one request at most two
//! endpoints die (see `quarantine`), and at most two deny it; no endpoint is asked twice while
//! another is left, and none a third time; the breaker is asked again before each attempt; each attempt
//! but the first is charged to the budget of the pool that was asked for.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::admission::Call;
use super::attempt::{self, Answer, Failure, FailureKind};
use super::log::{Line, dropped_status};
use super::quarantine::DEATHS_MAX;
use super::{Gate, named};
use crate::clock;
use crate::config::{FailoverOn, Retry, RetryOn};
use crate::error::ApiError;
use crate::fleet::{Asker, Chosen, Endpoint, Fleet, Obstacle, Pool, Tried, Unavailable};
use crate::fnv;
use crate::limits::Patience;
use crate::upstream::Upstream;

/// How many attempts a request gets when all endpoints are presumed dead.
const DEGRADED_ATTEMPTS: u32 = 2;
/// Before the same endpoint is asked again it gets a pause of at most this, by chance, so that those
/// who failed together do not come back together.
const AGAIN_PAUSE_MAX: Duration = Duration::from_millis(100);
/// The fleet's ledger is asked about no more endpoints for one request; of others this node decides.
const ASKED_OF_MAX: u32 = 4;
/// The header in which the official clients say how often they have asked for the same before.
const CLIENT_RETRIES: &str = "x-stainless-retry-count";

/// How a request went, for the answer's headers.
pub(super) struct Served {
    pub(super) answer: Answer,
    /// The pool that was asked for.
    pub(super) pool: Arc<Pool>,
    /// The pool that has answered instead.
    pub(super) fallback: Option<Arc<Pool>>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) is_degraded: bool,
}

/// Where a request has been, and where it may go.
struct Course<'p> {
    /// The pool that was asked for: place 0.
    asked: &'p Arc<Pool>,
    /// Its fallbacks: the places after it.
    fallbacks: Vec<&'p Arc<Pool>>,
    /// The place from which on something may be left.
    place: usize,
    tried: Tried,
    /// The endpoint whose failure may be over at once, and the place of its pool.
    again: Option<(usize, Arc<Endpoint>)>,
    /// No endpoint is asked a third time.
    has_repeated: bool,
    /// How long it was waited before the next attempt on purpose.
    paused: Duration,
    /// How many endpoints have died of it, as far as one can tell.
    deaths: u32,
    /// Whether the last failure lets another endpoint be asked.
    may_go_on: bool,
    /// When the first endpoint returns of those that could not be asked, and what keeps it.
    soonest: Option<(Duration, Obstacle)>,
    /// The last failure.
    last: Option<ApiError>,
    /// How many times the fleet's ledger was asked about an endpoint's limits.
    asked_of: u32,
    /// For how long it may yet be waited for the ledger.
    patience: Patience,
}

/// Counts a client that leaves while endpoints are tried, if it is dropped before `is_over`.
pub(super) struct Leaving {
    pub(super) gate: Arc<Gate>,
    pub(super) pool: Arc<Pool>,
    pub(super) started: Instant,
    pub(super) is_over: bool,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.is_over {
            self.gate.meters.answered(&self.pool.meters, dropped_status());
            self.pool.meters.duration.record(self.started.elapsed().as_secs_f64());
        }
    }
}

/// The next attempt: at which place of the chain, and what was chosen there.
type Next = (usize, Chosen);

impl Gate {
    /// Tries endpoints of the pool, and of its fallbacks, until one answers or nothing is left to try.
    pub(super) async fn dispatch(
        &self,
        upstream: &Upstream,
        pool: &Arc<Pool>,
        call: &Call,
        caller: (&HeaderValue, &HeaderMap),
        (deadline, patience): (Instant, Patience),
        line: &mut Line,
    ) -> Result<Served, ApiError> {
        let mut course = Course::new(&self.fleet, pool, patience);
        let header = |name: &str| named(caller.1, name);
        let asker = asker(call, &header);
        pool.budget.request(clock::now(), is_repetition(caller.1));
        // One that is held for deadly is asked about once, and its fault has counted already.
        let is_deadly = self.quarantine.holds(clock::now(), &call.body);
        let mut most = if is_deadly { 1 } else { self.retry.max_attempts };
        let mut reason = "";
        while line.attempts < most {
            let Some((place, chosen)) = course.next(asker).await else { break };
            let Chosen { admission, is_degraded } = chosen;
            let admission = if is_deadly { admission.repeats() } else { admission };
            // The choice may have taken a pause.
            if line.attempts > 0 && clock::instant() >= deadline {
                admission.withdraw();
                break;
            }
            if line.attempts > 0 && !self.may_spend(pool, reason) {
                admission.withdraw();
                return Err(course.error().final_answer());
            }
            most = if is_degraded { pass_through(pool, most) } else { most };
            let serving = course.pool(place).unwrap_or(pool);
            let endpoint = Arc::clone(admission.endpoint());
            line.begin_attempt(&endpoint, is_deadly);
            course.tried.insert(&endpoint);
            let traced = line.trace.as_ref().map(|trace| trace.onward(caller.1));
            let caller = (caller.0, traced.as_ref().unwrap_or(caller.1));
            let bounds = (deadline, &self.memory);
            let run = attempt::run(upstream, serving, call, caller, bounds, admission);
            let (result, waited) = run.await;
            line.waited += waited + std::mem::take(&mut course.paused);
            match result {
                Ok(answer) => {
                    self.quarantine.forgive(clock::now(), &call.body);
                    let fallback = (place > 0).then(|| Arc::clone(serving));
                    let pool = Arc::clone(pool);
                    return Ok(Served { answer, pool, fallback, endpoint, is_degraded });
                }
                Err(failure) => {
                    reason = failure.kind.reason();
                    line.fail_attempt(&failure, reason);
                    if failure.kind.is_denial() {
                        most = most.min(line.attempts + 1);
                    }
                    course.fail(failure, &self.retry, (place, endpoint));
                    if course.deaths >= DEATHS_MAX {
                        self.quarantine.hold(clock::now(), &call.body);
                        break;
                    }
                    if clock::instant() >= deadline {
                        break;
                    }
                }
            }
        }
        // What was tried and failed everywhere is final; the caller's own retries would multiply.
        let error = course.error();
        let is_final = line.attempts > 0 && error.retry_after.is_none();
        Err(if is_final { error.final_answer() } else { error })
    }

    /// Charges a further attempt after a failure of this kind. Returns whether one was left.
    fn may_spend(&self, pool: &Pool, reason: &str) -> bool {
        let is_left = pool.budget.spend(clock::now(), self.retry.budget, self.retry.budget_floor);
        if is_left {
            self.meters.retries.count(reason);
        } else {
            self.meters.retry_budget_exhausted.increment(1);
        }
        is_left
    }
}

impl<'p> Course<'p> {
    fn new(fleet: &'p Fleet, asked: &'p Arc<Pool>, patience: Patience) -> Self {
        Self {
            asked,
            fallbacks: asked.fallback.iter().filter_map(|name| fleet.pool(name)).collect(),
            place: 0,
            tried: Tried::default(),
            again: None,
            has_repeated: false,
            paused: Duration::ZERO,
            deaths: 0,
            may_go_on: true,
            soonest: None,
            last: None,
            asked_of: 0,
            patience,
        }
    }

    /// The pool at a place.
    fn pool(&self, place: usize) -> Option<&'p Arc<Pool>> {
        match place.checked_sub(1) {
            None => Some(self.asked),
            Some(place) => self.fallbacks.get(place).copied(),
        }
    }

    /// Chooses for the next attempt; `None`: nothing is left.
    async fn next(&mut self, asker: Asker<'_>) -> Option<Next> {
        if self.may_go_on
            && let Some(next) = self.another(asker).await
        {
            return Some(next);
        }
        if let Some(next) = self.once_more(asker).await {
            return Some(next);
        }
        let asked = Some(self.asked).filter(|_| self.may_go_on)?;
        let chosen = asked.choose_degraded(clock::now(), asker, &self.tried).ok()?;
        Some((0, chosen))
    }

    /// An endpoint that was not tried, of the first pool that has one.
    async fn another(&mut self, asker: Asker<'_>) -> Option<Next> {
        while let Some(pool) = self.pool(self.place) {
            match pool.choose_or_ask(clock::now(), asker, &self.tried, self.may_ask()) {
                Ok(chosen) => return Some((self.place, chosen)),
                Err(Unavailable::Unsure { index }) => {
                    // Whoever is refused is known to be full, and passed over.
                    if let Some(chosen) = self.ask(pool, index, asker).await {
                        return Some((self.place, chosen));
                    }
                    continue;
                }
                Err(Unavailable::AllOut { returns_in, obstacle }) => {
                    let new = (returns_in, obstacle);
                    self.soonest = Some(self.soonest.map_or(new, |soonest| soonest.min(new)));
                }
                Err(Unavailable::Exhausted) => {}
            }
            self.place += 1;
        }
        None
    }

    /// Whether the ledger may be asked about an endpoint.
    fn may_ask(&self) -> bool {
        self.asked_of < ASKED_OF_MAX && self.patience.is_left()
    }

    /// Asks the ledger for the place of the request at one endpoint of the pool, and takes that one.
    async fn ask(&mut self, pool: &Pool, index: usize, asker: Asker<'_>) -> Option<Chosen> {
        self.asked_of += 1;
        let endpoint = pool.endpoints.get(index)?;
        let charge = endpoint.ask(asker.tokens, &mut self.patience).await.ok()?;
        pool.choose_granted(clock::now(), asker, endpoint, charge)
    }

    /// The endpoint that has just failed, if its failure may be over.
    async fn once_more(&mut self, asker: Asker<'_>) -> Option<Next> {
        let (place, endpoint) = self.again.take()?;
        let pool = self.pool(place)?;
        if !pool.may_choose_again(clock::now(), asker, &endpoint) {
            return None;
        }
        self.has_repeated = true;
        let began = clock::instant();
        tokio::time::sleep(AGAIN_PAUSE_MAX.mul_f64(fastrand::f64())).await;
        self.paused += began.elapsed();
        let chosen = match pool.choose_again(clock::now(), asker, &endpoint, self.may_ask()) {
            Ok(chosen) => chosen,
            Err(Unavailable::Unsure { index }) => {
                let Chosen { admission, .. } = self.ask(pool, index, asker).await?;
                Chosen { admission: admission.repeats(), is_degraded: false }
            }
            Err(Unavailable::AllOut { .. } | Unavailable::Exhausted) => return None,
        };
        Some((place, chosen))
    }

    /// Notes a failure there. Of several endpoints at their limits the nearest return is told.
    fn fail(&mut self, failure: Failure, retry: &Retry, there: (usize, Arc<Endpoint>)) {
        self.may_go_on = retry.failover_on.lets(failure.kind);
        let may_repeat = !self.has_repeated && retry.on.lets(failure.kind);
        self.again = may_repeat.then_some(there);
        // The one that is asked once more has died once.
        if !self.has_repeated && failure.kind.is_death() {
            self.deaths += 1;
        }
        let mut error = failure.error;
        let before = self.last.take().filter(is_limit).and_then(|error| error.retry_after);
        if is_limit(&error) {
            error.retry_after = error.retry_after.into_iter().chain(before).min();
        }
        self.last = Some(error);
    }

    /// What to tell the client when nothing is left.
    fn error(self) -> ApiError {
        let Self { last, soonest, .. } = self;
        match (last, soonest) {
            (Some(mut error), Some((returns_in, _))) if is_limit(&error) => {
                // To a second: what has passed since the last answer makes no return a nearer one.
                let seconds = |period: Duration| period.as_millis().div_ceil(1_000);
                let told = error.retry_after.unwrap_or(Duration::MAX);
                if seconds(returns_in) < seconds(told) {
                    error.retry_after = Some(returns_in);
                }
                error
            }
            (Some(error), _) => error,
            (None, Some((returns_in, Obstacle::Limited))) => ApiError::all_limited(returns_in),
            (None, Some((returns_in, Obstacle::Full))) => ApiError::all_full(returns_in),
            (None, Some((returns_in, Obstacle::Open))) => ApiError::circuit_open(returns_in),
            (None, None) => ApiError::upstream_unavailable(),
        }
    }
}

/// Counts a request that goes to what is presumed dead, and says so once. Returns how many of its at
/// most `most` attempts are left to it.
fn pass_through(pool: &Pool, most: u32) -> u32 {
    pool.meters.passed_through.increment(1);
    if pool.note_degraded() {
        tracing::warn!(model = %pool.name, "every endpoint is presumed dead; passing through");
    }
    most.min(DEGRADED_ATTEMPTS)
}

/// Who asks, and for what.
fn asker<'a>(call: &Call, header: &'a (dyn Fn(&str) -> Option<&'a str> + Sync)) -> Asker<'a> {
    Asker {
        prompt_tokens: call.prompt_tokens,
        tokens: call.prompt_tokens.saturating_add(call.max_tokens.unwrap_or(0)),
        // Requests without a prompt have nothing in common.
        prefix: if call.prefix == fnv::EMPTY { 0 } else { call.prefix },
        header,
    }
}

fn is_limit(error: &ApiError) -> bool {
    error.status == StatusCode::TOO_MANY_REQUESTS
}

/// Whether the client has asked for the same before and got no answer.
fn is_repetition(headers: &HeaderMap) -> bool {
    let count = headers.get(CLIENT_RETRIES).and_then(|value| value.to_str().ok());
    count.and_then(|count| count.trim().parse::<u32>().ok()).is_some_and(|count| count > 0)
}

impl FailureKind {
    /// Whether the endpoint may have died of the request: it broke off. One that answers 500 lives, and
    /// another may well do better.
    fn is_death(self) -> bool {
        match self {
            Self::Cut => true,
            Self::Refused
            | Self::Own
            | Self::Timeout
            | Self::Malformed
            | Self::Auth(_)
            | Self::Limited(_)
            | Self::Status(_)
            | Self::Neutral => false,
        }
    }

    /// Whether the endpoint may deny what was asked and not who asks: as others may, then.
    fn is_denial(self) -> bool {
        matches!(self, Self::Auth(code) if code != StatusCode::UNAUTHORIZED.as_u16())
    }

    /// Its name among the reasons of further attempts; a closed list.
    fn reason(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Own => "own",
            Self::Cut => "cut",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::Auth(_) => "auth",
            Self::Limited(_) => "limited",
            Self::Status(_) => "status",
            Self::Neutral => "neutral",
        }
    }
}

impl RetryOn {
    /// Whether the same endpoint may be asked again after such a failure.
    fn lets(&self, kind: FailureKind) -> bool {
        match kind {
            FailureKind::Refused => self.refused,
            FailureKind::Status(code) => self.codes.contains(&code),
            FailureKind::Own
            | FailureKind::Cut
            | FailureKind::Timeout
            | FailureKind::Malformed
            | FailureKind::Auth(_)
            | FailureKind::Limited(_)
            | FailureKind::Neutral => false,
        }
    }
}

impl FailoverOn {
    /// Whether another endpoint may be asked after such a failure.
    fn lets(&self, kind: FailureKind) -> bool {
        match kind {
            FailureKind::Refused => self.refused,
            // Nothing was sent; another may have a connection at rest.
            FailureKind::Own => true,
            FailureKind::Cut => self.cut,
            FailureKind::Timeout => self.timeout,
            FailureKind::Malformed => self.malformed,
            FailureKind::Auth(_) => self.auth,
            FailureKind::Limited(code) | FailureKind::Status(code) => {
                self.codes.as_ref().is_none_or(|codes| codes.contains(&code))
            }
            FailureKind::Neutral => false,
        }
    }
}
