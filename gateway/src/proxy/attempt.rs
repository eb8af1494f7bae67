//! One attempt at one endpoint, up to the point of no return: the first content for the client.
//!
//! Until then everything is held back, so that any failure, an error event in a stream included, can
//! be tried elsewhere without the client noticing. The attempt is slow at the instant it crosses a
//! slow limit, while it still runs; the evidence is given then and there.

mod failure;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use breaker::{Cause, Outcome, SlowKind};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Response, StatusCode, Version};
use tokio::time::Instant;

pub(super) use self::failure::{Failure, FailureKind, embedded};
use self::failure::{
    broken, faulty, is_retried, limited, malformed, timed_out, told, unauthorised,
};
use super::admission::Call;
use super::route::{Dialect, Route};
use super::sse::{self, Meaning, Plain, Reader};
use super::usage::Usage;
use crate::clock;
use crate::config::StatusClass;
use crate::error::ApiError;
use crate::fleet::{Admission, Pool};
use crate::memory::{Loan, Memory};
use crate::upstream::{self, Arrival, Outgoing, Upstream};

/// What is held of a stream before its first content; more than this is passed on as it is.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// What is held of a plain answer to look at it; a longer one is passed on unseen.
const PLAIN_BYTES_MAX: usize = 1024 * 1024;
/// An answer in one piece that says it is longer is refused as long as another can be found.
const PLAIN_BYTES_STATED_MAX: u64 = super::relay::PLAIN_BYTES_MAX;
/// An endpoint that answers 429 without saying for how long is left alone for this long.
const COOL_DEFAULT: Duration = Duration::from_secs(5);
/// An endpoint that refuses our credential is left alone for this long.
const COOL_CREDENTIAL: Duration = Duration::from_secs(30);

/// An answer past the point of no return.
pub(super) struct Answer {
    /// The upstream's status.
    pub(super) status: StatusCode,
    /// The headers that the caller may see.
    pub(super) headers: HeaderMap,
    /// What was held back.
    pub(super) held: Vec<Bytes>,
    /// What is still to come.
    pub(super) rest: Rest,
    /// Whether it tells itself where it ends; else only the end of its connection does.
    pub(super) is_framed: bool,
    /// When the attempt becomes slow, unless it has said so already.
    pub(super) slow_at: Option<Instant>,
}

/// What is still to come of an answer; the guard is settled at its last byte.
pub(super) enum Rest {
    /// Nothing: the answer is whole, and settled; this is what it took.
    Nothing(Usage),
    /// The remainder of a stream of events.
    Events(Arrival, Admission),
    /// The remainder of a long plain answer in JSON.
    Json(Arrival, Admission),
    /// The remainder of an answer that is passed on unseen.
    Bytes(Arrival, Admission),
}

/// The moments at which something follows for an attempt.
struct Limits<'a> {
    /// `None` once it has passed and the evidence was given; so for the first token.
    slow_total: Option<Instant>,
    slow_first_token: Option<Instant>,
    /// The longest pause within an answer.
    idle: Duration,
    /// By when the whole answer must be there.
    deadline: Instant,
    /// How long the endpoint was waited for.
    waited: Duration,
    /// What holds an answer that is not small.
    memory: &'a Memory,
}

/// What ended a wait.
enum Waited<T> {
    Ready(T),
    TimedOut,
}

/// Sends `call` to the admitted endpoint and waits for its first content. Says, too, how long the
/// endpoint was waited for.
///
/// # Errors
/// [`Failure`], with the admission settled.
pub(super) async fn run(
    upstream: &Upstream,
    pool: &Pool,
    call: &Call,
    caller: (&HeaderValue, &HeaderMap),
    (deadline, memory): (Instant, &Memory),
    admission: Admission,
) -> (Result<Answer, Failure>, Duration) {
    let started = clock::instant();
    let rule = &admission.endpoint().config.rule.slow;
    let mut limits = Limits {
        slow_total: Some(started + rule.total),
        slow_first_token: rule.first_token.map(|limit| started + limit),
        idle: pool.timeouts.idle,
        deadline,
        waited: Duration::ZERO,
        memory,
    };
    let answer = send(upstream, pool, call, caller, (started, &mut limits), admission).await;
    (answer, limits.waited)
}

async fn send(
    upstream: &Upstream,
    pool: &Pool,
    call: &Call,
    caller: (&HeaderValue, &HeaderMap),
    (started, limits): (Instant, &mut Limits<'_>),
    mut admission: Admission,
) -> Result<Answer, Failure> {
    let endpoint = admission.endpoint().clone();
    // The client may have asked by an alias, which is nobody's name but ours.
    let model = endpoint.config.upstream_model.as_ref().unwrap_or(&pool.name);
    let what = Outgoing {
        path: &call.path,
        model,
        content_type: call.content_type.clone(),
        id: caller.0,
        caller: caller.1,
        body: call.body_for(model, pool.include_usage),
    };
    let Some(request) = upstream.request(&endpoint, what) else {
        // Nothing was sent, which says nothing about the endpoint.
        admission.withdraw();
        return Err(Failure::new(FailureKind::Malformed, ApiError::upstream_unavailable()));
    };
    let first_byte = started + pool.timeouts.first_byte;
    let first_token = pool.timeouts.first_token.map_or(first_byte, |limit| started + limit);
    // A stream whose head is not there when its first token is due has no first token either.
    let head_until = if call.is_stream { first_byte.min(first_token) } else { first_byte };
    let sending = upstream.send(&endpoint, request);
    let sent = limits.wait(&mut admission, head_until.min(limits.deadline), sending).await;
    let response = match sent {
        Waited::TimedOut => return Err(timed_out(admission, limits.is_cut())),
        Waited::Ready(Err(error)) => return Err(broken(admission, error)),
        Waited::Ready(Ok(response)) => response,
    };
    if !response.status().is_success() {
        let upstream_status = response.status().as_u16();
        let refused = refused(admission, response, limits).await;
        return refused.map_err(|failure| Failure { upstream_status, ..failure });
    }
    if upstream::is_event_stream(response.headers()) {
        let dialect = call.route.dialect();
        let first_token = first_token.min(limits.deadline);
        stream(limits, admission, response, first_token, dialect).await
    } else if is_bytes(call.route, response.headers()) {
        bytes(limits, admission, response).await
    } else {
        plain(limits, admission, response, call.route.dialect()).await
    }
}

/// Whether an answer is none that can be looked at: speech, a picture, a text, vectors. A page for people is
/// never an answer.
fn is_bytes(route: Route, headers: &HeaderMap) -> bool {
    let may_be = match route {
        Route::Audio | Route::Images | Route::Other | Route::Embeddings | Route::Rerank => true,
        Route::Chat
        | Route::Completions
        | Route::Responses
        | Route::Messages
        | Route::Models
        | Route::Model => false,
    };
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or("application/json").trim();
    may_be && kind != "text/html" && kind != "application/json" && !kind.ends_with("+json")
}

impl Limits<'_> {
    /// Until when the next piece of an answer is waited for.
    fn idle_until(&self) -> Instant {
        (clock::instant() + self.idle).min(self.deadline)
    }

    /// Whether it is the overall limit of the request that ends the attempt.
    fn is_cut(&self) -> bool {
        clock::instant() >= self.deadline
    }

    /// Waits for `future` until `until`, giving slow evidence when its moment passes.
    async fn wait<T>(
        &mut self,
        admission: &mut Admission,
        until: Instant,
        future: impl Future<Output = T>,
    ) -> Waited<T> {
        let began = clock::instant();
        let waited = self.wait_for(admission, until, future).await;
        self.waited += began.elapsed();
        waited
    }

    async fn wait_for<T>(
        &mut self,
        admission: &mut Admission,
        until: Instant,
        future: impl Future<Output = T>,
    ) -> Waited<T> {
        let mut future: Pin<&mut _> = std::pin::pin!(future);
        loop {
            let slow = self.slow_first_token.into_iter().chain(self.slow_total).min();
            let next = slow.map_or(until, |slow| slow.min(until));
            match tokio::time::timeout_at(next, future.as_mut()).await {
                Ok(value) => return Waited::Ready(value),
                // Where both limits are the same, the evidence comes first.
                Err(_) if self.slow_first_token.is_some_and(|limit| limit <= next) => {
                    self.slow_first_token = None;
                    if !clock::is_late(next) {
                        admission.slow(clock::now(), SlowKind::FirstToken);
                    }
                }
                Err(_) if self.slow_total.is_some_and(|limit| limit <= next) => {
                    self.slow_total = None;
                    if !clock::is_late(next) {
                        admission.slow(clock::now(), SlowKind::Total);
                    }
                }
                Err(_) => return Waited::TimedOut,
            }
        }
    }
}

/// Holds a stream until its first content.
async fn stream(
    limits: &mut Limits<'_>,
    mut admission: Admission,
    response: Response<Arrival>,
    first_token: Instant,
    dialect: Dialect,
) -> Result<Answer, Failure> {
    let (head, mut rest) = response.into_parts();
    let mut reader = Reader::default();
    let mut held = Vec::new();
    let mut held_bytes = 0;
    loop {
        let data = match limits.wait(&mut admission, first_token, rest.frame()).await {
            Waited::TimedOut => return Err(timed_out(admission, limits.is_cut())),
            Waited::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
            Waited::Ready(Some(Err(_))) => return Err(malformed(admission, Cause::Cut)),
            Waited::Ready(None) => return Err(malformed(admission, Cause::Cut)),
        };
        let mut decisive = Meaning::Preamble;
        reader.read(&data, |event, _| {
            if decisive == Meaning::Preamble {
                decisive = event.read(dialect).0;
            }
        });
        held_bytes += data.len();
        held.push(data);
        let is_committed = match decisive {
            Meaning::Error(status) => return Err(embedded(admission, status)),
            Meaning::Done => return Err(malformed(admission, Cause::Malformed)),
            Meaning::Content | Meaning::Unreadable | Meaning::Finish | Meaning::Last => true,
            Meaning::Preamble => held_bytes > HELD_BYTES_MAX,
        };
        if is_committed {
            admission.first_token(clock::now());
            // The relay reads what was held once more, so that one place alone knows where events end.
            return Ok(answer(&head, held, Rest::Events(rest, admission), limits.slow_total));
        }
    }
}

/// Holds a plain answer until it can be seen to be one. What there is no memory for is passed on as it
/// comes.
async fn plain(
    limits: &mut Limits<'_>,
    mut admission: Admission,
    response: Response<Arrival>,
    dialect: Dialect,
) -> Result<Answer, Failure> {
    let (head, mut rest) = response.into_parts();
    if rest.size_hint().lower() > PLAIN_BYTES_STATED_MAX {
        return Err(malformed(admission, Cause::Malformed));
    }
    let mut held: Vec<Bytes> = Vec::new();
    let (mut held_bytes, mut loan) = (0, None);
    while held_bytes <= PLAIN_BYTES_MAX {
        let until = limits.idle_until();
        match limits.wait(&mut admission, until, rest.frame()).await {
            Waited::TimedOut => return Err(timed_out(admission, limits.is_cut())),
            Waited::Ready(Some(Err(_))) => return Err(malformed(admission, Cause::Cut)),
            Waited::Ready(None) => return whole(&head, (&held, loan), admission, dialect),
            Waited::Ready(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    held_bytes += data.len();
                    held.push(data);
                    if !limits.memory.cover(&mut loan, held_bytes) {
                        break;
                    }
                }
            }
        }
    }
    // What is passed on unseen stays counted until its last piece has gone.
    if let Some(loan) = loan
        && let Some(last) = held.pop()
    {
        held.push(loan.keep(last));
    }
    Ok(answer(&head, held, Rest::Json(rest, admission), limits.slow_total))
}

/// A plain answer that has come whole.
fn whole(
    head: &Parts,
    (held, loan): (&[Bytes], Option<Loan>),
    mut admission: Admission,
    dialect: Dialect,
) -> Result<Answer, Failure> {
    let body = joined(held);
    let body = loan.map(|loan| loan.keep(body.clone())).unwrap_or(body);
    match sse::plain(&body, dialect) {
        Plain::Good(usage) => {
            if let Some(tokens) = usage.total() {
                admission.used(tokens);
            }
            admission.settle(clock::now(), Outcome::Success);
            Ok(answer(head, vec![body], Rest::Nothing(usage), None))
        }
        Plain::Error(status) => Err(embedded(admission, status)),
        Plain::Malformed => Err(malformed(admission, Cause::Malformed)),
    }
}

/// Waits for the first bytes of an answer that is passed on unseen.
async fn bytes(
    limits: &mut Limits<'_>,
    mut admission: Admission,
    response: Response<Arrival>,
) -> Result<Answer, Failure> {
    let (head, mut rest) = response.into_parts();
    if rest.size_hint().lower() > PLAIN_BYTES_STATED_MAX {
        return Err(malformed(admission, Cause::Malformed));
    }
    loop {
        let until = limits.idle_until();
        match limits.wait(&mut admission, until, rest.frame()).await {
            Waited::TimedOut => return Err(timed_out(admission, limits.is_cut())),
            Waited::Ready(Some(Err(_))) => return Err(malformed(admission, Cause::Cut)),
            Waited::Ready(None) => return Err(malformed(admission, Cause::Malformed)),
            Waited::Ready(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                if !data.is_empty() {
                    let rest = Rest::Bytes(rest, admission);
                    return Ok(answer(&head, vec![data], rest, limits.slow_total));
                }
            }
        }
    }
}

fn answer(head: &Parts, held: Vec<Bytes>, rest: Rest, slow_at: Option<Instant>) -> Answer {
    let headers = upstream::headers_back(&head.headers);
    let framing = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    let is_framed = head.version > Version::HTTP_11
        || framing.iter().any(|name| head.headers.contains_key(name));
    Answer { status: head.status, headers, held, rest, is_framed, slow_at }
}

fn joined(parts: &[Bytes]) -> Bytes {
    match parts {
        [] => Bytes::new(),
        [whole] => whole.clone(),
        parts => Bytes::from(parts.concat()),
    }
}

/// A status that is no success: whose fault it is, and whether another endpoint may help.
async fn refused(
    admission: Admission,
    response: Response<Arrival>,
    limits: &mut Limits<'_>,
) -> Result<Answer, Failure> {
    let status = response.status();
    let code = status.as_u16();
    match code {
        400..=599 => {}
        300..=399 => {
            let message = "The model answered with a redirect, which is not followed.";
            let error = ApiError::new(StatusCode::BAD_GATEWAY, "upstream_redirect", message);
            return Err(faulty(admission, Cause::Status(code), FailureKind::Malformed, error));
        }
        // A switch of protocols that nobody asked for, or a number that means nothing.
        _ => return Err(malformed(admission, Cause::Status(code))),
    }
    let (headers, wall) = (response.headers(), clock::wall());
    let codes = &admission.endpoint().config.codes;
    match codes.class(code) {
        StatusClass::Capacity => {
            let pause = upstream::quota_pause(headers, wall).unwrap_or(COOL_DEFAULT);
            response.into_body().dismiss();
            Err(limited(admission, status, pause))
        }
        StatusClass::Credential => {
            response.into_body().dismiss();
            Err(unauthorised(admission, status))
        }
        StatusClass::Neutral => passed_on(admission, response, limits).await,
        StatusClass::Fault => {
            let asked = upstream::retry_after(headers, wall);
            if let Some(asked) = asked.filter(|_| codes.pauses(code)) {
                admission.endpoint().cool(clock::now(), asked);
            }
            response.into_body().dismiss();
            let mut error = ApiError::upstream_error(told(status));
            error.retry_after = asked;
            Err(faulty(admission, Cause::Status(code), FailureKind::Status(code), error))
        }
    }
}

/// An answer that is the client's own fault goes back as it is.
async fn passed_on(
    admission: Admission,
    response: Response<Arrival>,
    limits: &mut Limits<'_>,
) -> Result<Answer, Failure> {
    let (head, body) = response.into_parts();
    let body = http_body_util::Limited::new(body, PLAIN_BYTES_MAX).collect();
    let began = clock::instant();
    let body = tokio::time::timeout_at(limits.idle_until(), body).await;
    limits.waited += began.elapsed();
    match body {
        Ok(Ok(body)) => {
            admission.settle(clock::now(), Outcome::Neutral);
            let rest = Rest::Nothing(Usage::default());
            let body = body.to_bytes();
            let mut loan = None;
            let _ = limits.memory.cover(&mut loan, body.len());
            let body = loan.map(|loan| loan.keep(body.clone())).unwrap_or(body);
            let mut answer = answer(&head, vec![body], rest, None);
            if is_retried(head.status) {
                let no = HeaderValue::from_static("false");
                answer.headers.insert("x-should-retry", no);
            }
            Ok(answer)
        }
        Ok(Err(_)) => Err(malformed(admission, Cause::Cut)),
        Err(_) => Err(timed_out(admission, limits.is_cut())),
    }
}
