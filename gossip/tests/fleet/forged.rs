//! A member that relays what others have not said.
//!
//! It holds a good certificate of its own, so that its frames are read, and writes them by hand.

use std::net::SocketAddr;

use gossip::{Carrier, Reject};

use crate::frames::{Delta, digest, entry, syn};
use crate::hostile::{expect_alive, expect_reject, scene};
use crate::world::{QUICK, has_vote, is_live, member, renewal};

/// A vote that stands on `chat/a`, of seq 300, sealed as format 2 with no or a made up signature.
const UNSIGNED_VOTE: &str = "AhwC+ywBAQZjaGF0L2EDAQADNTA0KPvUMAIB+9wFAAA";
const MADE_UP: &str = "AhwC+ywBAQZjaGF0L2EDAQADNTA0KPvUMAIB+9wF+wMEBAECAwQ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relayed_vote_that_its_voter_did_not_sign_is_absent() {
    let (_certificates, mut one, two, rogue) = scene().await;
    let before = one.carrier.stats.rejects(Reject::Signature);
    for (number, value) in [UNSIGNED_VOTE, MADE_UP].into_iter().enumerate() {
        let version = 1_000 + number as u64;
        let forged = Delta::of("two", 1, two.address()).key("v/chat/a", value, version);
        rogue.send(&forged.frame()).await;
        let is_counted =
            |carrier: &Carrier| carrier.stats.rejects(Reject::Signature) > before + number as u64;
        one.wait_for_count("the forged vote", is_counted).await;
    }
    assert!(!has_vote(&one.carrier.ours.borrow(), "two", "chat/a"));
    assert!(is_live(&one.carrier.ours.borrow(), "two"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invented_node_is_no_member_however_long_it_beats() {
    let (_certificates, mut one, two, rogue) = scene().await;
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let invented: Vec<_> = (0..20).map(|number| format!("ghost-{number}")).collect();
    let mut pace = tokio::time::interval(QUICK / 2);
    for heartbeat in 1..=30 {
        let beats = invented.iter().map(|name| entry(name, 7, nowhere, heartbeat)).collect();
        rogue.send(&syn(&digest(beats))).await;
        // A life of a member that no one has signed.
        let future = entry("two", 1 << 40, nowhere, heartbeat);
        rogue.send(&syn(&digest(vec![future]))).await;
        pace.tick().await;
    }
    let two_now = one.member("two").unwrap();
    assert_eq!((two_now.generation, two_now.is_live), (1, true));
    expect_alive(&mut one, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_an_older_format_is_a_member_and_its_records_are_skipped() {
    let (_certificates, mut one, _two, rogue) = scene().await;
    let address = rogue.local_addr();
    // A card of format 1.
    let card = "AQEABTAuMS4wBGFiMTIC";
    let mut heartbeat = 10;
    let begin = std::time::Instant::now();
    let mut pace = tokio::time::interval(QUICK / 2);
    while !is_live(&one.carrier.ours.borrow(), "rogue") {
        assert!(begin.elapsed() < crate::world::PATIENCE, "it is not live");
        rogue.send(&syn(&digest(vec![entry("rogue", 3, address, heartbeat)]))).await;
        let delta = Delta::of("rogue", 3, address).key("c", card, 1);
        rogue.send(&delta.frame()).await;
        heartbeat += 1;
        pace.tick().await;
    }
    let is_counted = |carrier: &Carrier| carrier.stats.rejects(Reject::UnknownFormat) > 0;
    one.wait_for_count("the unknown card", is_counted).await;
    let ours = one.carrier.ours.borrow().clone();
    let rogue = member(&ours, "rogue").unwrap();
    assert_eq!((rogue.generation, &rogue.card, rogue.pulse), (3, &None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_sent_on_without_its_writers_signature_is_refused() {
    let (_certificates, mut one, two, rogue) = scene().await;
    // Format 2, the name, generation 1, two hops, no certificate, one record.
    let record = [2, 0x1c, 2, 0xfb, 0x2c, 1, 1, 6];
    let head = [&[2, 2, 3], "two".as_bytes(), &[1, 2, 0, 1, record.len() as u8], &record].concat();
    expect_reject(&mut one, &rogue, &head, Reject::Signature).await;
    two.state(vec![renewal("chat/b", 1)]);
    one.wait("an honest vote", |ours| has_vote(ours, "two", "chat/b")).await;
    expect_alive(&mut one, &two).await;
}
