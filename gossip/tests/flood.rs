//! Strangers who begin ten thousand handshakes a second and finish none.
//!
//! Alone in its binary, so that the memory of the process is that of the node under the flood.

#![expect(clippy::unwrap_used, reason = "a test may stop loudly")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gossip::{Carrier, Config, Mine, Tls, certs};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustls::RootCertStore;
use rustls::crypto::ring;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// First packets of different connections, each sent this many times.
const INITIALS: usize = 1_000;
const ROUNDS: usize = 20;

/// Packets at once, and how often: ten thousand a second.
const BURST: usize = 100;
const BURST_EVERY: Duration = Duration::from_millis(10);

/// Handshakes that are all taken up grow it by 11 to 15 MB.
const GROWTH_MAX_BYTES: usize = 8 * 1_024 * 1_024;

/// What a carrier hears from; without it, it stops.
type Held = (watch::Sender<Mine>, watch::Sender<bool>);

async fn start(node_id: &str, tls: Tls, seeds: Vec<String>) -> (Carrier, Held) {
    let config = Config {
        cluster_id: "fleet".to_owned(),
        node_id: node_id.to_owned(),
        generation: 1,
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: "127.0.0.1:0".to_owned(),
        seeds,
        gossip_interval: Duration::from_millis(100),
        tls,
        push: true,
    };
    let (mine, mine_out) = watch::channel(Mine::default());
    let (stop, stop_out) = watch::channel(false);
    let (carrier, run) = gossip::start(config, mine_out, stop_out).await.unwrap();
    drop(tokio::spawn(run));
    (carrier, (mine, stop))
}

/// First packets of as many connections, as a client sends them to somebody who does not answer.
async fn initials(count: usize) -> Vec<Vec<u8>> {
    let provider = Arc::new(ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"quorumgate/1/fleet".to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut found = HashSet::new();
    let mut dialling = Vec::new();
    let mut packet = [0; 2_048];
    while found.len() < count {
        let to = silent.local_addr().unwrap();
        dialling.push(client.connect_with(config.clone(), to, "gateway.invalid").unwrap());
        let size = timeout(PATIENCE, silent.recv(&mut packet)).await.unwrap().unwrap();
        found.insert(packet.iter().copied().take(size).collect());
    }
    found.into_iter().collect()
}

/// The resident memory of this process.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4_096)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g14_handshakes_that_strangers_never_finish_take_no_memory_and_shut_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut tls = certs::throw_away(directory.path(), &["one", "two"]).unwrap().into_iter();
    let (one, _held) = start("one", tls.next().unwrap(), Vec::new()).await;
    let packets = initials(INITIALS).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let before = resident_bytes();

    let begin = Instant::now();
    let mut pace = tokio::time::interval(BURST_EVERY);
    let mut sent = 0;
    for packet in packets.iter().cycle().take(INITIALS * ROUNDS) {
        if sent % BURST == 0 {
            pace.tick().await;
        }
        stranger.send_to(packet, one.local_addr).await.unwrap();
        sent += 1;
    }
    let rate = sent as f64 / begin.elapsed().as_secs_f64();
    let grown = resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
    println!("{sent} first packets at {rate:.0} a second; grown by {grown:?} bytes");
    assert!(grown.is_none_or(|grown| grown < GROWTH_MAX_BYTES), "grown by {grown:?} bytes");
    assert_eq!(one.stats.connections.load(Ordering::Relaxed), 0);

    let (mut two, _mine) =
        start("two", tls.next().unwrap(), vec![one.local_addr.to_string()]).await;
    let joined = two.ours.wait_for(|ours| ours.members.iter().any(|member| member.is_live));
    timeout(PATIENCE, joined).await.unwrap().unwrap();
}
