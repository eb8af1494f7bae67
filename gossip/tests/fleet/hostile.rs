//! A member with a good certificate that sends what it should not: each named after its case.

use std::net::SocketAddr;
use std::time::Instant;

use gossip::{Carrier, Reject};

use crate::frames::{Delta, digest, entry, syn, text};
use crate::stranger::Stranger;
use crate::world::{Certificates, Running, config, has_vote, is_live, read, start, vote};

const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8_080);

/// A node with a peer, and a hostile member that is connected to it.
pub(crate) async fn scene() -> (Certificates, Running, Running, Stranger) {
    let certificates = Certificates::for_nodes(&["one", "two", "rogue"]);
    let mut one = start(config("one", certificates.of("one"), &[])).await;
    let two = start(config("two", certificates.of("two"), &[one.address()])).await;
    one.wait("the peer", |ours| is_live(ours, "two")).await;
    let tls = Some(certificates.of("rogue"));
    let rogue = Stranger::connect(one.address(), tls, "fleet").await.unwrap();
    (certificates, one, two, rogue)
}

/// Checks that gossip still works: the peer's vote arrives, and no task had to be started again.
pub(crate) async fn expect_alive(one: &mut Running, two: &Running) {
    two.state(vec![vote("chat/after", 1_000, true)]);
    one.wait("a vote afterwards", |ours| has_vote(ours, "two", "chat/after")).await;
    assert_eq!(read(&one.carrier.stats.restarts), 0, "the task is alive");
    assert_eq!(one.carrier.ours.borrow().members.len(), 1, "no member was invented");
}

/// Sends a frame and waits until it has been counted under the reason.
pub(crate) async fn expect_reject(
    one: &mut Running,
    rogue: &Stranger,
    frame: &[u8],
    reason: Reject,
) {
    let before = one.carrier.stats.rejects(reason);
    rogue.send(frame).await;
    let is_counted = |carrier: &Carrier| carrier.stats.rejects(reason) > before;
    one.wait_for_count(reason.as_str(), is_counted).await;
}

/// Sends one frame that must be refused for the reason, and checks that nothing has changed.
async fn expect_refused(frame: impl Fn(&Running, &Running) -> Vec<u8>, reason: Reject) {
    let (_certificates, mut one, two, rogue) = scene().await;
    let frame = frame(&one, &two);
    expect_reject(&mut one, &rogue, &frame, reason).await;
    let two_now = one.member("two").unwrap();
    assert_eq!((two_now.generation, two_now.is_live, two_now.heard.len()), (1, true, 0));
    expect_alive(&mut one, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g01_a_forged_delta_for_ones_own_node_is_refused() {
    let own = |one: &Running, _: &Running| {
        Delta::of("one", 1, one.address()).key("c", "forged", 99).frame()
    };
    expect_refused(own, Reject::Identity).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g02_a_heartbeat_that_ends_all_counting_is_refused() {
    let eternal =
        |_: &Running, two: &Running| syn(&digest(vec![entry("two", 1, two.address(), u64::MAX)]));
    expect_refused(eternal, Reject::Implausible).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g03_a_version_that_ends_all_counting_is_refused() {
    let last = |_: &Running, two: &Running| {
        Delta::of("two", 1, two.address()).key("v/chat/a", "x", u64::MAX).frame()
    };
    expect_refused(last, Reject::Implausible).await;
    let greatest = |_: &Running, two: &Running| {
        Delta::of("two", 1, two.address()).greatest_version(u64::MAX).frame()
    };
    expect_refused(greatest, Reject::Implausible).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g04_a_key_version_above_the_announced_maximum_is_refused() {
    let above = |_: &Running, two: &Running| {
        Delta::of("two", 1, two.address()).key("v/chat/a", "x", 500).greatest_version(400).frame()
    };
    expect_refused(above, Reject::Undecodable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_digest_with_a_thousand_invented_nodes_is_refused() {
    let crowd = |_: &Running, _: &Running| {
        let invented = (0..1_100).map(|number| entry(&number.to_string(), 1, NOWHERE, 1));
        syn(&digest(invented.collect()))
    };
    expect_refused(crowd, Reject::Oversize).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_frames_that_are_none_are_counted_and_survived() {
    let (_certificates, mut one, two, rogue) = scene().await;
    expect_reject(&mut one, &rogue, &[], Reject::Undecodable).await;
    expect_reject(&mut one, &rogue, &[1], Reject::Undecodable).await;
    expect_reject(&mut one, &rogue, &[2], Reject::Undecodable).await;
    expect_reject(&mut one, &rogue, &[77], Reject::UnknownFormat).await;
    expect_reject(&mut one, &rogue, &[1; 64 * 1_024 + 1], Reject::Oversize).await;
    expect_reject(&mut one, &rogue, &[1; 64 * 1_024], Reject::Undecodable).await;
    expect_reject(&mut one, &rogue, &vec![1; 16 * 1_024 * 1_024], Reject::Oversize).await;
    expect_alive(&mut one, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_a_frame_cut_at_any_byte_is_refused() {
    let (_certificates, mut one, two, rogue) = scene().await;
    let whole = syn(&digest(vec![entry("two", 1, two.address(), 1)]));
    let before = one.carrier.stats.rejects(Reject::Undecodable);
    for end in 0..whole.len() {
        let (cut, _) = whole.split_at(end);
        rogue.throw(cut).await;
    }
    let all = before + whole.len() as u64;
    let are_counted = |carrier: &Carrier| carrier.stats.rejects(Reject::Undecodable) == all;
    one.wait_for_count("each cut frame", are_counted).await;
    expect_alive(&mut one, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_random_frames_do_no_harm() {
    let (_certificates, mut one, two, rogue) = scene().await;
    let seed = 4_242;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..240 {
        let bytes: Vec<u8> = (0..random.usize(0..500)).map(|_| random.u8(..)).collect();
        rogue.throw(&[&[1 + round % 3], bytes.as_slice()].concat()).await;
    }
    expect_alive(&mut one, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g19_a_key_that_begins_inside_a_character_is_refused() {
    let odd = |_: &Running, two: &Running| {
        Delta::of("two", 1, two.address()).key("ä", "value", 99).frame()
    };
    expect_refused(odd, Reject::Implausible).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_of_another_fleet_is_refused() {
    let foreign =
        |_: &Running, _: &Running| [&[1, 0x53, 0xb0, 0, 0, 0, 0][..], &text("another")].concat();
    expect_refused(foreign, Reject::WrongCluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_in_another_nodes_name_is_refused() {
    let (_certificates, mut one, two, rogue) = scene().await;
    // Format 2, the name, generation 9, no hops, no certificate, no records.
    let push = |name: &str| [&[2, 2, name.len() as u8], name.as_bytes(), &[9, 0, 0, 0]].concat();
    expect_reject(&mut one, &rogue, &push("two"), Reject::Identity).await;
    expect_reject(&mut one, &rogue, &push("one"), Reject::Identity).await;
    assert_eq!(one.member("two").unwrap().generation, 1);
    let before = read(&one.carrier.stats.pushes_in);
    rogue.send(&push("rogue")).await;
    one.wait_for_count("its own push", |carrier| read(&carrier.stats.pushes_in) > before).await;
    expect_alive(&mut one, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g13_a_flood_from_one_member_is_cut_and_the_others_are_heard() {
    let (_certificates, mut one, two, rogue) = scene().await;
    let begin = Instant::now();
    // An acknowledgement without content, since it calls for no answer.
    for _ in 0..10_000 {
        rogue.throw(&[1, 0x53, 0xb0, 0, 2, 0]).await;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let cut = one.carrier.stats.rejects(Reject::Rate);
    println!("10,000 frames in {seconds:.2} s, {cut} cut");
    assert!(cut > 0, "10,000 frames in {seconds:.2} s went through");
    expect_alive(&mut one, &two).await;
}
