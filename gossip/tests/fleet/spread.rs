//! What a node states reaches the others, once, in any order.

use std::time::{Duration, Instant};

use gossip::{Command, Tls};
use quorum::{Standing, VoteState};

use crate::world::{
    Certificates, QUICK, card, config, files, has_vote, is_live, member, read, renewal, start,
    start_fleet, vote, vote_of,
};

const NAMES: [&str; 3] = ["one", "two", "three"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_see_each_others_statements() {
    let certificates = Certificates::for_nodes(&NAMES);
    let mut fleet = start_fleet(&certificates, &NAMES, QUICK).await;
    for (node, name) in fleet.iter().zip(NAMES) {
        node.state(vec![renewal(&format!("chat/{name}"), 1)]);
        node.mine.send_modify(|mine| mine.card = card(Standing::Serving));
    }
    for (node, own) in fleet.iter_mut().zip(NAMES) {
        for other in NAMES.into_iter().filter(|other| *other != own) {
            let endpoint = format!("chat/{other}");
            let wanted = |ours: &gossip::Ours| {
                let has_card = member(ours, other).is_some_and(|member| member.card.is_some());
                is_live(ours, other) && has_card && has_vote(ours, other, &endpoint)
            };
            node.wait(&format!("{other}'s vote at {own}"), wanted).await;
        }
        assert_eq!(node.carrier.ours.borrow().members.len(), 2);
        assert!(node.member(own).is_none(), "a node is not its own member");
    }
    for node in fleet {
        let took = node.stop().await;
        assert!(took < Duration::from_secs(3), "stopping took {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_arrives_long_before_the_next_round_of_gossip() {
    let certificates = Certificates::for_nodes(&NAMES);
    let mut fleet = start_fleet(&certificates, &NAMES, Duration::from_secs(5)).await;
    for node in &mut fleet {
        node.wait("all members", |ours| ours.members.len() == 2).await;
    }
    let (first, others) = fleet.split_first_mut().unwrap();
    let others_are_connected = |carrier: &gossip::Carrier| read(&carrier.stats.connections) >= 2;
    first.wait_for_count("both connections", others_are_connected).await;
    let mut latencies = Vec::new();
    for seq in 1..=5 {
        let endpoint = format!("chat/{seq}");
        first.state(vec![vote(&endpoint, seq, true)]);
        let begin = Instant::now();
        for other in others.iter_mut() {
            other.wait("the push", |ours| has_vote(ours, "one", &endpoint)).await;
        }
        latencies.push(begin.elapsed());
    }
    for other in others {
        assert_eq!(read(&other.carrier.stats.pushes_in), 5);
    }
    // The median, since the machine may be busy with something else for a moment.
    latencies.sort();
    println!("pushes seen by both after {latencies:?}");
    let median = latencies.into_iter().nth(2).unwrap();
    assert!(median < Duration::from_millis(100), "a push took {median:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_withdrawn_vote_replaces_the_older_one_and_an_older_number_changes_nothing() {
    let certificates = Certificates::for_nodes(&NAMES);
    let mut fleet = start_fleet(&certificates, &NAMES[..2], QUICK).await;
    let [one, two] = fleet.as_mut_slice() else { panic!("two nodes were started") };
    one.state(vec![vote("chat/a", 5, true)]);
    two.wait("the vote", |ours| has_vote(ours, "one", "chat/a")).await;

    one.state(vec![vote("chat/a", 6, false)]);
    let is_withdrawn = |ours: &gossip::Ours| {
        vote_of(ours, "one", "chat/a").is_some_and(|vote| vote.state == VoteState::Withdrawn)
    };
    two.wait("the withdrawal", is_withdrawn).await;

    // A smaller number under the same key, and news beside it that tells when it has been read.
    one.state(vec![vote("chat/a", 5, true), vote("chat/b", 7, true)]);
    two.wait("the later vote", |ours| has_vote(ours, "one", "chat/b")).await;
    assert!(!has_vote(&two.carrier.ours.borrow(), "one", "chat/a"));

    one.state(Vec::new());
    let is_gone = |ours: &gossip::Ours| member(ours, "one").is_some_and(|one| one.heard.is_empty());
    two.wait("the deletion", is_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_knows_a_pulse_knows_all_that_was_stated_and_taken_back_before_it() {
    let certificates = Certificates::for_nodes(&NAMES);
    let mut fleet = start_fleet(&certificates, &NAMES, QUICK).await;
    for node in &mut fleet {
        node.wait("all members", |ours| ours.members.len() == 2).await;
    }
    // Set number n states the endpoints n to n + 250, pushes one of them, and takes back what is
    // not in it; names that do not shrink, and more than fits one frame, so that the sets arrive in
    // parts.
    let mut random = fastrand::Rng::with_seed(7);
    let mut noise =
        || std::iter::repeat_with(|| random.alphanumeric()).take(120).collect::<String>();
    let names: Vec<_> = (0..300).map(|number| format!("chat/{number}-{}", noise())).collect();
    let name = |number: u64| names[number as usize].as_str();
    let (first, others) = fleet.split_first_mut().unwrap();
    for set in 1..=4_u64 {
        let seq = |number: u64| set * 1_000 + number;
        let pushed = vote(name(set), seq(0), true);
        let rest = (1..250).map(|number| renewal(name(set + number), seq(number)));
        let stated = std::iter::once(pushed).chain(rest).collect();
        first.mine.send_modify(|mine| (mine.stated, mine.pulse) = (stated, set));
        for other in others.iter_mut() {
            let has_pulse = |ours: &gossip::Ours| {
                let one = member(ours, "one").filter(|one| one.pulse > 0);
                one.is_some_and(|one| {
                    expect_whole(one, one.pulse, set, name);
                    one.pulse == set
                })
            };
            other.wait(&format!("pulse {set}"), has_pulse).await;
        }
    }
}

/// Checks that of all sets up to the pulse nothing is missing and nothing is left that was taken
/// back; pushes may have brought news of later sets.
fn expect_whole<'a>(one: &quorum::Member, pulse: u64, newest: u64, name: impl Fn(u64) -> &'a str) {
    let endpoints = one.heard.iter().map(|heard| heard.statement.subject());
    let heard: std::collections::HashSet<_> = endpoints.collect();
    // What the present set kept of the pulse's own may have come in later numbers, and what it took
    // back may be gone already.
    for number in newest..pulse + 250 {
        assert!(heard.contains(name(number)), "{number} is missing at pulse {pulse}");
    }
    for number in 1..pulse {
        assert!(!heard.contains(name(number)), "{number} is back at pulse {pulse}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_is_one_member_of_its_new_generation() {
    let certificates = Certificates::for_nodes(&NAMES);
    let mut fleet = start_fleet(&certificates, &NAMES[..2], QUICK).await;
    let two = fleet.pop().unwrap();
    let mut one = fleet.pop().unwrap();
    two.state(vec![vote("chat/a", 1, true)]);
    one.wait("the first life", |ours| is_live(ours, "two") && has_vote(ours, "two", "chat/a"))
        .await;
    two.kill().await;

    let mut again = config("two", certificates.of("two"), &[one.address()]);
    again.generation = 2;
    let two = start(again).await;
    let is_second = |ours: &gossip::Ours| {
        member(ours, "two").is_some_and(|two| two.generation == 2 && two.is_live)
    };
    one.wait("the second life", is_second).await;
    assert_eq!(one.carrier.ours.borrow().members.len(), 1, "a restart is no second member");
    assert!(!has_vote(&one.carrier.ours.borrow(), "two", "chat/a"), "its past does not vote");
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_is_not_live_within_ten_intervals() {
    let certificates = Certificates::for_nodes(&NAMES);
    let interval = Duration::from_millis(200);
    let mut fleet = start_fleet(&certificates, &NAMES, interval).await;
    for node in &mut fleet[..2] {
        node.wait("the third node", |ours| is_live(ours, "three")).await;
    }
    fleet.pop().unwrap().kill().await;
    for node in &mut fleet {
        let took = node.wait("the end of the third node", |ours| !is_live(ours, "three")).await;
        println!("not live after {took:?}");
        assert!(took < 10 * interval, "it was held for live for {took:?}");
        assert!(node.member("three").is_some(), "it is still known");
    }
    let [one, two] = fleet.as_slice() else { panic!("two nodes are left") };
    assert!(
        is_live(&one.carrier.ours.borrow(), "two") && is_live(&two.carrier.ours.borrow(), "one")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_in_good_order_is_seen_to_have_left_at_once() {
    let certificates = Certificates::for_nodes(&NAMES);
    let mut fleet = start_fleet(&certificates, &NAMES[..2], Duration::from_secs(5)).await;
    let two = fleet.pop().unwrap();
    let mut one = fleet.pop().unwrap();
    one.wait("the member", |ours| ours.members.len() == 1).await;
    two.mine.send_modify(|mine| mine.card = card(Standing::Left));
    let took = two.stop().await;
    let has_left = |ours: &gossip::Ours| {
        let card = member(ours, "two").and_then(|two| two.card.as_ref());
        card.is_some_and(|card| card.standing == Standing::Left)
    };
    let seen = one.wait("the leave", has_left).await;
    println!("left in {took:?}, seen {seen:?} later");
    assert!(took + seen < Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_told_of_each_other_later_join() {
    let certificates = Certificates::for_nodes(&NAMES);
    let one = start(config("one", certificates.of("one"), &[])).await;
    let mut two = start(config("two", certificates.of("two"), &[])).await;
    let port = one.address().port();
    let names = vec!["nobody.invalid:1".to_owned(), format!("localhost:{port}")];
    two.carrier.commands.send(Command::Join(names)).await.unwrap();
    two.wait("the other node", |ours| is_live(ours, "one")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn insecure_nodes_carry_the_same() {
    let mut one = start(config("one", Tls::Insecure, &[])).await;
    let mut two = start(config("two", Tls::Insecure, &[one.address()])).await;
    one.wait("the member", |ours| ours.members.len() == 1).await;
    two.wait("the member", |ours| is_live(ours, "one")).await;
    one.state(vec![vote("chat/a", 1, true)]);
    two.wait("the vote", |ours| has_vote(ours, "one", "chat/a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_statements_come_through_in_more_than_one_frame() {
    let certificates = Certificates::for_nodes(&NAMES);
    let mut fleet = start_fleet(&certificates, &NAMES[..2], QUICK).await;
    let [one, two] = fleet.as_mut_slice() else { panic!("two nodes were started") };
    two.wait("the member", |ours| is_live(ours, "one")).await;
    let endpoint = |number: u64| format!("chat/{number}-{}", "long".repeat(40));
    one.state((0..2_000).map(|number| renewal(&endpoint(number), number + 1)).collect());
    let has_all =
        |ours: &gossip::Ours| member(ours, "one").is_some_and(|one| one.heard.len() == 2_000);
    let took = two.wait("all statements by gossip", has_all).await;
    println!("2,000 statements by gossip after {took:?}");
    one.state((0..2_000).map(|number| vote(&endpoint(number), number + 2_001, true)).collect());
    let is_pushed = |ours: &gossip::Ours| {
        let heard = member(ours, "one").map(|one| one.heard.as_slice()).unwrap_or_default();
        heard.len() == 2_000 && heard.iter().all(|heard| heard.seq > 2_000)
    };
    two.wait("all statements again", is_pushed).await;
    for node in &fleet {
        for reason in gossip::Reject::ALL {
            assert_eq!(node.carrier.stats.rejects(reason), 0, "{}", reason.as_str());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_reaches_itself_as_a_seed_joins_others_all_the_same() {
    let certificates = Certificates::for_nodes(&NAMES);
    let one = start(config("one", certificates.of("one"), &[])).await;
    let mut own = config("two", files(certificates.directory.path(), "two"), &[one.address()]);
    own.listen = "0.0.0.0:0".parse().unwrap();
    own.seeds.push("127.0.0.1:0".to_owned());
    let mut two = start(own).await;
    let itself = format!("127.0.0.2:{}", two.address().port());
    two.carrier.commands.send(Command::Join(vec![itself])).await.unwrap();
    two.wait("the other node", |ours| is_live(ours, "one")).await;
    let has_met_itself =
        |carrier: &gossip::Carrier| carrier.stats.rejects(gossip::Reject::Identity) > 0;
    two.wait_for_count("meeting itself", has_met_itself).await;
    assert!(two.member("two").is_none());
}
