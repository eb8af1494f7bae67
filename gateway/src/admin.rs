//! The operators' listener: membership, verdicts, the why of each, overrides, health and metrics.
//!
//! It runs apart from the data plane, on a listener of its own. Every route but health, readiness
//! and metrics wants a token if one is configured; the read-only token may only look.

mod auth;
mod measure;
mod orders;
mod render;
mod tenants;
mod why;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use quorum::{Denominator, NodeId};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use self::auth::{Keys, Role};
use crate::cluster::Seat;
use crate::config::Config;
use crate::history::History;
use crate::metrics::Meters;

/// Connections of operators at a time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// Largest request body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How long a request may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(10);
/// An accept that fails is tried again after this pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The admin API of one gateway.
pub struct Admin {
    keys: Keys,
    seat: Arc<Seat>,
    history: Arc<History>,
    meters: Arc<Meters>,
    gossip: Option<Arc<gossip::Stats>>,
    is_draining: AtomicBool,
    suspect_unready: bool,
    of: Denominator,
}

/// An answer: a status with a JSON document or a text.
pub(crate) enum Reply {
    Json(StatusCode, Value),
    Text(StatusCode, String),
}

impl Reply {
    /// A refusal: what is wrong, and what to do.
    pub(crate) fn error(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self::Json(status, json!({ "error": { "code": code, "message": message } }))
    }

    fn not_found() -> Self {
        Self::error(StatusCode::NOT_FOUND, "not_found", "There is nothing at this path.")
    }
}

/// Binds the operators' listener.
///
/// # Errors
/// The address cannot be bound.
pub async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Admin {
    /// The admin API over the parts of a gateway.
    pub fn new(
        config: &Config,
        seat: &Arc<Seat>,
        history: &Arc<History>,
        meters: &Arc<Meters>,
        carrier: Option<&gossip::Carrier>,
    ) -> Self {
        Self {
            keys: Keys::new(config.admin.token.as_ref(), config.admin.read_token.as_ref()),
            seat: Arc::clone(seat),
            history: Arc::clone(history),
            meters: Arc::clone(meters),
            gossip: carrier.map(|carrier| Arc::clone(&carrier.stats)),
            is_draining: AtomicBool::new(false),
            suspect_unready: config
                .cluster
                .as_ref()
                .is_some_and(|cluster| cluster.quorum.suspect_unready),
            of: config.cluster.as_ref().map_or(Denominator::Members, |one| one.quorum.of),
        }
    }

    /// Says from here on that this node is not ready.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Serves until `stop`.
    pub async fn run(self: Arc<Self>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = tokio::select! {
                place = Arc::clone(&room).acquire_owned() => place,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (admin, mut stop) = (Arc::clone(&self), stop.clone());
            tokio::spawn(async move {
                let _place = place;
                let service = service_fn(|request| admin.serve(request));
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(ARRIVAL);
                let connection = http.serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    _ = connection => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            });
        }
    }

    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let reply = self.route(request).await;
        let (status, kind, body) = match reply {
            Reply::Json(status, value) => (status, "application/json", value.to_string()),
            Reply::Text(status, text) => (status, "text/plain; version=0.0.4; charset=utf-8", text),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    async fn route(&self, request: Request<Incoming>) -> Reply {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        match path {
            "/healthz" => return Reply::Json(StatusCode::OK, json!({ "status": "ok" })),
            "/readyz" => return self.readiness(),
            "/metrics" => return Reply::Text(StatusCode::OK, self.metrics()),
            _ => {}
        }
        let Some(rest) = path.strip_prefix("/admin/v1/") else { return Reply::not_found() };
        let role = match self.keys.role(&head.headers) {
            Ok(role) => role,
            Err(reply) => return reply,
        };
        if auth::is_from_elsewhere(&head.headers) {
            let message = "A page of another origin may not ask; use curl or this node's own page.";
            return Reply::error(StatusCode::FORBIDDEN, "foreign_origin", message);
        }
        match head.method {
            Method::GET => self.look(rest),
            Method::POST if role == Role::Full => {
                let body = Limited::new(body, BODY_BYTES_MAX).collect();
                match tokio::time::timeout(ARRIVAL, body).await {
                    Ok(Ok(body)) => self.act(rest, &body.to_bytes()),
                    Ok(Err(_)) => Reply::error(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "body_too_large",
                        format!("The body is larger than {BODY_BYTES_MAX} bytes."),
                    ),
                    Err(_) => Reply::error(
                        StatusCode::REQUEST_TIMEOUT,
                        "request_timeout",
                        "The body stopped arriving.",
                    ),
                }
            }
            Method::POST => Reply::error(
                StatusCode::FORBIDDEN,
                "read_only",
                "This token may only look; use the full token to change anything.",
            ),
            _ => Reply::error(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "Use GET to look and POST to act.",
            ),
        }
    }

    fn look(&self, path: &str) -> Reply {
        match path {
            "members" => Reply::Json(StatusCode::OK, self.members()),
            "cluster" => Reply::Json(StatusCode::OK, self.cluster()),
            "endpoints" => Reply::Json(StatusCode::OK, self.endpoints()),
            _ => {
                let Some(rest) = path.strip_prefix("endpoints/") else {
                    return Reply::not_found();
                };
                let (name, is_explain) = match rest.strip_suffix("/explain") {
                    Some(name) => (name, true),
                    None => (rest, false),
                };
                let found = orders::endpoint_key(name).and_then(|key| {
                    if is_explain { self.explain(&key) } else { self.endpoint(&key) }
                });
                found.map_or_else(orders::unknown_endpoint, |value| {
                    Reply::Json(StatusCode::OK, value)
                })
            }
        }
    }

    fn act(&self, path: &str, body: &[u8]) -> Reply {
        if let Some(name) =
            path.strip_prefix("endpoints/").and_then(|p| p.strip_suffix("/override"))
        {
            return orders::force(&self.seat, name, body);
        }
        let Some(member) = path.strip_prefix("members/") else { return Reply::not_found() };
        if let Some((id, is_muted)) = orders::muting(member) {
            return orders::mute(&self.seat, id, is_muted);
        }
        match member.strip_suffix("/forget") {
            Some(id) if self.seat.council().forget(&NodeId::new(id)) => {
                tracing::warn!(target: "audit", member = id, "an operator forgets a lost member");
                Reply::Json(StatusCode::OK, json!({ "forgotten": id }))
            }
            Some(_) => Reply::error(
                StatusCode::CONFLICT,
                "not_lost",
                "No such member is lost; only a lost member can be forgotten.",
            ),
            None => Reply::not_found(),
        }
    }
}
