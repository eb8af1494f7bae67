//! One endpoint and the way to it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway::app::App;
use gateway::config::{self, Config};
use gateway::fleet::{Endpoint, Fleet, Sink};
use gateway::metrics::Meters;
use gateway::upstream::{Arrival, Lookup, Outgoing, RoadError, Roads, SendError, Upstream};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::header::{HeaderMap, HeaderValue};
use quorum::EndpointKey;

use crate::local::{QUESTION, soon};

/// An endpoint, and one worker's ways to it.
pub(crate) struct Kit {
    pub(crate) upstream: Upstream,
    pub(crate) endpoint: Arc<Endpoint>,
    meters: Arc<Meters>,
}

/// A gateway with one endpoint, changed by `edit`.
pub(crate) fn plan(authority: &str, edit: impl Fn(&mut config::Endpoint)) -> Config {
    let text = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
retry: {{ on: [] }}
timeouts: {{ connect: 600ms, first_byte: 3s }}
models:
  - name: demo
    endpoints:
      - {{ name: a, address: \"http://{authority}\" }}
"
    );
    let mut config = config::parse(&text, "test.yaml", &|_| None).unwrap();
    for endpoint in config.pools.iter_mut().flat_map(|pool| &mut pool.endpoints) {
        edit(endpoint);
    }
    config
}

/// A running gateway of such a plan.
pub(crate) async fn gateway(address: SocketAddr, edit: impl Fn(&mut config::Endpoint)) -> App {
    App::start(&plan(&address.to_string(), edit)).await.unwrap()
}

/// Answers for every name with these addresses.
pub(crate) fn always(addresses: &[&str]) -> Lookup {
    let addresses: Vec<IpAddr> = addresses.iter().map(|one| one.parse().unwrap()).collect();
    Box::new(move |_| {
        let addresses = addresses.clone();
        Box::pin(async move { Ok(addresses) })
    })
}

/// The way to an endpoint at `address`.
pub(crate) fn kit(address: SocketAddr) -> Kit {
    kit_with(&address.to_string(), always(&[]), |_| {}).unwrap()
}

/// The way to an endpoint at `authority`, whose name `lookup` resolves.
pub(crate) fn kit_with(
    authority: &str,
    lookup: Lookup,
    edit: impl Fn(&mut config::Endpoint),
) -> Result<Kit, RoadError> {
    let config = plan(authority, edit);
    let meters = Arc::new(Meters::new());
    let sink: Sink = Arc::new(|_| {});
    let fleet = Fleet::new(&config.pools, &meters, &sink);
    let endpoint = Arc::clone(fleet.endpoint(&EndpointKey::new("demo/a")).unwrap().1);
    let roads = Roads::with_lookup(&config.pools, usize::MAX, lookup)?;
    Ok(Kit { upstream: Upstream::new(&roads), endpoint, meters })
}

impl Kit {
    /// Sends a question and waits for the head of the answer.
    pub(crate) async fn head(&self) -> Result<Response<Arrival>, SendError> {
        let what = Outgoing {
            path: "/v1/chat/completions",
            model: "demo",
            content_type: HeaderValue::from_static("application/json"),
            id: &HeaderValue::from_static("id"),
            caller: &HeaderMap::new(),
            body: Bytes::from(QUESTION).into(),
        };
        let request = self.upstream.request(&self.endpoint, what).unwrap();
        soon("the head", self.upstream.send(&self.endpoint, request)).await
    }

    /// Sends a question and reads the whole answer.
    pub(crate) async fn ask(&self) -> Result<(u16, String), SendError> {
        let response = self.head().await?;
        let status = response.status().as_u16();
        let body = soon("the body", response.into_body().collect()).await;
        let body = body.map_err(|_| SendError::Broken)?.to_bytes();
        Ok((status, String::from_utf8(body.to_vec()).unwrap()))
    }

    /// How often a request was silently sent again.
    pub(crate) fn stale(&self) -> u64 {
        let page = self.meters.render();
        let line = page.lines().find_map(|line| {
            line.strip_prefix("quorumgate_stale_connections_total{endpoint=\"demo/a\"} ")
        });
        line.map_or(0, |count| count.parse().unwrap())
    }
}

/// Lets time pass without waiting for it.
pub(crate) async fn pass(period: Duration) {
    tokio::time::pause();
    tokio::time::advance(period).await;
    tokio::time::resume();
}
