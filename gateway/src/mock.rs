//! A model server that speaks OpenAI's and Anthropic's routes and misbehaves when told to.
//!
//! A gateway's promises are about bad endpoints, and a bad endpoint has to be at hand: for a
//! person with a terminal, for the demo, and for tests that must see the same fault each time.
//! `/__admin/*` switches faults while requests run and reads what arrived. Whoever can connect
//! may do so, therefore the server belongs on loopback or in a closed test network.
//!
//! Invariants: no bytes from a connection make it panic; a body is read up to
//! [`BODY_BYTES_MAX`]; every connection is a task owned by [`serve`] and ends with it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

mod admin;
mod answer;
mod behaviour;
mod ledger;
mod question;
mod reply;
mod route;
mod stream;
#[cfg(test)]
mod tests;
mod visit;
mod whole;

use answer::{AnswerBody, error_response};
use ledger::Ledger;
use route::Route;

pub use behaviour::{Behaviour, Closing, Hang, LATENCY_MS_MAX, TOKENS_MAX};
pub use ledger::{Counts, RecordedRequest};

/// The longest body of a model request: 64 MiB.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes read and thrown away after a body that is too long, so that a client which is still
/// writing reads the refusal instead of a reset.
const DRAIN_BYTES_MAX: usize = 1024 * 1024;
/// Connections served at once; further ones wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 16_384;
/// What an accept error costs, so that a full table of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Accept errors in a row before the listener is given up: ten minutes of nothing else.
const ACCEPT_ERRORS_MAX: u32 = 6_000;

/// A handle to one mock server: what it does wrong and what it has seen. Clones share both.
#[derive(Clone, Debug)]
pub struct Mock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    name_header: HeaderValue,
    /// A plain lock: it is held for a copy or an exchange, never over an await.
    behaviour: Mutex<Behaviour>,
    ledger: Arc<Ledger>,
    answers: AtomicU64,
}

impl Mock {
    /// Makes a healthy mock. The name is sent with every answer as `x-mock-name`; one that no
    /// header can carry is sent as `mock`.
    pub fn new(name: &str) -> Self {
        let name_header =
            HeaderValue::from_str(name).unwrap_or_else(|_| HeaderValue::from_static("mock"));
        Self {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                name_header,
                behaviour: Mutex::default(),
                ledger: Arc::default(),
                answers: AtomicU64::new(0),
            }),
        }
    }

    /// Replaces the whole behaviour; requests that are being answered keep the old one. Values
    /// beyond their range are cut to it where they are used.
    pub fn set(&self, behaviour: Behaviour) {
        *self.lock_behaviour() = behaviour;
    }

    /// Returns the behaviour that the next request meets.
    pub fn behaviour(&self) -> Behaviour {
        self.lock_behaviour().clone()
    }

    /// Returns what was counted since the start or the last reset.
    pub fn counts(&self) -> Counts {
        self.shared.ledger.counts()
    }

    /// Sets the counts to zero, but for `in_flight`, and forgets the recorded requests.
    pub fn reset_counts(&self) {
        self.shared.ledger.reset();
    }

    /// Returns the last model requests, at most 64, the oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.ledger.records()
    }

    fn lock_behaviour(&self) -> MutexGuard<'_, Behaviour> {
        // A behaviour is replaced whole, so a panic elsewhere does not spoil it.
        self.shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a mock on a listener until the future is dropped, and its connections with it.
///
/// # Errors
/// The last accept error, if the listener yields nothing but errors for ten minutes.
///
/// # Cancel safety
/// Dropping it closes every connection; the counts of the mock stay readable.
pub async fn serve(listener: TcpListener, mock: Mock) -> io::Result<()> {
    let mut connections = JoinSet::new();
    let mut errors_in_a_row = 0;
    loop {
        let accepted = tokio::select! {
            // A connection's end says nothing; it is awaited to keep the set small.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                errors_in_a_row = 0;
                mock.shared.ledger.connected();
                connections.spawn(serve_connection(stream, mock.clone()));
            }
            Err(error) if errors_in_a_row >= ACCEPT_ERRORS_MAX => return Err(error),
            Err(_) => {
                errors_in_a_row += 1;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The order to let a connection go in the middle of a message.
#[derive(Debug)]
struct LetGo;

impl fmt::Display for LetGo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the mock lets the connection go")
    }
}

impl std::error::Error for LetGo {}

/// Carries from an answer to its connection's owner whether the socket is to be reset.
#[derive(Clone, Debug, Default)]
struct ResetOrder {
    by_reset: Arc<AtomicBool>,
}

impl ResetOrder {
    fn ask(&self, closing: Closing) {
        let by_reset = match closing {
            Closing::Reset => true,
            Closing::Close => false,
        };
        self.by_reset.store(by_reset, Ordering::Relaxed);
    }
}

async fn serve_connection(stream: TcpStream, mock: Mock) {
    // Without it a token could wait for the acknowledgement of the one before. A socket that
    // refuses the option serves all the same.
    let _ = stream.set_nodelay(true);
    // No idle deadline: a pooled connection that the mock closed at the wrong moment would look
    // like a fault nobody asked for.
    let reset_order = ResetOrder::default();
    let service = service_fn(|request| exchange(mock.clone(), reset_order.clone(), request));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // An error here is a client's departure, a request that is not HTTP, or a fault asked for:
    // the first and the last are in the books, and hyper has answered the second.
    let _ = (&mut connection).await;
    if reset_order.by_reset.load(Ordering::Relaxed) {
        let stream = connection.into_parts().io.into_inner();
        // A socket that refuses is closed the ordinary way.
        let _ = stream.set_zero_linger();
    }
}

async fn exchange(
    mock: Mock,
    reset_order: ResetOrder,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, LetGo> {
    let mut response = route(&mock, reset_order, request).await?;
    response.headers_mut().insert("x-mock-name", mock.shared.name_header.clone());
    Ok(response)
}

async fn route(
    mock: &Mock,
    reset_order: ResetOrder,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, LetGo> {
    let is_post = request.method() == Method::POST;
    match request.uri().path() {
        path if path.starts_with("/__admin/") => admin::respond(mock, request).await,
        path if path.starts_with("/v1/") && is_post => {
            visit::model_request(mock, reset_order, request).await
        }
        "/metrics" if request.method() == Method::GET => visit::metrics(mock, reset_order).await,
        "/health" | "/v1/models" if request.method() == Method::GET => {
            visit::plain_request(mock, reset_order, request).await
        }
        "/health" | "/v1/models" => Ok(method_not_allowed("GET")),
        path if Route::of(path) != Route::Other => Ok(method_not_allowed("POST")),
        _ => Ok(error_response(StatusCode::NOT_FOUND, "There is no such route.")),
    }
}

fn method_not_allowed(allowed: &'static str) -> Response<AnswerBody> {
    let message = format!("This route answers {allowed} only.");
    let mut response = error_response(StatusCode::METHOD_NOT_ALLOWED, &message);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Why a body was not read.
#[derive(Debug)]
enum ReadBody {
    TooLong,
    Broken,
}

/// Reads a body of at most `bytes_max` bytes into memory.
async fn read_body(mut body: Incoming, bytes_max: usize) -> Result<Bytes, ReadBody> {
    let is_longer = |length: u64| usize::try_from(length).map_or(true, |length| length > bytes_max);
    if is_longer(body.size_hint().lower()) {
        return Err(ReadBody::TooLong);
    }
    let mut kept = BytesMut::new();
    let mut seen: usize = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ReadBody::Broken)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        seen = seen.saturating_add(data.len());
        if seen <= bytes_max {
            kept.extend_from_slice(&data);
        } else if seen > bytes_max.saturating_add(DRAIN_BYTES_MAX) {
            break;
        }
    }
    if seen > bytes_max {
        return Err(ReadBody::TooLong);
    }
    Ok(kept.freeze())
}
