//! What happens to a request: admission, choice, attempt (and another), relay, settle.
//!
//! The functions read top to bottom as a request goes: [`Gate::serve`] admits it,
//! `Gate::dispatch` finds an endpoint and tries others while nothing was sent to the client, and the
//! answer's body settles the attempt at its last byte.

pub mod admission;
mod attempt;
mod log;
mod relay;
pub(crate) mod sse;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::time::Instant;

use self::admission::{Call, Route};
use self::attempt::{Answer, FailureKind, Rest};
use self::log::Line;
use self::relay::{Interrupted, Patience, Relay};
use crate::clock;
use crate::config::{FailClosed, Retry};
use crate::error::ApiError;
use crate::fleet::{Asker, Chosen, Endpoint, Fleet, Pool, Tried, Unavailable};
use crate::metrics::Meters;
use crate::upstream::Upstream;

/// How many attempts a request gets when all endpoints are presumed dead.
const DEGRADED_ATTEMPTS: u32 = 2;
/// Before the same endpoint is asked again it gets a pause of at most this, by chance, so that those
/// who failed together do not come back together.
const AGAIN_PAUSE_MAX: Duration = Duration::from_millis(100);
/// The headers in which the official clients say how long they wait, in Python and in JavaScript.
const CLIENT_TIMEOUTS: [&str; 2] = ["x-stainless-read-timeout", "x-stainless-timeout"];
/// Nobody waits for less.
const CLIENT_TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Longest name of a tenant; a longer one is nobody's.
const TENANT_BYTES_MAX: usize = 128;
/// Longest request id that is taken from a caller.
const REQUEST_ID_MAX: usize = 128;

/// What every request needs to know; shared by all workers.
pub struct Gate {
    /// The pools and endpoints.
    pub fleet: Arc<Fleet>,
    /// What is counted.
    pub meters: Arc<Meters>,
    /// What a request must satisfy.
    pub fail_closed: FailClosed,
    /// How often it is tried.
    pub retry: Retry,
    /// Longest body, in bytes.
    pub max_body_bytes: usize,
    /// Longest pause within a body.
    pub body_idle: Duration,
    /// This node's name, for the answer's header.
    pub node: HeaderValue,
}

/// The body of an answer.
pub enum Body {
    /// Whole.
    Full(Option<Bytes>),
    /// Passed on as it comes.
    Relay(Box<Relay>),
}

/// How a request went, for the answer's headers.
struct Served {
    answer: Answer,
    pool: Arc<Pool>,
    endpoint: Arc<Endpoint>,
    is_degraded: bool,
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
    /// Answers one request.
    ///
    /// # Errors
    /// Never: a failure is an answer too. A body that breaks off tells the connection by itself.
    ///
    /// # Cancel safety
    /// Dropping the future is how a client leaves: it cancels the attempt, which settles as neutral.
    pub async fn serve(
        &self,
        upstream: &Upstream,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let started = clock::instant();
        let (head, body) = request.into_parts();
        let id = request_id(&head.headers);
        let mut line = Line::new(&id, &head.headers);
        let admitted =
            admission::admit(&self.fail_closed, &head.method, head.uri.path(), &head.headers);
        let route = match admitted {
            Ok(route) => route,
            Err(error) => return Ok(self.refuse(error, &id, line, None)),
        };
        if route == Route::Models {
            line.close(200);
            return Ok(self.stamp(self.models(), &id));
        }
        let read =
            admission::read_body(body, &head.headers, self.max_body_bytes, self.body_idle).await;
        let body = match read {
            Ok(body) => body,
            Err(error) => {
                let error = error.unwrap_or_else(|| ApiError::invalid_request("No body."));
                return Ok(self.refuse(error, &id, line, None));
            }
        };
        let found = admission::understand(&self.fail_closed, route, body).and_then(|call| {
            let pool = self.fleet.pool(&call.model).ok_or_else(ApiError::model_not_found)?;
            Ok((call, Arc::clone(pool)))
        });
        let (call, pool) = match found {
            Ok(found) => found,
            Err(error) => return Ok(self.refuse(error, &id, line, None)),
        };
        line.model.clone_from(&pool.name);
        let deadline = started + pool.timeouts.total;
        let caller = (&id, &head.headers);
        // The client may have taken its time to say what it wants, and waits from then on. A limit
        // beyond the pool's own, be it beyond the reach of any clock, changes nothing.
        let limit = client_timeout(&head.headers);
        let own = limit.and_then(|limit| clock::instant().checked_add(limit));
        let own = own.filter(|own| *own < deadline);
        let served = self.dispatch(upstream, &pool, &call, caller, deadline, &mut line);
        // The client's own limit says nothing about the endpoint: dropped, the attempt is neutral.
        let served = match own {
            None => served.await,
            Some(own) => tokio::time::timeout_at(own, served)
                .await
                .unwrap_or_else(|_| Err(ApiError::upstream_timeout())),
        };
        match served {
            Ok(served) => Ok(self.answer(served, &id, started, deadline, line)),
            Err(error) => Ok(self.refuse(error, &id, line, Some(&pool))),
        }
    }

    /// Tries endpoints of the pool until one answers or nothing is left to try.
    async fn dispatch(
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
        let asker = Asker { prompt_tokens: call.prompt_tokens, header: &header };
        let mut last = None;
        let mut most = self.retry.max_attempts;
        while line.attempts < most {
            let chosen = match choose(pool, asker, &mut course).await {
                Ok(chosen) => chosen,
                Err(Unavailable::Exhausted) => break,
                Err(Unavailable::AllOut { returns_in }) => {
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

    /// Turns what was found into the answer.
    fn answer(
        &self,
        served: Served,
        id: &HeaderValue,
        started: Instant,
        deadline: Instant,
        mut line: Line,
    ) -> Response<Body> {
        let Served { answer, pool, endpoint, is_degraded } = served;
        let attempts = line.attempts;
        line.upstream_status = answer.status.as_u16();
        line.first_token = Some(started.elapsed());
        pool.meters.first_token.record(started.elapsed().as_secs_f64());
        self.meters.answered(&pool.meters, answer.status.as_u16());
        let status = answer.status.as_u16();
        let patience = Patience {
            idle: pool.timeouts.idle,
            deadline,
            slow_at: answer.slow_at,
            pace_min: endpoint.config.rule.slow.min_tokens_per_second,
        };
        let duration = pool.meters.duration.clone();
        let on_end: relay::OnEnd = Box::new(move |end| {
            duration.record(started.elapsed().as_secs_f64());
            line.end(status, end);
        });
        let body = match answer.rest {
            Rest::Nothing => {
                on_end(relay::End::Complete);
                Body::Full(answer.held.into_iter().next())
            }
            Rest::Events(rest, guard) => {
                let relay = Relay::events(answer.held, rest, guard, patience, on_end);
                Body::Relay(Box::new(relay))
            }
            Rest::Bytes(rest, guard) => {
                let relay = Relay::bytes(answer.held, rest, guard, patience, on_end);
                Body::Relay(Box::new(relay))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        let headers = response.headers_mut();
        if let Ok(name) = HeaderValue::from_str(endpoint.key.as_str()) {
            headers.insert(HeaderName::from_static("x-quorumgate-endpoint"), name);
        }
        headers.insert(HeaderName::from_static("x-quorumgate-attempts"), attempts.into());
        if is_degraded {
            let all_open = HeaderValue::from_static("all-open");
            headers.insert(HeaderName::from_static("x-quorumgate-degraded"), all_open);
        }
        self.stamp(response, id)
    }

    /// Turns a refusal or a failure into the answer.
    fn refuse(
        &self,
        error: ApiError,
        id: &HeaderValue,
        mut line: Line,
        pool: Option<&Pool>,
    ) -> Response<Body> {
        match pool {
            Some(pool) => self.meters.answered(&pool.meters, error.status.as_u16()),
            None => {
                let labels = [("reason", error.code)];
                self.meters.counter("admission_rejects_total", &labels).increment(1);
            }
        }
        line.blocked_reason = error.code;
        line.close(error.status.as_u16());
        let mut response = Response::new(Body::Full(Some(error.body())));
        *response.status_mut() = error.status;
        let headers = response.headers_mut();
        for (name, value) in error.headers() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A body that was refused half-way is not read to its end: the connection goes with it.
        if error.status == StatusCode::PAYLOAD_TOO_LARGE
            || error.status == StatusCode::REQUEST_TIMEOUT
        {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.stamp(response, id)
    }

    /// The configured models, in OpenAI's form.
    fn models(&self) -> Response<Body> {
        let names = self
            .fleet
            .pools()
            .iter()
            .flat_map(|pool| std::iter::once(&pool.name).chain(&pool.aliases));
        let data: Vec<_> = names
            .map(|name| {
                serde_json::json!({
                    "id": name, "object": "model", "created": 0, "owned_by": "quorumgate",
                })
            })
            .collect();
        let body = serde_json::json!({ "object": "list", "data": data }).to_string();
        let mut response = Response::new(Body::Full(Some(Bytes::from(body))));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    /// Adds what every answer carries.
    fn stamp(&self, mut response: Response<Body>, id: &HeaderValue) -> Response<Body> {
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static("x-request-id"), id.clone());
        headers.insert(HeaderName::from_static("x-quorumgate-node"), self.node.clone());
        response
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

/// How long the client waits for the first content, if it says so as the official clients do: in
/// seconds. From its zero or from nonsense nothing follows.
fn client_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = CLIENT_TIMEOUTS.into_iter().find_map(seconds)?;
    Duration::try_from_secs_f64(seconds).ok().filter(|limit| *limit >= CLIENT_TIMEOUT_MIN)
}

/// The tenant that a header names: plain text of a sane length, or nobody.
fn named<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get(name)?.to_str().ok()?;
    (1..=TENANT_BYTES_MAX).contains(&value.len()).then_some(value)
}

/// The caller's request id if it is safe, else one of our own.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_safe = |value: &&HeaderValue| {
        let safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
        (1..=REQUEST_ID_MAX).contains(&value.len()) && value.as_bytes().iter().all(safe)
    };
    match headers.get("x-request-id").filter(is_safe) {
        Some(value) => value.clone(),
        None => {
            let own = format!("req-{:016x}{:08x}", fastrand::u64(..), fastrand::u32(..));
            HeaderValue::from_str(&own).unwrap_or_else(|_| HeaderValue::from_static("req-0"))
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Relay(relay) => Pin::new(relay.as_mut()).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Relay(relay) => relay.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Relay(relay) => relay.size_hint(),
        }
    }
}
