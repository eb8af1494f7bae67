//! The way to the endpoints: one pool of connections a worker, and what goes along with a request.
//!
//! A pool lives on the runtime of one worker, so that a request never wakes another thread; what all
//! workers know lies in [`Roads`]. A connection that was at rest may end just as it is used; nothing
//! was heard then, and the request is sent once more over a new one without anybody's notice.
//!
//! Invariants: a request is sent again at most once, never over a used connection, and never when it
//! failed on a new one; whatever is dropped takes its connection or stream along.

mod arrival;
mod connect;
mod headers;
mod http2;
mod parcel;
mod paths;
mod pause;
mod pool;
mod pulse;
mod resolve;
mod roads;
mod socket;
mod tls;
mod wire;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use breaker::Cause;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};

pub use self::arrival::{Arrival, ArrivalError};
pub use self::connect::ConnectError;
pub use self::headers::{headers_back, is_event_stream};
pub use self::parcel::Parcel;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::pause::promise::keep as pause_promise;
pub use self::pause::{quota_pause, retry_after};
pub use self::resolve::{Answering, Lookup};
pub use self::roads::{RoadError, Roads};
pub use self::tls::TlsError;
pub(crate) use self::tls::by_system as tls_by_system;

use self::arrival::Way as Over;
use self::connect::Destination;
use self::pool::{Found, Lane};
use self::roads::Way;
use self::wire::Lost;
use crate::clock;
use crate::fleet::Endpoint;

/// The header by which an endpoint can tell a synthetic probe.
pub const PROBE_HEADER: &str = "x-quorumgate-probe";

/// Connections at rest are looked through so often.
const SWEEP: Duration = Duration::from_secs(5);
/// A used connection that ends without an answer was ending when the request was sent only if that shows
/// at once: within a round trip and a retransmission. Later, the endpoint had begun to work on it.
const STALE_WITHIN: Duration = Duration::from_secs(2);

/// Room for the header fields of a usual request.
const FIELDS: usize = 12;

/// One worker's ways to the endpoints.
#[derive(Clone)]
pub struct Upstream {
    roads: Arc<Roads>,
    lanes: Arc<Vec<Arc<Lane>>>,
    /// What is looked through for connections that have rested too long: the lanes of the newest heir.
    swept: Arc<Mutex<Arc<Vec<Arc<Lane>>>>>,
}

/// Why a request got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There was no connection to send it over.
    #[error("no connection: {0}")]
    Connect(#[from] ConnectError),
    /// The connection ended before the head of an answer.
    #[error("the connection ended before an answer")]
    Broken,
    /// What came was no answer.
    #[error("{0}")]
    Malformed(&'static str),
}

impl SendError {
    /// What it says against the endpoint; `None`: nothing, it is this side that could not.
    pub fn cause(self) -> Option<Cause> {
        match self {
            Self::Connect(error) => (!error.is_ours()).then_some(Cause::Refused),
            Self::Broken => Some(Cause::Cut),
            Self::Malformed(_) => Some(Cause::Malformed),
        }
    }
}

/// A request as it is to go out.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Its path, which begins with `/v1`.
    pub path: &'a str,
    /// What the endpoint calls the model.
    pub model: &'a str,
    /// The type of its body.
    pub content_type: HeaderValue,
    /// Its id.
    pub id: &'a HeaderValue,
    /// The headers of whoever asked.
    pub caller: &'a HeaderMap,
    /// Its body.
    pub body: Parcel,
}

impl Upstream {
    /// A pool for the current runtime.
    pub fn new(roads: &Arc<Roads>) -> Self {
        let lane = |to| Arc::new(Lane::new(Arc::clone(to), Arc::clone(&roads.sockets)));
        let lanes = roads.destinations.iter().map(lane);
        let lanes = Arc::new(lanes.collect::<Vec<_>>());
        let swept = Arc::new(Mutex::new(Arc::clone(&lanes)));
        tokio::spawn(sweep(Arc::downgrade(&swept)));
        Self { roads: Arc::clone(roads), lanes, swept }
    }

    /// The same pool for other ways: the connections to a place that stays are kept, the others at rest
    /// are closed. Requests that are under way go on. It may be called on any thread.
    #[must_use]
    pub fn heir(&self, roads: &Arc<Roads>) -> Self {
        let known: HashMap<*const Destination, &Arc<Lane>> =
            self.lanes.iter().map(|lane| (Arc::as_ptr(&lane.destination), lane)).collect();
        let lane = |to: &Arc<Destination>| match known.get(&Arc::as_ptr(to)) {
            Some(lane) => Arc::clone(lane),
            None => Arc::new(Lane::new(Arc::clone(to), Arc::clone(&roads.sockets))),
        };
        let lanes: Arc<Vec<_>> = Arc::new(roads.destinations.iter().map(lane).collect());
        let kept: HashSet<*const Lane> = lanes.iter().map(Arc::as_ptr).collect();
        for lane in self.lanes.iter().filter(|lane| !kept.contains(&Arc::as_ptr(lane))) {
            lane.close();
        }
        *self.swept.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&lanes);
        Self { roads: Arc::clone(roads), lanes, swept: Arc::clone(&self.swept) }
    }

    /// A request to `endpoint`, with its own credential. `None`: its address cannot be written as a URI,
    /// which a checked configuration rules out.
    pub fn request(&self, endpoint: &Endpoint, what: Outgoing<'_>) -> Option<Request<Parcel>> {
        let way = self.roads.way(&endpoint.key)?;
        let target = paths::target(&endpoint.config, what.path, what.model);
        let mut request = Request::new(what.body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target.parse().ok()?;
        let headers = request.headers_mut();
        headers.reserve(FIELDS);
        headers::send_along(headers, endpoint.config.kind, what.caller, what.id);
        headers.insert(header::CONTENT_TYPE, what.content_type);
        if let Some((name, value)) = &way.credential {
            headers.insert(name.clone(), value.clone());
        } else if endpoint.config.api_key.is_some() {
            return None;
        }
        Some(request)
    }

    /// A question for a path of the endpoint's own, without a credential.
    pub fn get(path: &str) -> Option<Request<Parcel>> {
        let uri: Uri = path.parse().ok()?;
        Request::get(uri).body(Parcel::default()).ok()
    }

    /// Sends a request to `endpoint` and waits for the head of the answer.
    ///
    /// # Errors
    /// [`SendError`]. A used connection that was just ending is no error: the request is sent once more.
    ///
    /// # Cancel safety
    /// Dropped, the connection is closed or the stream reset.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        request: Request<Parcel>,
    ) -> Result<Response<Arrival>, SendError> {
        let way = self.roads.way(&endpoint.key).ok_or(ConnectError::Name)?;
        let lane = self.lanes.get(way.lane).ok_or(ConnectError::Name)?;
        let (found, is_used) = match lane.used() {
            Some(found) => (found, true),
            None => (self.fresh(endpoint, lane, way).await?, false),
        };
        let spare = found.may_end_unheard(is_used).then(|| request.clone());
        let began = clock::instant();
        let lost = match over(lane, way, found, request).await {
            Ok(response) => return Ok(response),
            Err(lost) => lost,
        };
        let was_ending = is_used && lost.is_unanswered && began.elapsed() < STALE_WITHIN;
        let Some(request) = spare.filter(|_| was_ending || lost.is_untouched) else {
            return Err(lost.error);
        };
        endpoint.meters.stale.increment(1);
        let found = match self.fresh(endpoint, lane, way).await {
            Ok(found) => found,
            Err(refused) if lost.is_untouched => return Err(refused.into()),
            // The endpoint may have heard the request, and may have died of it: that nobody answers there
            // any more does not make it one that was never sent.
            Err(_) => return Err(lost.error),
        };
        over(lane, way, found, request).await.map_err(|lost| lost.error)
    }

    async fn fresh(
        &self,
        endpoint: &Endpoint,
        lane: &Lane,
        way: &Way,
    ) -> Result<Found, ConnectError> {
        let began = clock::instant();
        let made = tokio::time::timeout(way.connect, lane.fresh(&self.roads.resolver)).await;
        let made = made.unwrap_or_else(|_| Err(lane.late(began)));
        made.inspect_err(|error| endpoint.meters.unconnected(*error))
    }
}

/// Sends a request over a connection.
async fn over(
    lane: &Arc<Lane>,
    way: &Way,
    found: Found,
    mut request: Request<Parcel>,
) -> Result<Response<Arrival>, Lost> {
    match found {
        Found::Own(mut wire) => {
            request.headers_mut().insert(header::HOST, way.host.clone());
            let response = wire.ask(request).await?;
            // Nobody asked for another protocol, and what follows is not HTTP.
            let is_last = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            let over = if is_last { Over::Last(wire) } else { Over::Own(wire, Arc::clone(lane)) };
            Ok(response.map(|body| Arrival::new(body, over)))
        }
        Found::Shared(mut channel, place) => {
            if let Some(uri) = way.absolute(request.uri()) {
                *request.uri_mut() = uri;
            }
            *request.version_mut() = Version::HTTP_2;
            let response = channel.ask(request).await?;
            Ok(response.map(|body| Arrival::new(body, Over::Shared(place))))
        }
    }
}

/// Closes what has rested for too long, while the worker lives.
async fn sweep(swept: Weak<Mutex<Arc<Vec<Arc<Lane>>>>>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(swept) = swept.upgrade() else { return };
        let lanes = Arc::clone(&swept.lock().unwrap_or_else(PoisonError::into_inner));
        let now = clock::instant();
        for lane in lanes.iter() {
            lane.sweep(now);
        }
    }
}
