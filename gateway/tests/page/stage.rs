//! What stands between a browser and a gateway: a door that stays where it is, and a stage whose API
//! says what the test wants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

/// An address that leads to a gateway, whichever port its next life has.
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    behind: Arc<Mutex<SocketAddr>>,
}

impl Door {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behind = Arc::new(Mutex::new(target));
        let target = Arc::clone(&behind);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let target = *target.lock().unwrap();
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { address, behind }
    }

    /// Leads elsewhere from the next connection on.
    pub(crate) fn lead(&self, target: SocketAddr) {
        *self.behind.lock().unwrap() = target;
    }
}

/// What the API of a stage says to a method and a path with its query.
pub(crate) type Script = dyn Fn(&Method, &str) -> (StatusCode, String) + Send + Sync;

/// A list of events as the feed tells it.
pub(crate) fn feed(events: &[Value]) -> String {
    let event = |event: &Value| format!("id: {}\ndata: {event}\n\n", event["id"].as_str().unwrap());
    events.iter().map(event).collect()
}

/// The page as `gateway` serves it, in front of an API of the test's own.
pub(crate) async fn stage(gateway: SocketAddr, script: Arc<Script>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let script = Arc::clone(&script);
            let service = service_fn(move |request| play(gateway, Arc::clone(&script), request));
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn play(
    gateway: SocketAddr,
    script: Arc<Script>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper_util::client::legacy::Error> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    if let Some(path) = path.strip_prefix("/admin/v1/") {
        let (status, body) = script(request.method(), path);
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        return Ok(response);
    }
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let asked = Request::get(format!("http://{gateway}{path}")).body(Full::default()).unwrap();
    let (head, body) = client.request(asked).await?.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Ok(Response::from_parts(head, Full::new(body)))
}

/// A fleet of `nodes` members.
pub(crate) fn members(nodes: usize) -> Value {
    let row = |index: usize| {
        json!({
            "id": format!("gw-{}", index + 1), "self": index == 0, "generation": 1,
            "address": "127.0.0.1:7946", "state": "live", "lost_for_ms": null, "age_ms": 400,
            "version": "0.1.0", "config_hash": "0123456789abcdef", "steward_of": 0, "muted": false,
        })
    };
    json!({ "members": (0..nodes).map(row).collect::<Vec<_>>() })
}

/// What a node says of a fleet of `nodes` members.
pub(crate) fn cluster(nodes: usize) -> Value {
    json!({
        "node": "gw-1", "electorate": nodes, "quorum": nodes / 2 + 1, "live": nodes,
        "suspect": false, "can_decide": true, "observing_ms": 0, "name_used_at": null,
    })
}

/// An endpoint that is out for the fleet, or in.
pub(crate) fn endpoint(index: usize, is_out: bool) -> Value {
    let vote = json!({
        "voter": "gw-2", "weight": "counts", "state": "stands", "incident": 1,
        "basis": "first_hand", "reason": "slow", "age_ms": 4_000,
        "evidence": { "requests": 3, "faults": 0, "successes": 1, "slow_pieces": 2 },
    });
    json!({
        "endpoint": format!("m/e{index}"), "pool": "m", "name": format!("e{index}"),
        "in_rotation": !is_out, "verdict": if is_out { "out for the whole fleet" } else { "in" },
        "next": if is_out { "gw-2 sends one probe for the whole fleet in 20 s" } else { "nothing" },
        "next_in_ms": if is_out { Some(20_000) } else { None }, "forced": "auto", "forced_for_ms": null, "forced_by": null,
        "forced_reason": null, "cooling_ms": 0, "misconfigured": false, "in_flight": 0,
        "weight_percent": if is_out { 0 } else { 100 }, "latency_ms": 120, "open_share": 0.0,
        "local": { "state": "closed", "rung": null, "mode": "enforce", "held": is_out,
            "remaining_ms": null, "level": 0, "reason": null },
        "cluster": { "state": if is_out { "open" } else { "closed" }, "incident": 1,
            "due_in_ms": if is_out { Some(20_000) } else { None }, "level": 0, "step": null,
            "canary": null, "steward": "gw-2", "votes_counted": 2, "quorum": 2, "electorate": 3 },
        "votes": if is_out { vec![vote] } else { Vec::new() },
        "windows": [], "history": [], "evidence": {},
    })
}

/// The same with `text` put before every string that is not a word of the API.
pub(crate) fn poisoned(value: Value, text: &str) -> Value {
    const WORDS: [&str; 14] = [
        "live", "auto", "open", "closed", "counts", "enforce", "stands", "m/e0", "m/e1", "m",
        "gw-1", "gw-2", "full", "flip",
    ];
    match value {
        Value::String(word) if WORDS.contains(&word.as_str()) => Value::String(word),
        Value::String(word) => Value::String(format!("{text}{word}")),
        Value::Array(rows) => rows.into_iter().map(|row| poisoned(row, text)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, poisoned(value, text)));
            Value::Object(fields.collect())
        }
        plain => plain,
    }
}
