//! The answer to a streaming request that is long in coming: its head goes first, what it is later.
//!
//! Whatever stands between the client and us takes a connection for dead on which nothing moves. So a
//! stream whose first content has not come within one heartbeat is begun all the same: status 200, and
//! comments, while endpoint after endpoint is still tried unseen. The price is paid only then: headers
//! that speak of the attempts are missing (`x-quorumgate-endpoint`, `-attempts`, `-degraded` and the
//! upstream's own), and a failure is told in band, by one error event and an unclean end.
//!
//! Invariants: dropping it cancels the attempt that runs; the access log has the status that was sent,
//! 200, and the code of what went wrong.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::{self, HeaderMap, HeaderValue};
use serde::Deserialize;
use tokio::time::{Instant, Sleep};

use super::admission::Call;
use super::attempt::Rest;
use super::dispatch::{Leaving, Served};
use super::log::{Line, give_up};
use super::relay::{End, HEARTBEAT, Interrupted, Relay};
use super::route::Dialect;
use super::{Body, Cut, Gate, limit};
use crate::clock;
use crate::error::ApiError;
use crate::fleet::Pool;
use crate::limits::Place;
use crate::upstream::Upstream;

/// The pause between two comments, should the configuration have none: then none is begun so.
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(15);

/// Longest refusal whose words are told in band.
const REFUSAL_BYTES_MAX: usize = 2 * 1024;

/// A request that was admitted, with all that its attempts need.
pub(super) struct Course {
    pub(super) gate: Arc<Gate>,
    pub(super) upstream: Upstream,
    pub(super) pool: Arc<Pool>,
    pub(super) call: Box<Call>,
    pub(super) id: HeaderValue,
    pub(super) headers: HeaderMap,
    pub(super) started: Instant,
    /// When the whole answer must be there.
    pub(super) deadline: Instant,
    /// How long the client itself waits for the first content.
    pub(super) own: Option<Instant>,
    pub(super) line: Line,
    /// Its place under the limits.
    pub(super) place: Place,
}

/// What a course has led to.
pub(super) struct Found {
    pub(super) served: Result<Served, ApiError>,
    pub(super) pool: Arc<Pool>,
    pub(super) id: HeaderValue,
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) line: Line,
    pub(super) place: Place,
}

impl Course {
    /// Tries endpoints until one answers or nothing is left.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the attempt, which settles as neutral.
    pub(super) async fn run(self) -> Found {
        let Self { gate, upstream, pool, call, id, headers, started, deadline, own, .. } = self;
        let (mut line, mut place) = (self.line, self.place);
        let (asked, own_gate) = (Arc::clone(&pool), Arc::clone(&gate));
        let mut leaving = Leaving { gate: own_gate, pool: asked, started, is_over: false };
        let until = (deadline, place.patience());
        let served = gate.dispatch(&upstream, &pool, &call, (&id, &headers), until, &mut line);
        // The client's own limit says nothing about the endpoint: dropped, the attempt is neutral.
        let served = match own {
            None => served.await,
            Some(own) => tokio::time::timeout_at(own, served)
                .await
                .unwrap_or_else(|_| Err(ApiError::upstream_timeout())),
        };
        leaving.is_over = true;
        if served.is_err() {
            limit::failed(&mut place, &call, line.attempts);
        }
        Found { served, pool, id, started, deadline, line, place }
    }
}

/// The body of an answer whose head went first.
pub struct Early {
    gate: Arc<Gate>,
    dialect: Dialect,
    stage: Stage,
}

enum Stage {
    /// Endpoints are tried.
    Waiting { course: Pin<Box<dyn Future<Output = Found> + Send>>, timer: Pin<Box<Sleep>> },
    /// One answers.
    Relaying(Box<Relay>),
    /// None did: the event that says so.
    Failed(Bytes),
    /// The event was handed over; the connection is broken off when it is written.
    Broken,
}

impl Gate {
    /// Follows a course to its end, or for one heartbeat if the answer is to be a stream.
    pub(super) async fn follow(self: &Arc<Self>, course: Course) -> Response<Body> {
        let (id, left, dialect) = (course.id.clone(), course.place.left(), course.line.dialect);
        let heartbeat = self.heartbeat.filter(|_| course.call.is_stream);
        // Apart from the connection's own state, which lasts as long as the connection does.
        let mut course = Box::pin(course.run());
        let response = match heartbeat {
            None => self.conclude(course.await),
            Some(heartbeat) => match tokio::time::timeout(heartbeat, course.as_mut()).await {
                Ok(found) => self.conclude(found),
                Err(_) => self.begin(course, &id, dialect),
            },
        };
        limit::show(&left, response)
    }

    fn conclude(&self, found: Found) -> Response<Body> {
        let Found { served, pool, id, started, deadline, line, place } = found;
        match served {
            Ok(served) => self.answer(served, &id, started, deadline, line, place),
            Err(error) => self.refuse(error, &id, line, Some(&pool)),
        }
    }

    /// Begins an answer of which nothing is known but that it is to be a stream.
    fn begin(
        self: &Arc<Self>,
        course: Pin<Box<dyn Future<Output = Found> + Send>>,
        id: &HeaderValue,
        dialect: Dialect,
    ) -> Response<Body> {
        let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        let early =
            Early { gate: Arc::clone(self), dialect, stage: Stage::Waiting { course, timer } };
        let mut response = Response::new(Body::Early(Box::new(early)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        self.stamp(response, id)
    }

    /// Goes on with what was found behind a head that went first.
    fn go_on(&self, found: Found) -> Stage {
        let Found { served, pool, started, deadline, mut line, place, .. } = found;
        let error = match served {
            Ok(served) if matches!(served.answer.rest, Rest::Events(..)) => {
                return match self.body(served, started, deadline, line, place) {
                    Body::Relay(relay) => Stage::Relaying(relay),
                    Body::Full(_) | Body::Early(_) => Stage::Broken,
                };
            }
            // A refusal, or an answer in one piece, which nobody reads in a stream.
            Ok(served) => {
                let (status, held) = (served.answer.status, served.answer.held.first());
                let error = ApiError::upstream_error(status);
                let said = held.filter(|_| status.is_client_error()).and_then(|body| said(body));
                ApiError { message: said.unwrap_or(error.message), ..error }
            }
            Err(error) => error,
        };
        self.meters.answered(&pool.meters, 200);
        self.meters.streams.ended(End::Interrupted, true);
        let event = error.event(line.dialect);
        line.blocked_reason = error.code;
        line.end(200, End::Interrupted);
        Stage::Failed(event)
    }
}

impl Cut for Early {
    /// What was still tried is given up.
    fn cut(&mut self) {
        match &mut self.stage {
            Stage::Relaying(relay) => relay.cut(),
            Stage::Waiting { .. } => {
                self.gate.meters.streams.ended(End::Drained, true);
                let told = Stage::Failed(ApiError::stream_interrupted().event(self.dialect));
                // The head went with it.
                give_up(std::mem::replace(&mut self.stage, told), 200);
            }
            Stage::Failed(_) | Stage::Broken => {}
        }
    }
}

/// What a refusal says, if it says it as errors are told and at no great length.
fn said(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Error {
        message: String,
    }
    #[derive(Deserialize)]
    struct Refusal {
        error: Error,
    }
    let short = body.len() <= REFUSAL_BYTES_MAX;
    let refusal: Refusal = short.then(|| serde_json::from_slice(body).ok())??;
    Some(refusal.error.message)
}

impl HttpBody for Early {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        let Self { gate, stage, .. } = &mut *self;
        loop {
            let next = match stage {
                Stage::Relaying(relay) => return Pin::new(relay.as_mut()).poll_frame(context),
                Stage::Broken => return Poll::Ready(Some(Err(Interrupted))),
                Stage::Failed(event) => {
                    let event = std::mem::take(event);
                    *stage = Stage::Broken;
                    return Poll::Ready(Some(Ok(Frame::data(event))));
                }
                Stage::Waiting { course, timer } => match course.as_mut().poll(context) {
                    Poll::Ready(found) => gate.go_on(found),
                    Poll::Pending => {
                        ready!(timer.as_mut().poll(context));
                        let heartbeat = gate.heartbeat.unwrap_or(HEARTBEAT_DEFAULT);
                        timer.as_mut().reset(clock::instant() + heartbeat);
                        return Poll::Ready(Some(Ok(Frame::data(HEARTBEAT))));
                    }
                },
            };
            *stage = next;
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.stage {
            Stage::Relaying(relay) => relay.is_end_stream(),
            Stage::Waiting { .. } | Stage::Failed(_) | Stage::Broken => false,
        }
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        // The line of the request writes itself when it is dropped with its course.
        if matches!(self.stage, Stage::Waiting { .. }) {
            self.gate.meters.streams.ended(End::ClientLeft, true);
        }
    }
}
