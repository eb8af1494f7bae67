//! Where a request goes: endpoint after endpoint, while nothing was sent to the client.
//!
//! Invariants: no endpoint is asked twice while another is left, and none a third time; the breaker is
//! asked again before each attempt.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::admission::Call;
use super::attempt::{self, Answer, FailureKind};
use super::log::Line;
use super::{Gate, named};
use crate::clock;
use crate::config::Retry;
use crate::error::ApiError;
use crate::fleet::{Asker, Chosen, Endpoint, Pool, Tried, Unavailable};
use crate::upstream::Upstream;

/// How many attempts a request gets when all endpoints are presumed dead.
const DEGRADED_ATTEMPTS: u32 = 2;
/// Before the same endpoint is asked again it gets a pause of at most this, by chance, so that those
/// who failed together do not come back together.
const AGAIN_PAUSE_MAX: Duration = Duration::from_millis(100);
/// How a request went, for the answer's headers.
pub(super) struct Served {
    pub(super) answer: Answer,
    pub(super) pool: Arc<Pool>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) is_degraded: bool,
}

/// Where a request has been.
#[derive(Default)]
struct Course {
    tried: Tried,
    /// An endpoint whose failure may be over at once.
    again: Option<Arc<Endpoint>>,
    /// No endpoint is asked a third time.
    has_repeated: bool,
}

impl Gate {
    /// Tries endpoints of the pool until one answers or nothing is left to try.
    pub(super) async fn dispatch(
        &self,
        upstream: &Upstream,
        pool: &Arc<Pool>,
        call: &Call,
        caller: (&HeaderValue, &HeaderMap),
        deadline: Instant,
        line: &mut Line,
    ) -> Result<Served, ApiError> {
        let mut course = Course::default();
        let header = |name: &str| named(caller.1, name);
        let asker =
            Asker { prompt_tokens: call.prompt_tokens, prefix: call.prefix, header: &header };
        let mut last = None;
        let mut most = self.retry.max_attempts;
        while line.attempts < most {
            let chosen = match choose(pool, asker, &mut course).await {
                Ok(chosen) => chosen,
                Err(Unavailable::Exhausted) => break,
                Err(Unavailable::AllOut { returns_in, .. }) => {
                    last.get_or_insert_with(|| ApiError::circuit_open(returns_in));
                    break;
                }
            };
            line.begin_attempt(chosen.admission.endpoint().key.as_str());
            if chosen.is_degraded {
                most = most.min(DEGRADED_ATTEMPTS);
            }
            let endpoint = Arc::clone(chosen.admission.endpoint());
            course.tried.insert(&endpoint);
            let run = attempt::run(upstream, pool, call, caller, deadline, chosen.admission);
            match run.await {
                Ok(answer) => {
                    let (pool, is_degraded) = (Arc::clone(pool), chosen.is_degraded);
                    return Ok(Served { answer, pool, endpoint, is_degraded });
                }
                Err(failure) => {
                    line.fail_attempt(failure.upstream_status, failure.error.status.as_u16());
                    last = Some(failure.error);
                    let may_repeat = !course.has_repeated && self.retry.may_repeat(failure.kind);
                    course.again = may_repeat.then_some(endpoint);
                    if !failure.may_failover || clock::instant() >= deadline {
                        break;
                    }
                }
            }
        }
        // What was tried and failed everywhere is final; the caller's own retries would multiply.
        let error = last.unwrap_or_else(ApiError::upstream_unavailable);
        let is_final = line.attempts > 0 && error.retry_after.is_none();
        Err(if is_final { error.final_answer() } else { error })
    }
}

impl Retry {
    fn may_repeat(&self, kind: FailureKind) -> bool {
        match kind {
            FailureKind::Refused => self.on.refused,
            FailureKind::Status(code) => self.on.codes.contains(&code),
            FailureKind::Final => false,
        }
    }
}

/// Chooses for the next attempt: an endpoint that was not tried, or, where none is left, the last one
/// once more if its failure was of a kind that passes.
async fn choose(pool: &Pool, asker: Asker<'_>, course: &mut Course) -> Result<Chosen, Unavailable> {
    let chosen = pool.choose(clock::now(), asker, &course.tried);
    let Err(Unavailable::Exhausted) = chosen else { return chosen };
    let Some(endpoint) = course.again.take() else { return chosen };
    course.has_repeated = true;
    tokio::time::sleep(AGAIN_PAUSE_MAX.mul_f64(fastrand::f64())).await;
    pool.choose_again(clock::now(), asker, &endpoint)
}
