//! What goes on around a reload: a fleet, connections on both sides, a certificate.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "fleet/mod.rs"]
mod fleet;
#[path = "process/mod.rs"]
mod process;
#[path = "stand/mod.rs"]
mod stand;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway::mock::Behaviour;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::fleet::{Fleet, Plan};
use crate::process::{CHAT, chat_body, mock, until};
use crate::stand::{HEAD, Stand, replace, yaml};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_gains_and_loses_an_endpoint_and_a_model_under_load() {
    let ((c, slow), (d, _d)) = (mock("c").await, mock("d").await);
    let fleet = Fleet::start(Plan::new("60s")).await;
    let more = |yaml: &str| {
        let rows = format!("      - {{ name: c, address: \"http://{c}\" }}\n");
        let model = format!(
            "  - name: n\n    endpoints:\n      - {{ name: d, address: \"http://{d}\" }}\n"
        );
        format!("{yaml}{rows}{model}")
    };
    let states = async |key: &str| {
        let mut states = Vec::new();
        for node in &fleet.nodes {
            let list = node.look("/admin/v1/endpoints").await;
            let rows = list["endpoints"].as_array().unwrap().clone();
            let row = rows.into_iter().find(|row| row["endpoint"] == key || row["key"] == key);
            states.push(row.map(|row| row["cluster"]["state"].as_str().unwrap().to_owned()));
        }
        states
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let load = async {
        while !is_over.load(Ordering::Relaxed) {
            for node in &fleet.nodes {
                assert_eq!(node.chat().await, StatusCode::OK, "{}", node.name);
            }
        }
    };
    let story = async {
        fleet.take(more).await;
        assert_eq!(states("m/c").await, vec![Some("closed".to_owned()); 3]);
        for node in &fleet.nodes {
            assert_eq!(node.chat_for("n").await, StatusCode::OK);
        }
        until("all know of one configuration", async || {
            let members = fleet.nodes[0].look("/admin/v1/members").await;
            let members = members["members"].as_array().unwrap().clone();
            members.iter().all(|one| one["config_hash"] == members[0]["config_hash"])
        })
        .await;
        // The new one is judged like the others.
        slow.set(Behaviour { latency_ms: Some(1_000), ..Behaviour::default() });
        until("the fleet takes the new one out", async || {
            states("m/c").await == vec![Some("open".to_owned()); 3]
        })
        .await;
        slow.set(Behaviour::default());
        fleet.take(str::to_owned).await;
        assert_eq!(states("m/c").await, vec![None; 3]);
        for node in &fleet.nodes {
            assert_eq!(node.chat_for("n").await, StatusCode::NOT_FOUND);
        }
        // What was said of it is forgotten by all before it comes back.
        tokio::time::sleep(Duration::from_secs(3)).await;
        fleet.take(more).await;
        until("the one that is back is in", async || {
            states("m/c").await == vec![Some("closed".to_owned()); 3]
        })
        .await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(load, story);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_a_place_that_stays_are_kept_and_the_others_closed() {
    let ((a, stays), (b, goes)) = (mock("a").await, mock("b").await);
    let stand = Stand::start(&yaml("", &[("a", a), ("b", b)]));
    until("both are used", async || {
        assert_eq!(stand.gateway.chat().await, StatusCode::OK);
        stays.counts().requests > 0 && goes.counts().requests > 0
    })
    .await;
    let before = stays.counts().connections;
    for attempts in 1..10 {
        let more = format!("retry: {{ max_attempts: {attempts} }}\n");
        // Under another name of the endpoint and another model's it is the same place.
        let name = format!("a{attempts}");
        stand.take(&yaml(&more, &[(name.as_str(), a)])).await;
        assert_eq!(stand.gateway.chat().await, StatusCode::OK);
    }
    assert_eq!(stays.counts().connections, before, "no further one was made");
    let established = |address: SocketAddr| {
        let table =
            std::fs::read_to_string(format!("/proc/{}/net/tcp", stand.gateway.id())).unwrap();
        let remote = format!("0100007F:{:04X} 01", address.port());
        table.lines().filter(|line| line.contains(&remote)).count()
    };
    assert_eq!((established(a) > 0, established(b)), (true, 0));
}

/// A certificate of its own authority.
struct Paper {
    pem: (String, String),
    der: CertificateDer<'static>,
}

impl Paper {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["gateway.test".to_owned()]).unwrap();
        let pem = (made.cert.pem(), made.signing_key.serialize_pem());
        Self { pem, der: made.cert.der().clone() }
    }

    /// A connection of a client that trusts this certificate alone.
    async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(rustls::ALL_VERSIONS).unwrap();
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("gateway.test").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k11_a_renewed_certificate_is_shown_while_old_connections_go_on() {
    let (address, _mock) = mock("a").await;
    let (old, new, directory) = (Paper::new(), Paper::new(), tempfile::tempdir().unwrap());
    let at = |name: &str| directory.path().join(name);
    let put = |cert: &Paper, key: &Paper| {
        replace(&at("cert"), &cert.pem.0);
        replace(&at("key"), &key.pem.1);
    };
    put(&old, &old);
    let tls = format!(
        "tls: {{ cert: {}, key: {} }}, workers: 1",
        at("cert").display(),
        at("key").display()
    );
    let plain = yaml("", &[("a", address)]);
    assert!(plain.starts_with(HEAD));
    let stand = Stand::start(&plain.replacen("workers: 1", &tls, 1));
    let clients = stand.gateway.clients;
    let io = TokioIo::new(old.connect(clients).await.unwrap());
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut ask = async || {
        let request = Request::post(CHAT).header("host", "gateway.test");
        let request = request.header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(chat_body(false)))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        response.into_body().collect().await.unwrap();
        status
    };
    assert_eq!(ask().await, StatusCode::OK);
    put(&new, &old);
    let (status, answer) = stand.reload().await;
    assert_eq!(status, StatusCode::CONFLICT, "half of a pair was taken on: {answer}");
    old.connect(clients).await.unwrap();
    // Nobody asks for it: the files are looked at.
    let renewed = Instant::now();
    put(&new, &new);
    until("the new certificate is shown", async || new.connect(clients).await.is_ok()).await;
    assert!(renewed.elapsed() < Duration::from_secs(12), "{:?}", renewed.elapsed());
    assert!(old.connect(clients).await.is_err());
    assert_eq!(ask().await, StatusCode::OK, "the connection from before goes on");
}
