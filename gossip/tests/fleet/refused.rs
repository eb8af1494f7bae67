//! Who may not talk to a node at all.

use std::net::UdpSocket;
use std::path::PathBuf;

use gossip::{Carrier, GossipError, Mine, Reject, Tls};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::certificates::issue_for;
use crate::stranger::Stranger;
use crate::world::{Certificates, PATIENCE, Running, config, read, start};

/// Connects as told, sends a frame, and waits until the node has refused the handshake.
async fn expect_refusal(node: &mut Running, tls: Option<Tls>, cluster_id: &str) {
    let before = read(&node.carrier.stats.handshakes_refused);
    // A client of TLS 1.3 is done before the server has seen its certificate.
    if let Ok(stranger) = Stranger::connect(node.address(), tls, cluster_id).await {
        stranger.send(&[1, 0x53, 0xb0, 0, 3]).await;
        timeout(PATIENCE, stranger.connection.closed()).await.unwrap();
    }
    node.wait_for_count("the refusal", |carrier| read(&carrier.stats.handshakes_refused) > before)
        .await;
    assert_eq!(read(&node.carrier.stats.frames_in), 0, "nothing was read");
    assert_eq!(read(&node.carrier.stats.connections), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g07_who_is_not_of_the_fleet_is_refused_before_a_byte_is_read() {
    let certificates = Certificates::for_nodes(&["one", "two", "late"]);
    issue_for(certificates.directory.path(), "late", None);
    let others = Certificates::for_nodes(&["two"]);
    let mut node = start(config("one", certificates.of("one"), &[])).await;
    expect_refusal(&mut node, Some(others.of("two")), "fleet").await;
    expect_refusal(&mut node, Some(certificates.of("late")), "fleet").await;
    expect_refusal(&mut node, None, "fleet").await;
    expect_refusal(&mut node, Some(Tls::Insecure), "fleet").await;
    expect_refusal(&mut node, Some(certificates.of("two")), "another").await;
    assert!(node.carrier.ours.borrow().members.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g07_the_certificate_of_one_node_does_not_speak_for_another() {
    let certificates = Certificates::for_nodes(&["one", "two", "rogue"]);
    let mut node = start(config("one", certificates.of("one"), &[])).await;
    let rogue = Some(certificates.of("rogue"));
    let stranger = Stranger::connect(node.address(), rogue, "fleet").await.unwrap();
    // Format 2, the name, generation 9, no hops, no certificate, no records.
    let push = [&[2, 2, 3], "two".as_bytes(), &[9, 0, 0, 0]].concat();
    stranger.send(&push).await;
    let is_counted = |carrier: &Carrier| carrier.stats.rejects(Reject::Identity) == 1;
    node.wait_for_count("the refusal", is_counted).await;
    assert_eq!(read(&node.carrier.stats.pushes_in), 0);
    assert!(node.carrier.ours.borrow().members.is_empty());
    // A node that would take the certificate of another one for its own does not even start.
    let borrowed = config("two", certificates.of("rogue"), &[]);
    let (_, mine) = watch::channel(Mine::default());
    let (_, stop) = watch::channel(false);
    let started = gossip::start(borrowed, mine, stop).await.map(|_| ());
    assert!(matches!(started, Err(GossipError::CertificateName { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_does_not_talk_to_a_server_of_another_ca_either() {
    let ours = Certificates::for_nodes(&["one"]);
    let theirs = Certificates::for_nodes(&["two"]);
    let two = start(config("two", theirs.of("two"), &[])).await;
    let mut one = start(config("one", ours.of("one"), &[two.address()])).await;
    one.wait_for_count("the refusal", |carrier| read(&carrier.stats.handshakes_refused) > 0).await;
    assert_eq!(read(&one.carrier.stats.frames_out), 0);
    assert_eq!(read(&two.carrier.stats.frames_in), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_under_one_name_do_not_talk() {
    let certificates = Certificates::for_nodes(&["one"]);
    let mut one = start(config("one", certificates.of("one"), &[])).await;
    let mut twin = config("one", certificates.of("one"), &[one.address()]);
    twin.generation = 2;
    let twin = start(twin).await;
    one.wait_for_count("the twin", |carrier| carrier.stats.rejects(Reject::Identity) > 0).await;
    assert_eq!(read(&one.carrier.stats.frames_in) + read(&twin.carrier.stats.frames_in), 0);
}

#[tokio::test]
async fn what_cannot_work_is_an_error_at_the_start() {
    let certificates = Certificates::for_nodes(&["one", "two"]);
    let good = config("one", certificates.of("one"), &[]);
    let begin = async |config| {
        let (_, mine) = watch::channel(Mine::default());
        let (_, stop) = watch::channel(false);
        gossip::start(config, mine, stop).await.map(|_| ())
    };

    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut bad = good.clone();
    bad.listen = taken.local_addr().unwrap();
    assert!(matches!(begin(bad).await, Err(GossipError::Bind { .. })));

    let mut bad = good.clone();
    bad.tls = certificates.of("missing");
    assert!(matches!(begin(bad).await, Err(GossipError::ReadFile { .. })));

    let mut bad = good.clone();
    bad.tls = certificates.of("two");
    assert!(matches!(begin(bad).await, Err(GossipError::CertificateName { .. })));

    let mut bad = good.clone();
    let Tls::Files { ca, cert, .. } = certificates.of("one") else { panic!("files were made") };
    bad.tls = Tls::Files { ca, key: PathBuf::from(&cert), cert };
    assert!(matches!(begin(bad).await, Err(GossipError::ParsePem { .. })));

    let mut bad = good.clone();
    bad.cluster_id = "long".repeat(100);
    assert!(matches!(begin(bad).await, Err(GossipError::Configure { .. })));

    let mut bad = good.clone();
    bad.advertise = "0.0.0.0:7946".to_owned();
    assert!(matches!(begin(bad).await, Err(GossipError::Configure { .. })));
    assert!(begin(good).await.is_ok());
}
