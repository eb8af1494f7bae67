//! Clients that go on asking a fleet, and what they were answered.
//!
//! Invariants: each node is asked by its own clients, so that one that hangs does not quieten the
//! load on the others; an answer that does not come is a failure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::{Method, StatusCode};
use tokio::task::JoinSet;

use crate::process::{CHAT, call, chat_body};

/// Clients a node.
const CLIENTS: usize = 2;
/// How often a client asks.
const PACE: Duration = Duration::from_millis(50);
/// No answer takes longer: twice the gateway's own limit.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Clients that ask until they are stopped.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    clients: JoinSet<Vec<String>>,
}

impl Load {
    /// Begins to ask these nodes.
    pub(crate) fn on(nodes: impl Iterator<Item = SocketAddr>) -> Self {
        let (is_over, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut clients = JoinSet::new();
        for node in nodes {
            for _ in 0..CLIENTS {
                clients.spawn(client(node, Arc::clone(&is_over), Arc::clone(&answers)));
            }
        }
        Self { is_over, answers, clients }
    }

    /// How many good answers came so far.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    /// Stops asking; all answers that were not good.
    pub(crate) async fn stop(self) -> Vec<String> {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.join_all().await.concat()
    }
}

async fn client(
    node: SocketAddr,
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let body = chat_body(false);
    while !is_over.load(Ordering::Relaxed) {
        pace.tick().await;
        let asked = call(node, Method::POST, CHAT, &[], &body);
        match tokio::time::timeout(ANSWER_MAX, asked).await {
            Ok(Ok((StatusCode::OK, _))) => {
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Ok((status, body))) => failures.push(format!("{node}: {status} {body}")),
            Ok(Err(error)) => failures.push(format!("{node}: {error:?}")),
            Err(_) => failures.push(format!("{node}: no answer within {ANSWER_MAX:?}")),
        }
    }
    failures
}
