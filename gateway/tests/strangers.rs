//! Strangers at a node's gossip port: thousands of handshakes without a certificate cost it nothing
//! that lasts, and its clients do not notice.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "netns/load.rs"]
mod load;
#[path = "process/mod.rs"]
mod process;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::JoinSet;

use crate::load::Load;
use crate::process::{Gateway, member_head, until};

/// How many come.
const STRANGERS: usize = 2_000;
/// So many at once, enough that they must show that they own their address: beyond an eighth of the
/// places for handshakes. With all places taken the growth levels off higher, near 28 MiB.
const AT_ONCE: usize = 100;
/// A stranger that gets no answer goes away.
const PATIENCE: Duration = Duration::from_secs(3);
/// What the node's memory may grow by after the first half of them: those had their places made, which
/// takes 10 to 25 MiB from run to run, and all who come later find them made.
const GROWTH_KIB_MAX: u64 = 8 * 1_024;

fn configuration(directory: &Path, node: &str, seed: Option<SocketAddr>, up: SocketAddr) -> String {
    let head = member_head(directory, node, seed);
    format!(
        "{head}models:
  - {{ name: m, endpoints: [{{ name: a, address: \"http://{up}\" }}] }}
"
    )
}

/// A client that knows the fleet's authority, its protocol and its name, and has no certificate.
fn stranger(directory: &Path) -> quinn::Endpoint {
    let pem = std::fs::read(directory.join("ca.crt")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&pem) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"quorumgate/1/test".to_vec()];
    let client = QuicClientConfig::try_from(client).unwrap();
    let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(client)));
    endpoint
}

/// One stranger's visit: whether it was turned away rather than ignored. It may take its own part of
/// the handshake for done, and sends before it hears that it was not.
async fn visit(endpoint: quinn::Endpoint, node: SocketAddr) -> bool {
    let refused = async {
        let Ok(connection) = endpoint.connect(node, "gw-1").unwrap().await else { return };
        if let Ok(mut stream) = connection.open_uni().await {
            let _ = stream.write_all(&[0; 1_024]).await;
        }
        connection.closed().await;
    };
    tokio::time::timeout(PATIENCE, refused).await.is_ok()
}

fn memory_kib(process: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn g07_g14_two_thousand_strangers_leave_no_trace_in_memory_and_clients_do_not_notice() {
    let directory = tempfile::tempdir().unwrap();
    gossip::certs::throw_away(directory.path(), &["gw-1", "gw-2"]).unwrap();
    let (up, _mock) = process::mock("a").await;
    let serve = |name: &str, seed| {
        let yaml = configuration(directory.path(), name, seed, up);
        Gateway::serve_by(process::preferred(), directory.path(), name, &yaml)
    };
    let node = serve("gw-1", None);
    let other = serve("gw-2", node.gossip);
    let are_two = async || node.look("/admin/v1/cluster").await["live"] == 2;
    until("the two know each other", are_two).await;
    let load = Load::on([node.clients].into_iter());
    until("clients are served", async || load.answers() > 20).await;

    let at_rest = memory_kib(node.id(), "VmRSS:");
    let mut before = at_rest;
    let endpoint = stranger(directory.path());
    let (answered, began) = (load.answers(), Instant::now());
    let mut turned_away = 0;
    for wave in 0..STRANGERS / AT_ONCE {
        let mut visits = JoinSet::new();
        for _ in 0..AT_ONCE {
            visits.spawn(visit(endpoint.clone(), node.gossip.unwrap()));
        }
        turned_away += visits.join_all().await.into_iter().filter(|refused| *refused).count();
        if wave == STRANGERS / AT_ONCE / 2 {
            before = memory_kib(node.id(), "VmHWM:");
        }
    }
    let (took, served) = (began.elapsed(), load.answers() - answered);
    let peak = memory_kib(node.id(), "VmHWM:");
    let growth = peak.saturating_sub(before);
    eprintln!(
        "{STRANGERS} strangers in {took:?}: {turned_away} turned away, the others ignored; memory \
         {at_rest} KiB at rest, {before} KiB after half of them, at most {peak} KiB; {served} \
         answers to clients meanwhile"
    );
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more");
    assert!(turned_away > STRANGERS / 2, "{turned_away} turned away, the others ignored");
    let gossip = node.look("/admin/v1/cluster").await["gossip"].clone();
    let refused = gossip["handshakes_refused"].as_u64().unwrap();
    assert!(refused >= turned_away as u64, "{refused} handshakes refused: {gossip}");
    assert!(served > 20, "{served} answers in {took:?}");
    assert_eq!(load.stop().await, [""; 0], "clients");
    until("the two still know each other", are_two).await;
    assert_eq!(other.look("/admin/v1/cluster").await["live"], 2);
}
