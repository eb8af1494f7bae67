//! What happens to a request: admission, choice, attempt (and another), relay, settle.
//!
//! The functions read top to bottom as a request goes: [`Gate::serve`] admits it,
//! `Gate::dispatch` finds an endpoint and tries others while nothing was sent to the client, and the
//! answer's body settles the attempt at its last byte.

pub mod admission;
mod answer;
mod attempt;
mod cors;
mod dispatch;
mod early;
mod intake;
mod limit;
mod log;
mod quarantine;
mod relay;
pub mod route;
pub(crate) mod sse;
mod usage;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::admission::promise::{form as form_promise, json as json_promise};
use self::admission::{Admitted, Refusal, Vocabulary};
use self::early::{Course, Early};
pub use self::intake::Intake;
use self::log::Line;
pub use self::quarantine::Quarantine;
pub(crate) use self::relay::End;
use self::relay::{Interrupted, Relay};
use self::route::Route;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::sse::promise::{answer as answer_promise, stream as sse_promise};
use crate::clock;
use crate::config::{FailClosed, Retry};
use crate::fleet::Fleet;
use crate::keys::Keys;
use crate::limits::Desk;
use crate::memory::Memory;
use crate::metrics::Meters;
use crate::trace::Tracer;
use crate::upstream::Upstream;

pub use self::cors::Cors;

/// The headers in which the official clients say how long they wait, in Python and in JavaScript.
const CLIENT_TIMEOUTS: [&str; 2] = ["x-stainless-read-timeout", "x-stainless-timeout"];
/// Nobody waits for less.
const CLIENT_TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Longest name of a tenant; a longer one is nobody's.
const TENANT_BYTES_MAX: usize = 128;
/// Longest request id that is taken from a caller.
const REQUEST_ID_MAX: usize = 128;

/// What every request needs to know; shared by all workers. A request keeps the one that it began with
/// to its end, whatever takes that one's place meanwhile.
pub struct Gate {
    /// The pools and endpoints.
    pub fleet: Arc<Fleet>,
    /// What is counted.
    pub meters: Arc<Meters>,
    /// Who may ask.
    pub keys: Keys,
    /// How much may be asked.
    pub desk: Desk,
    /// What a request must satisfy.
    pub fail_closed: FailClosed,
    /// Whether an endpoint is chosen anywhere by how a prompt begins.
    pub has_prefixes: bool,
    /// By what prompts are counted where an estimate cannot decide.
    pub vocabulary: Option<Vocabulary>,
    /// How often it is tried.
    pub retry: Retry,
    /// What more than one endpoint has died of.
    pub quarantine: Arc<Quarantine>,
    /// Longest body, in bytes.
    pub max_body_bytes: usize,
    /// What holds all of them.
    pub memory: Memory,
    /// Longest pause within a body.
    pub body_idle: Duration,
    /// Who may call from a page in a browser; `None`: nobody.
    pub cors: Option<Cors>,
    /// This node's name, for the answer's header.
    pub node: HeaderValue,
    /// After this long without a word the client of a stream gets a comment; `None`: it never does.
    pub heartbeat: Option<Duration>,
    /// Which requests are told to a collector; `None`: none.
    pub tracer: Option<Arc<Tracer>>,
}

/// The body of an answer.
pub enum Body {
    /// Whole.
    Full(Option<Bytes>),
    /// Passed on as it comes.
    Relay(Box<Relay>),
    /// Begun before it was known what it will be.
    Early(Box<Early>),
}

/// A body that can be told to come to its end, which it does in words of its own.
pub trait Cut {
    /// Ends it: a stream that still flows gets one error event and an unclean end. What is whole is
    /// still given.
    fn cut(&mut self);
}

impl Cut for Body {
    fn cut(&mut self) {
        match self {
            Self::Full(_) => {}
            Self::Relay(relay) => relay.cut(),
            Self::Early(early) => early.cut(),
        }
    }
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
        self: &Arc<Self>,
        upstream: &Upstream,
        request: Request<Intake>,
    ) -> Result<Response<Body>, Infallible> {
        let started = clock::instant();
        let (mut head, body) = request.into_parts();
        let id = request_id(&head.headers);
        let mut line = Line::new(&id, &head.headers, Route::of(head.uri.path()));
        if let Some(tracer) = &self.tracer {
            line.trace = tracer.begin(&mut head.headers, started);
        }
        let (call, pool) = match admission::admit(self, &head, body, &mut line).await {
            Ok(Admitted::Call(call, pool)) => (call, pool),
            Ok(Admitted::Told(response)) => {
                line.close(200);
                return Ok(self.stamp(response, &id));
            }
            Err(Refusal::Because(error)) => return Ok(self.refuse(error, &id, line, None)),
            // Nobody reads the answer; the line says by itself who left.
            Err(Refusal::Gone) => return Ok(self.stamp(Response::new(Body::Full(None)), &id)),
        };
        line.model.clone_from(&pool.name);
        let place = match self.place(&call, &pool).await {
            Ok(place) => place,
            Err(refused) => {
                let response = self.refuse(limit::error(&refused), &id, line, None);
                return Ok(limit::show(&refused.left, response));
            }
        };
        // The client may have taken its time to say what it wants, which is nobody's but its own: all
        // limits run from here.
        let deadline = clock::instant() + pool.timeouts.total;
        // A limit beyond the pool's own, be it beyond the reach of any clock, changes nothing.
        let limit = client_timeout(&head.headers);
        let own = limit.and_then(|limit| clock::instant().checked_add(limit));
        let own = own.filter(|own| *own < deadline);
        let (gate, upstream, headers) = (Arc::clone(self), upstream.clone(), head.headers);
        let course =
            Course { gate, upstream, pool, call, id, headers, started, deadline, own, line, place };
        Ok(self.follow(course).await)
    }
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
pub(crate) fn request_id(headers: &HeaderMap) -> HeaderValue {
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
            Self::Early(early) => Pin::new(early.as_mut()).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Relay(relay) => relay.is_end_stream(),
            Self::Early(early) => early.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Relay(relay) => relay.size_hint(),
            Self::Early(early) => early.size_hint(),
        }
    }
}
