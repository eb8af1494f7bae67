//! The operators' listener: membership, verdicts, the why of each, overrides, health and metrics.
//!
//! It runs apart from the data plane, on a listener of its own. Every route but health, readiness
//! and metrics wants a token if one is configured; the read-only token may only look.

mod answer;
mod aside;
mod attempts;
mod audit;
mod auth;
mod body;
mod case;
mod deeds;
mod documents;
mod feed;
mod measure;
mod members;
mod openapi;
mod orders;
mod path;
mod payload;
mod render;
mod route;
mod scrape;
mod table;
mod tenants;
pub(crate) mod view;
mod why;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::HeaderMap;
use hyper::{Method, Request, Response, StatusCode};
use quorum::Denominator;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use self::answer::Reply;
use self::aside::Aside;
use self::attempts::Attempts;
use self::audit::{Caller, Strangers};
pub use self::auth::Tokens;
use self::auth::{Keys, Role, Stranger};
use self::path::Bound;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::path::promise as path_promise;
use self::payload::Payload;
use self::route::{Access, Asked, Deed, ROOT, Route};
use self::scrape::Scrape;
use self::table::ROUTES;
use crate::clock;
use crate::cluster::Seat;
use crate::config::Config;
use crate::error::ApiError;
use crate::events::Events;
use crate::history::History;
use crate::memory::Memory;
use crate::metrics::Meters;
use crate::page;
use crate::proxy::{self, Intake};
use crate::reload::Reload;
use crate::server::{self, Door, Troubles};

/// This part of the connections may be one address's; one more is closed, so that no stranger can take
/// them all. What counts as one address is what does so where tokens are guessed.
const PART_OF_ONE: usize = 4;
/// How long a request's body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(10);

/// The admin API of one gateway.
pub struct Admin {
    tokens: Arc<Tokens>,
    attempts: Attempts,
    strangers: Strangers,
    reload: Arc<Reload>,
    memory: Memory,
    seat: Arc<Seat>,
    history: Arc<History>,
    events: Arc<Events>,
    meters: Arc<Meters>,
    scrape: Scrape,
    aside: Aside,
    door: Door,
    /// Connections at a time; one more is closed, so that its owner need not guess what it waits for.
    room: usize,
    /// How many connections each address has; at most `room` addresses.
    connected: Mutex<BTreeMap<IpAddr, usize>>,
    gossip: Option<Arc<gossip::Stats>>,
    ledger: Option<redis_lua::client::Client>,
    is_draining: AtomicBool,
    suspect_unready: bool,
    of: Denominator,
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
        (history, events): (&Arc<History>, &Arc<Events>),
        meters: &Arc<Meters>,
        (carrier, ledger): (Option<&gossip::Carrier>, Option<&redis_lua::client::Client>),
        (tokens, reload, (memory, room)): (Arc<Tokens>, Arc<Reload>, (Memory, usize)),
    ) -> Self {
        Self {
            tokens,
            attempts: Attempts::default(),
            strangers: Strangers::default(),
            reload,
            memory,
            seat: Arc::clone(seat),
            history: Arc::clone(history),
            events: Arc::clone(events),
            meters: Arc::clone(meters),
            scrape: Scrape::default(),
            aside: Aside::default(),
            door: Door::new(meters),
            room,
            connected: Mutex::default(),
            gossip: carrier.map(|carrier| Arc::clone(&carrier.stats)),
            ledger: ledger.cloned(),
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
        let room = Arc::new(Semaphore::new(self.room));
        let mut troubles = Troubles::new("operators", &self.meters);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tokio::time::sleep(troubles.failed(&error)).await;
                    continue;
                }
            };
            troubles.over();
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
            let address = peer.ip().to_canonical();
            let Some(entered) = Entered::new(&self, attempts::source(address)) else { continue };
            let (admin, mut stop) = (Arc::clone(&self), stop.clone());
            tokio::spawn(async move {
                let (_place, _entered) = (place, entered);
                tokio::select! {
                    () = admin.receive(stream, address) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            });
        }
    }

    async fn receive(self: &Arc<Self>, stream: TcpStream, address: IpAddr) {
        let admin = Arc::clone(self);
        let answer = move |asked: server::Asked| {
            let admin = Arc::clone(&admin);
            Box::pin(async move {
                Ok::<_, Infallible>(match asked {
                    Ok(request) => admin.serve(request, address).await,
                    Err(error) => turned_away(error),
                })
            })
        };
        self.door.receive(stream, answer).await;
    }

    async fn serve(
        self: Arc<Self>,
        request: Request<Intake>,
        address: IpAddr,
    ) -> Response<Payload> {
        let request_id = proxy::request_id(request.headers());
        let is_head = request.method() == Method::HEAD;
        let has_body = !request.body().is_end_stream();
        // The page is the same for everyone and knows nothing; what it shows, it asks for by token.
        if let Some(asset) = page::asset(request.uri().path()) {
            let is_asked = is_head || request.method() == Method::GET;
            return if is_asked {
                let page = asset.answer(request.headers()).map(Payload::Whole);
                answer::stamp(page, request_id)
            } else {
                let refused = Reply::method_not_allowed("GET, HEAD");
                let refused = if has_body { refused.last() } else { refused };
                refused.response(false, request_id)
            };
        }
        let name = request_id.to_str().unwrap_or_default();
        let (reply, is_read) = self.answer(request, address, name).await;
        let reply = if has_body && !is_read { reply.last() } else { reply };
        reply.response(is_head, request_id)
    }

    /// The answer, and whether the body of the request was read to its end.
    async fn answer(
        self: &Arc<Self>,
        request: Request<Intake>,
        address: IpAddr,
        request_id: &str,
    ) -> (Reply, bool) {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let Some(segments) = path::segments(path) else { return (Reply::not_found(), false) };
        let found = fitting(&segments);
        let is_api = path.starts_with(ROOT);
        if found.is_empty() && !is_api {
            return (Reply::not_found(), false);
        }
        let wanted = if head.method == Method::HEAD { &Method::GET } else { &head.method };
        let chosen = found.iter().find(|(route, _)| route.method == wanted);
        let who = chosen.or(found.first()).map_or(Access::Reader, |(route, _)| route.access);
        let mut caller = Caller { role: None, address, request_id, path };
        let Admitted { role, is_known } = match self.admit(&head.headers, address, who) {
            Ok(admitted) => admitted,
            Err(reply) => {
                let is_counted = !matches!(reply.result(), "too_many_attempts");
                if let (Some((route, _)), true) = (chosen, is_counted) {
                    self.audit(&caller, route, "", &reply);
                }
                return (reply, false);
            }
        };
        caller.role = Some(role);
        let Some((route, bound)) = chosen else {
            return (unrouted(&found, &head.method), false);
        };
        if route.access == Access::Operator && role != Role::Full {
            let message = "This token may only look; use the full token to change anything.";
            let reply = Reply::error(StatusCode::FORBIDDEN, "read_only", message);
            self.audit(&caller, route, "", &reply);
            return (reply, false);
        }
        let query = match route.read_query(head.uri.query().unwrap_or_default()) {
            Ok(query) => query,
            Err(message) => return (Reply::invalid_query(message), false),
        };
        let body = match whole_body(body, route).await {
            Ok(body) => body,
            Err(reply) => {
                self.audit(&caller, route, "", &reply);
                return (reply, false);
            }
        };
        let reason = audit::reason(&body);
        let asked =
            Asked { path: bound.clone(), query, headers: &head.headers, body, role, is_known };
        let reply = match route.deed {
            Deed::Now(deed) => deed(self, &asked),
            Deed::Later(deed) => deed(Arc::clone(self), &asked).await,
        };
        self.audit(&caller, route, &reason, &reply);
        (reply, true)
    }

    /// Who asks, where that matters.
    fn admit(
        &self,
        headers: &HeaderMap,
        address: IpAddr,
        access: Access,
    ) -> Result<Admitted, Reply> {
        let keys = self.tokens.keys();
        let stranger = Admitted { role: Role::Read, is_known: false };
        match access {
            Access::Anyone => Ok(stranger),
            Access::Scraper if !keys.protect_metrics() => Ok(stranger),
            Access::Guest => Ok(self.recognise(&keys, headers, address).unwrap_or(stranger)),
            Access::Scraper | Access::Reader | Access::Operator => {
                self.recognise(&keys, headers, address)
            }
        }
    }

    /// Who it is that shows these headers.
    fn recognise(
        &self,
        keys: &Keys,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<Admitted, Reply> {
        // A token is never sent along by a browser on its own: who shows it means to ask. Where none is
        // asked for, all that is known of a page is where it came from.
        if !keys.are_set() && (auth::is_from_elsewhere(headers) || auth::is_worldly(headers)) {
            let message = "A page of another origin may not ask; use curl or this node's own page.";
            return Err(Reply::error(StatusCode::FORBIDDEN, "foreign_origin", message));
        }
        let now = clock::now();
        match (keys.role(headers), self.attempts.barred(now, address)) {
            (Ok(role), wait) => {
                let token = keys.hash(role);
                if let (Some(wait), Some(token)) = (wait, token)
                    && !self.attempts.is_known(now, address, token)
                {
                    return Err(Reply::too_many_attempts(wait));
                }
                if let Some(token) = token {
                    self.attempts.succeeded(now, address, token);
                }
                Ok(Admitted { role, is_known: true })
            }
            // Who shows nothing guesses nothing, and is told what is wanted all the same.
            (Err(Stranger::Silent), _) => Err(Reply::unauthorized()),
            (Err(Stranger::Wrong), Some(wait)) => Err(Reply::too_many_attempts(wait)),
            (Err(Stranger::Wrong), None) => {
                self.attempts.failed(now, address);
                Err(Reply::unauthorized())
            }
        }
    }
}

/// The answer to what could not be understood as a request.
fn turned_away(error: ApiError) -> Response<Payload> {
    let request_id = proxy::request_id(&HeaderMap::new());
    let reply = match error.header {
        Some(("allow", allowed)) => Reply::method_not_allowed(allowed),
        Some(_) | None => Reply::error(error.status, error.code, error.message),
    };
    reply.last().response(false, request_id)
}

/// Whoever is let in.
#[derive(Clone, Copy)]
struct Admitted {
    role: Role,
    /// Whether it is known who that is: by a token, or because none is asked for.
    is_known: bool,
}

/// A connection's part of what its address may have.
struct Entered {
    admin: Arc<Admin>,
    address: IpAddr,
}

impl Entered {
    /// `None`: the address has as many as it may.
    fn new(admin: &Arc<Admin>, address: IpAddr) -> Option<Self> {
        let mut connected = admin.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let count = connected.entry(address).or_default();
        if *count >= (admin.room / PART_OF_ONE).max(1) {
            return None;
        }
        *count += 1;
        Some(Self { admin: Arc::clone(admin), address })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut connected = self.admin.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let left = connected.get_mut(&self.address).map(|count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == Some(0) {
            connected.remove(&self.address);
        }
    }
}

/// The routes of the path, one for each method, with what the names of their pattern stand for.
fn fitting(segments: &[String]) -> Vec<(&'static Route, Bound)> {
    let bind = |route: &'static Route| Some((route, path::bind(route.pattern, segments)?));
    let mut found: Vec<_> = ROUTES.iter().filter_map(bind).collect();
    // Of several patterns the one with the most words of its own is meant: it stands last.
    if let Some(pattern) = found.last().map(|(route, _)| route.pattern) {
        found.retain(|(route, _)| route.pattern == pattern);
    }
    found
}

/// The answer where a path or its method is not known.
fn unrouted(found: &[(&Route, Bound)], method: &Method) -> Reply {
    let mut methods: Vec<&str> = found.iter().map(|(route, _)| route.method.as_str()).collect();
    if methods.is_empty() {
        return Reply::not_found();
    }
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods.push("OPTIONS");
    methods.sort_unstable();
    methods.dedup();
    let allowed = methods.join(", ");
    if method == Method::OPTIONS {
        return Reply::Methods(allowed);
    }
    Reply::method_not_allowed(&allowed)
}

/// Reads a body to its end; one that says how large it is and is too large is not begun.
async fn whole_body(body: Intake, route: &Route) -> Result<Bytes, Reply> {
    let bytes_max = route.body_bytes_max();
    let too_large = || {
        let message = format!("The body is larger than {bytes_max} bytes.");
        Reply::error(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let read = Limited::new(body, bytes_max).collect();
    match tokio::time::timeout(ARRIVAL, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let message = "The body broke off; send it whole.";
            Err(Reply::error(StatusCode::BAD_REQUEST, "invalid_body", message))
        }
        Err(_) => {
            let message = "The body stopped arriving; send it within 10 s.";
            Err(Reply::error(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
    }
}
