//! The demo's steady traffic: small chat requests, plain and streamed, to all three gateways.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinHandle;

use super::stage::MODEL;

/// Callers for each gateway.
const CALLERS: usize = 6;
/// Each caller rests this long between two requests.
const REST: Duration = Duration::from_millis(100);
/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);

type Caller = Client<HttpConnector, Full<Bytes>>;

/// Traffic that flows until it is stopped.
pub(super) struct Traffic {
    counts: Arc<Counts>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    good: AtomicU64,
    bad: AtomicU64,
    is_over: AtomicBool,
}

/// How the traffic fared so far.
pub(super) struct Tally {
    pub(super) good: u64,
    pub(super) bad: u64,
}

impl Traffic {
    /// Starts the callers.
    pub(super) fn start(gateways: &[SocketAddr]) -> Self {
        let counts = Arc::new(Counts::default());
        let client = Client::builder(TokioExecutor::new()).build_http();
        let callers = gateways
            .iter()
            .flat_map(|gateway| (0..CALLERS).map(move |index| (*gateway, index % 2 == 0)))
            .map(|(gateway, is_stream)| {
                let (client, counts) = (client.clone(), Arc::clone(&counts));
                tokio::spawn(call_on(client, gateway, is_stream, counts))
            })
            .collect();
        Self { counts, callers }
    }

    /// How it fared so far.
    pub(super) fn tally(&self) -> Tally {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Tally { good: read(&self.counts.good), bad: read(&self.counts.bad) }
    }

    /// Lets every caller finish its request.
    pub(super) async fn stop(self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        for caller in self.callers {
            let _ = caller.await;
        }
    }
}

async fn call_on(client: Caller, gateway: SocketAddr, is_stream: bool, counts: Arc<Counts>) {
    while !counts.is_over.load(Ordering::Relaxed) {
        let answered = tokio::time::timeout(PATIENCE, call(&client, gateway, is_stream)).await;
        let count = if answered == Ok(true) { &counts.good } else { &counts.bad };
        count.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(REST).await;
    }
}

/// One request; whether it was answered in full.
async fn call(client: &Caller, gateway: SocketAddr, is_stream: bool) -> bool {
    let body = serde_json::json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": "Tell me a story." }],
        "stream": is_stream,
    });
    let request = Request::post(format!("http://{gateway}/v1/chat/completions"))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())));
    let Ok(request) = request else { return false };
    let Ok(response) = client.request(request).await else { return false };
    let is_success = response.status().is_success();
    let Ok(body) = response.into_body().collect().await else { return false };
    is_success && (!is_stream || body.to_bytes().ends_with(b"data: [DONE]\n\n"))
}
