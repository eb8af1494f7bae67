//! A member with a good certificate that sends what it should not.

use std::time::Instant;

use gossip::{Carrier, Reject};

use crate::stranger::Stranger;
use crate::world::{Certificates, Running, config, has_vote, is_live, read, start, vote};

/// A node with a peer, and a hostile member that is connected to it.
async fn scene() -> (Certificates, Running, Running, Stranger) {
    let certificates = Certificates::for_nodes(&["one", "two", "rogue"]);
    let mut one = start(config("one", certificates.of("one"), &[])).await;
    let two = start(config("two", certificates.of("two"), &[one.address()])).await;
    one.wait("the peer", |ours| is_live(ours, "two")).await;
    let tls = Some(certificates.of("rogue"));
    let rogue = Stranger::connect(one.address(), tls, "fleet").await.unwrap();
    (certificates, one, two, rogue)
}

/// Checks that gossip still works: the peer's vote arrives, and no task had to be started again.
async fn expect_alive(one: &mut Running, two: &Running) {
    two.state(vec![vote("chat/after", 1, true)]);
    one.wait("a vote afterwards", |ours| has_vote(ours, "two", "chat/after")).await;
    assert_eq!(read(&one.carrier.stats.restarts), 0, "the task is alive");
    assert_eq!(one.carrier.ours.borrow().members.len(), 1, "no member was invented");
}

/// Sends a frame and waits until it has been counted under the reason.
async fn expect_reject(one: &mut Running, rogue: &Stranger, frame: &[u8], reason: Reject) {
    let before = one.carrier.stats.rejects(reason);
    rogue.send(frame).await;
    let is_counted = |carrier: &Carrier| carrier.stats.rejects(reason) > before;
    one.wait_for_count(reason.as_str(), is_counted).await;
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
}

/// One node in a digest: name, generation 1, an address, and three counters.
fn entry(name: &str, heartbeat: u64) -> Vec<u8> {
    let address = [4, 127, 0, 0, 1, 0x90, 0x1f];
    let numbers = [heartbeat, 0, 9].map(u64::to_le_bytes).concat();
    [text(name), 1_u64.to_le_bytes().to_vec(), address.to_vec(), numbers].concat()
}

/// A gossip frame that says hello with a digest.
fn syn(entries: &[Vec<u8>]) -> Vec<u8> {
    let count = (entries.len() as u16).to_le_bytes();
    [&[1, 0x53, 0xb0, 0, 0], &count[..], &entries.concat(), &text("fleet")].concat()
}

/// A gossip frame that states one key of a node of generation 1.
fn ack(name: &str, key: &str, version: u64) -> Vec<u8> {
    let address = [4, 127, 0, 0, 1, 0x90, 0x1f];
    let node = [vec![0], text(name), 1_u64.to_le_bytes().to_vec(), address.to_vec(), vec![0; 16]];
    let pair = [vec![1], text(key), text("value"), version.to_le_bytes().to_vec(), vec![0]];
    let ops = [node.concat(), pair.concat()].concat();
    let count = (ops.len() as u16).to_le_bytes();
    [&[1, 0x53, 0xb0, 0, 2, 2], &count[..], &ops, &[0]].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_are_none_are_counted_and_survived() {
    let (_certificates, mut one, two, rogue) = scene().await;
    expect_reject(&mut one, &rogue, &[], Reject::Undecodable).await;
    expect_reject(&mut one, &rogue, &[1], Reject::Undecodable).await;
    expect_reject(&mut one, &rogue, &[2], Reject::Undecodable).await;
    expect_reject(&mut one, &rogue, &[77], Reject::UnknownFormat).await;
    expect_reject(&mut one, &rogue, &[1; 64 * 1_024 + 1], Reject::Oversize).await;
    expect_reject(&mut one, &rogue, &[1; 64 * 1_024], Reject::Undecodable).await;

    let whole = syn(&[entry("x", 1)]);
    let before = one.carrier.stats.rejects(Reject::Undecodable);
    for end in 0..whole.len() {
        let (cut, _) = whole.split_at(end);
        rogue.throw(cut).await;
    }
    let all = before + whole.len() as u64;
    let are_counted = |carrier: &Carrier| carrier.stats.rejects(Reject::Undecodable) == all;
    one.wait_for_count("each cut frame", are_counted).await;
    let seed = 4_242;
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..random.usize(0..500)).map(|_| random.u8(..)).collect();
        rogue.throw(&[&[1], bytes.as_slice()].concat()).await;
    }
    expect_alive(&mut one, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_would_poison_the_state_are_counted_and_change_nothing() {
    let (_certificates, mut one, two, rogue) = scene().await;
    let eternal = syn(&[entry("x", u64::MAX)]);
    expect_reject(&mut one, &rogue, &eternal, Reject::Implausible).await;
    let version = ack("two", "v/chat/a", u64::MAX);
    expect_reject(&mut one, &rogue, &version, Reject::Implausible).await;
    expect_reject(&mut one, &rogue, &ack("one", "c", 99), Reject::Identity).await;
    expect_reject(&mut one, &rogue, &ack("two", "ä", 99), Reject::Implausible).await;
    let invented: Vec<_> = (0..2_000).map(|number| entry(&number.to_string(), 1)).collect();
    let crowd: Vec<u8> = syn(&invented).into_iter().take(64 * 1_024).collect();
    expect_reject(&mut one, &rogue, &crowd, Reject::Oversize).await;
    let foreign = [&[1, 0x53, 0xb0, 0, 0, 0, 0][..], &text("another")].concat();
    expect_reject(&mut one, &rogue, &foreign, Reject::WrongCluster).await;
    expect_alive(&mut one, &two).await;
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
async fn a_flood_from_one_member_is_cut_and_the_others_are_heard() {
    let (_certificates, mut one, two, rogue) = scene().await;
    let begin = Instant::now();
    // An acknowledgement without content, since it calls for no answer.
    for _ in 0..3_000 {
        rogue.throw(&[1, 0x53, 0xb0, 0, 2, 0]).await;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let cut = one.carrier.stats.rejects(Reject::Rate);
    println!("3,000 frames in {seconds:.2} s, {cut} cut");
    assert!(cut > 0, "3,000 frames in {seconds:.2} s went through");
    expect_alive(&mut one, &two).await;
}
