//! Two processes under one name and one certificate at once.

use std::time::Duration;

use gossip::Ours;
use quorum::Standing;

use crate::world::{
    Certificates, card, config, has_vote, is_live, member, read, renewal, start, vote,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_of_two_processes_of_one_name_gives_way_while_the_younger_lives() {
    let certificates = Certificates::for_nodes(&["one", "two"]);
    let mut two = start(config("two", certificates.of("two"), &[])).await;
    let mut older = start(config("one", certificates.of("one"), &[two.address()])).await;
    older.mine.send_modify(|mine| {
        mine.card = card(Standing::Serving);
        mine.pulse = 1;
    });
    older.state(vec![renewal("chat/older", 1)]);
    two.wait("the vote", |ours| has_vote(ours, "one", "chat/older")).await;
    assert_eq!(older.carrier.ours.borrow().duplicate, None);

    let mut settings = config("one", certificates.of("one"), &[two.address()]);
    settings.generation = 2_000;
    let mut younger = start(settings).await;
    younger.state(vec![vote("chat/younger", 1, true)]);
    let address = younger.address().to_string();
    older.wait("giving way", |ours| ours.duplicate.as_ref() == Some(&address)).await;
    assert_eq!(read(&older.carrier.stats.duplicates), 1);
    let is_younger = |ours: &Ours| {
        let one = member(ours, "one").filter(|one| one.generation == 2_000 && one.is_live);
        one.is_some() && has_vote(ours, "one", "chat/younger")
    };
    two.wait("the younger", is_younger).await;
    assert!(!has_vote(&two.carrier.ours.borrow(), "one", "chat/older"));
    // The younger sees a past life of its own first, and says so only when that goes on living.
    younger.wait("the member", |ours| is_live(ours, "two")).await;
    younger.wait_for_count("the older", |carrier| read(&carrier.stats.duplicates) == 1).await;
    assert_eq!(younger.carrier.ours.borrow().duplicate, None, "it speaks for the node");

    let pushed = read(&older.carrier.stats.pushes_out);
    let rounds = read(&older.carrier.stats.rounds);
    older.state(vec![vote("chat/older", 2, true)]);
    older.wait_for_count("some rounds", |carrier| read(&carrier.stats.rounds) > rounds + 3).await;
    assert_eq!(read(&older.carrier.stats.pushes_out), pushed, "it keeps silent");
    younger.kill().await;
    older.wait("the end of the younger", |ours| ours.duplicate.is_none()).await;
    let is_pushed = |carrier: &gossip::Carrier| read(&carrier.stats.pushes_out) > pushed;
    older.wait_for_count("the vote, at last", is_pushed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_no_duplicate() {
    let certificates = Certificates::for_nodes(&["one", "two"]);
    let mut two = start(config("two", certificates.of("two"), &[])).await;
    let first = start(config("one", certificates.of("one"), &[two.address()])).await;
    two.wait("the first life", |ours| is_live(ours, "one")).await;
    first.kill().await;
    let mut settings = config("one", certificates.of("one"), &[two.address()]);
    settings.generation = 2_000;
    let mut second = start(settings).await;
    second.wait("the member", |ours| is_live(ours, "two")).await;
    let begin = std::time::Instant::now();
    let long = Duration::from_secs(3);
    second.wait_for_count("thirty intervals", |_| begin.elapsed() > long).await;
    assert_eq!(read(&second.carrier.stats.duplicates), 0);
}
