//! What all workers know about the ways to the endpoints: where they lead, and what never changes about
//! a request to them.
//!
//! It is made once of each configuration, so that a bad certificate stops a start, and so that a request
//! formats nothing that was known before it came.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use quorum::EndpointKey;

use super::connect::{Destination, Host};
use super::headers;
use super::resolve::{self, Lookup, Resolver};
use super::tls::{self, TlsError, Wardrobe};
use crate::config::{self, Protocol, UpstreamTls};
use crate::handles::Sockets;

/// Why there is no way to an endpoint.
#[derive(Debug, thiserror::Error)]
#[error("models: endpoint {endpoint}: {source}")]
pub struct RoadError {
    /// Which endpoint.
    pub endpoint: EndpointKey,
    /// Why.
    pub source: TlsError,
}

/// The ways to all endpoints of a configuration.
pub struct Roads {
    ways: HashMap<EndpointKey, Way>,
    /// What leads to which destination.
    places: HashMap<Place, usize>,
    /// Places, each once, however many endpoints lie there.
    pub(super) destinations: Vec<Arc<Destination>>,
    pub(super) resolver: Arc<Resolver>,
    /// How many connections there may be, and are.
    pub(super) sockets: Arc<Sockets>,
}

/// The way to one endpoint.
pub(super) struct Way {
    /// The place of its destination.
    pub(super) lane: usize,
    /// How long a connection may take.
    pub(super) connect: Duration,
    /// What requests call the other side.
    pub(super) host: HeaderValue,
    /// The same for HTTP/2.
    pub(super) authority: Authority,
    pub(super) scheme: Scheme,
    pub(super) credential: Option<(HeaderName, HeaderValue)>,
}

/// What makes two endpoints one place.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    authority: String,
    tls: Option<UpstreamTls>,
    protocol: Protocol,
    /// A digest of the files of TLS.
    print: u64,
}

impl Roads {
    /// Finds the ways, and reads every file that they need. At most `sockets_max` connections lead along
    /// them at once, whoever uses them.
    ///
    /// # Errors
    /// A file of TLS that is of no use; the error is one line.
    pub fn new(pools: &[config::Pool], sockets_max: usize) -> Result<Arc<Self>, RoadError> {
        Self::with_lookup(pools, sockets_max, resolve::system())
    }

    /// The same, with names answered by `lookup`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_lookup(
        pools: &[config::Pool],
        sockets_max: usize,
        lookup: Lookup,
    ) -> Result<Arc<Self>, RoadError> {
        let resolver = Resolver::new(lookup);
        let nothing = Self {
            ways: HashMap::new(),
            places: HashMap::new(),
            destinations: Vec::new(),
            resolver,
            sockets: Sockets::new(sockets_max),
        };
        nothing.heir(pools)
    }

    /// The ways of another configuration. A place to which a way leads already stays the same, with
    /// what is known of its name.
    ///
    /// # Errors
    /// As [`Self::new`]; nothing has changed.
    pub fn heir(&self, pools: &[config::Pool]) -> Result<Arc<Self>, RoadError> {
        let mut wardrobe = Wardrobe::default();
        let (mut ways, mut places) = (HashMap::new(), HashMap::new());
        let mut destinations = Vec::new();
        let all = pools.iter().flat_map(|pool| pool.endpoints.iter().map(move |one| (pool, one)));
        for (pool, endpoint) in all {
            let key = EndpointKey::new(&format!("{}/{}", pool.name, endpoint.name));
            let refuse = |source| RoadError { endpoint: key.clone(), source };
            let place = Place::of(endpoint, &mut wardrobe).map_err(refuse)?;
            let lane = match places.get(&place) {
                Some(lane) => *lane,
                None => {
                    let found = match self.places.get(&place) {
                        Some(known) => self.destinations.get(*known).map(Arc::clone),
                        None => None,
                    };
                    let found = match found {
                        Some(found) => found,
                        None => Arc::new(destination(endpoint, &mut wardrobe).map_err(refuse)?),
                    };
                    destinations.push(found);
                    let lane = destinations.len() - 1;
                    places.insert(place, lane);
                    lane
                }
            };
            let way = Way::new(endpoint, lane, pool.timeouts.connect).map_err(refuse)?;
            ways.insert(key, way);
        }
        let (resolver, sockets) = (Arc::clone(&self.resolver), Arc::clone(&self.sockets));
        Ok(Arc::new(Self { ways, places, destinations, resolver, sockets }))
    }

    /// Forgets what is known of names to which no way leads.
    pub fn forget_others(&self) {
        let names = self.destinations.iter().filter_map(|to| match &to.host {
            Host::Name(name) => Some(name.as_str()),
            Host::Literal(_) => None,
        });
        self.resolver.retain(&names.collect());
    }

    pub(super) fn way(&self, endpoint: &EndpointKey) -> Option<&Way> {
        self.ways.get(endpoint)
    }
}

impl Place {
    fn of(endpoint: &config::Endpoint, wardrobe: &mut Wardrobe) -> Result<Self, TlsError> {
        let print = endpoint.tls.as_ref().map(|tls| wardrobe.print(tls)).transpose()?;
        Ok(Self {
            authority: endpoint.authority.clone(),
            tls: endpoint.tls.clone(),
            protocol: endpoint.protocol,
            print: print.unwrap_or_default(),
        })
    }
}

impl Way {
    fn new(endpoint: &config::Endpoint, lane: usize, connect: Duration) -> Result<Self, TlsError> {
        let is_secure = endpoint.tls.is_some();
        // Some servers do not know their own name with a port that goes without saying.
        let plain = if is_secure { ":443" } else { ":80" };
        let text = &endpoint.authority;
        let text = text.strip_suffix(plain).unwrap_or(text);
        let unwritable = || TlsError::Name { name: text.to_owned() };
        Ok(Self {
            lane,
            connect,
            host: HeaderValue::from_str(text).map_err(|_| unwritable())?,
            authority: text.parse().map_err(|_| unwritable())?,
            scheme: if is_secure { Scheme::HTTPS } else { Scheme::HTTP },
            credential: headers::credential(endpoint),
        })
    }

    /// The address of a request for `path` in full, as HTTP/2 wants it.
    pub(super) fn absolute(&self, path: &Uri) -> Option<Uri> {
        let mut parts = path.clone().into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        Uri::from_parts(parts).ok()
    }
}

fn destination(
    endpoint: &config::Endpoint,
    wardrobe: &mut Wardrobe,
) -> Result<Destination, TlsError> {
    let unusable = || TlsError::Name { name: endpoint.authority.clone() };
    let (host, port) = endpoint.authority.rsplit_once(':').ok_or_else(unusable)?;
    let port = port.parse().map_err(|_| unusable())?;
    let tls = match &endpoint.tls {
        Some(tls) => {
            let config = wardrobe.config(tls, endpoint.protocol)?;
            Some((config, tls::server_name(tls, host)?))
        }
        None => None,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let host = match bare.parse::<IpAddr>() {
        Ok(address) => Host::Literal(address),
        Err(_) => Host::Name(host.to_owned()),
    };
    let wants_http2 = endpoint.protocol == Protocol::Http2;
    Ok(Destination { host, port, tls, wants_http2 })
}
