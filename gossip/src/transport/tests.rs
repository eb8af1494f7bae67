//! The bounds of the transport.

use std::sync::atomic::AtomicU64;

use tokio::time::{Instant, timeout};

use super::*;

fn net(node_id: &str) -> (NetGuard, Arc<Stats>) {
    let config = Config {
        cluster_id: "fleet".to_owned(),
        node_id: node_id.to_owned(),
        generation: 1,
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: "127.0.0.1:0".to_owned(),
        seeds: Vec::new(),
        gossip_interval: Duration::from_secs(1),
        tls: Tls::Insecure,
        push: true,
    };
    let stats = Arc::new(Stats::default());
    let (net, _) = bind(&config, Arc::clone(&stats), mpsc::channel(1).0).unwrap();
    (net, stats)
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what} did not come");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_peer_that_owns_its_address_gets_in_while_handshakes_are_scarce() {
    let ((one, one_stats), (two, two_stats)) = (net("one"), net("two"));
    let taken = Arc::clone(&one.net().handshakes);
    let _taken = taken.try_acquire_many_owned(INCOMING_MAX as u32 - 1).unwrap();
    two.net().send(one.local_addr(), Bytes::from_static(&[9]));
    until("the frame", || read(&one_stats.frames_in) == 1).await;
    assert_eq!(read(&two_stats.handshakes_refused), 0);
    assert_eq!(one_stats.rejects(crate::Reject::UnknownFormat), 1);
    until("the acknowledgement", || two.net().pending() == 0).await;
}

#[tokio::test]
async fn strangers_are_ignored_while_no_handshake_is_free() {
    let ((one, one_stats), (two, _)) = (net("one"), net("two"));
    let taken = Arc::clone(&one.net().handshakes);
    let taken = taken.try_acquire_many_owned(INCOMING_MAX as u32).unwrap();
    two.net().send(one.local_addr(), Bytes::from_static(&[9]));
    until("the refusal", || read(&one_stats.handshakes_refused) > 0).await;
    assert_eq!(read(&one_stats.connections), 0);
    // QUIC says hello again by itself.
    drop(taken);
    until("the frame", || read(&one_stats.frames_in) == 1).await;
}

#[tokio::test]
async fn frames_for_a_peer_out_of_reach_are_bounded_and_dropped() {
    let (one, stats) = net("one");
    // Nobody answers at the discard port.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    for _ in 0..1_000 {
        one.net().send(nobody, Bytes::from_static(&[9]));
    }
    assert_eq!(read(&stats.send_queue_drops), 1_000 - QUEUE_MAX as u64);
    assert_eq!(one.net().pending(), QUEUE_MAX);
    until("giving up", || one.net().pending() == 0).await;
    assert_eq!(read(&stats.send_queue_drops), 1_000);
}

#[tokio::test]
async fn more_peers_than_may_be_are_not_sent_to() {
    let (one, stats) = net("one");
    for port in 1..=PEERS_MAX as u16 + 10 {
        one.net().send(SocketAddr::from(([127, 0, 0, 1], port)), Bytes::from_static(&[9]));
    }
    assert_eq!(read(&stats.send_queue_drops), 10);
}

#[tokio::test]
async fn a_net_that_is_dropped_leaves_its_port_and_no_task() {
    let (one, _) = net("one");
    let (address, net) = (one.local_addr(), Arc::downgrade(one.net()));
    one.net().send(SocketAddr::from(([127, 0, 0, 1], 9)), Bytes::from_static(&[9]));
    tokio::task::yield_now().await;
    drop(one);
    let gone = async {
        while net.upgrade().is_some() || std::net::UdpSocket::bind(address).is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), gone).await.unwrap();
}
