//! Cases of nodes that are killed, stopped, started again, or start alone.

use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::json;

use crate::apart::apart;
use crate::process::{BINARY, CHAT, call, chat_body};
use crate::town::{ALL, B, PORT_B, Plan, TEN_SECONDS, Town, throughout, within};
use crate::wires::Machine;

#[test]
fn c01_a_node_killed_under_load_costs_the_others_no_request_and_takes_its_vote_along() {
    apart(async || {
        let mut town = Town::start(Plan::default()).await;
        let others = [1, 3, 4, 5];
        let (load, on_two) = (town.load(&others), town.load(&[2]));
        town.wires.close_way(Machine(2), PORT_B);
        town.own_open(TEN_SECONDS, &[2]).await;
        within(TEN_SECONDS, "its vote is heard", async || town.voters(1).await == ["gw-2"]).await;
        town.kill(2);
        let lost = within(TEN_SECONDS, "the others have lost it", async || {
            town.live(1).await == 4 && town.live(3).await == 4 && town.live(5).await == 4
        })
        .await;
        let limit = TEN_SECONDS.saturating_sub(lost);
        within(limit, "its vote is gone", async || town.voters(1).await.is_empty()).await;
        assert_eq!(town.node(1).look("/admin/v1/cluster").await["electorate"], 5);
        drop(on_two);
        let answers = load.answers();
        assert_eq!(load.stop().await, [""; 0], "clients of the others");
        town.none_has_flipped(&others);
        eprintln!("C01: lost {lost:?}, {answers} answers of the others, all good");
    });
}

#[test]
fn c02_a_node_that_was_stopped_flips_nothing_on_its_own_when_it_goes_on() {
    apart(async || {
        let town = Town::start(Plan::default()).await;
        // Its vote stands, of an endpoint that fails for it alone.
        town.wires.close_way(Machine(1), PORT_B);
        let on_first = town.load(&[1]);
        town.own_open(TEN_SECONDS, &[1]).await;
        assert_eq!(on_first.stop().await, [""; 0], "clients of the one");
        let asked = town.a.requests().await;
        town.a.set(json!({ "hang": "accept" })).await;
        let first = town.node(1).clients;
        let in_flight = tokio::spawn(async move {
            let answer = call(first, Method::POST, CHAT, &[], &chat_body(false)).await;
            (answer.unwrap().0, Instant::now())
        });
        within(TEN_SECONDS, "a request is in flight", async || town.a.requests().await > asked)
            .await;
        town.signal(1, "STOP");
        town.a.recovers().await;
        let load = town.load(&[2, 3, 4, 5]);
        let stopped = Instant::now();
        within(Duration::from_secs(20), "the others have lost it", async || {
            for number in [2, 3, 4, 5] {
                if town.live(number).await != 4 {
                    return false;
                }
            }
            true
        })
        .await;
        let pause = Duration::from_secs(12).saturating_sub(stopped.elapsed());
        throughout(pause, "the others go on", async || town.live(3).await == 4).await;

        // It wakes among peers that look dead to it.
        let resumed = Instant::now();
        town.signal(1, "CONT");
        let on_first = town.load(&[1]);
        let formed = town.forms(TEN_SECONDS).await;
        let (status, ended) = in_flight.await.unwrap();
        let ended = ended.saturating_duration_since(resumed);
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "the request that was in flight");
        assert!(ended < Duration::from_secs(2), "it ended {ended:?} after the node went on");
        throughout(Duration::from_secs(4), "the fleet keeps it", async || {
            town.own(1).await == "open"
                && town.verdict(1).await == "closed"
                && town.verdict(2).await == "closed"
        })
        .await;
        assert_eq!(load.stop().await, [""; 0], "clients of the others");
        assert_eq!(on_first.stop().await, [""; 0], "clients of the one that went on");
        town.none_has_flipped(&ALL);
        eprintln!("C02: formed {formed:?} after it went on, the request ended after {ended:?}");
    });
}

#[test]
fn c04_a_node_that_began_anew_counts_once_and_its_old_vote_not_at_all() {
    apart(async || {
        let mut town = Town::start(Plan::default()).await;
        let load = town.load(&[1, 3, 4, 5]);
        let on_two = town.load(&[2]);
        town.wires.close_way(Machine(1), PORT_B);
        town.wires.close_way(Machine(2), PORT_B);
        town.own_open(TEN_SECONDS, &[1, 2]).await;
        within(TEN_SECONDS, "two votes stand", async || town.voters(3).await == ["gw-1", "gw-2"])
            .await;
        let generation = town.row(3, 2).await["generation"].as_u64().unwrap();
        town.kill(2);
        drop(on_two);
        // The new life finds the endpoint well, and remembers nothing but its number.
        std::fs::remove_file(town.directory().join("gw-2.state")).unwrap();
        town.wires.heal();
        town.wires.close_way(Machine(1), PORT_B);
        town.begin(2, Machine(2).command(BINARY));
        let on_two = town.load(&[2]);
        let known =
            within(TEN_SECONDS, "the new life is known, without the old vote", async || {
                let row = town.row(3, 2).await;
                let is_new = row["generation"].as_u64().unwrap() > generation;
                is_new && row["state"] == "live" && town.voters(3).await == ["gw-1"]
            })
            .await;
        town.forms(TEN_SECONDS).await;

        town.wires.close_way(Machine(3), PORT_B);
        town.own_open(TEN_SECONDS, &[3]).await;
        throughout(Duration::from_secs(4), "two of five flip nothing", async || {
            let cluster = town.node(4).explain(B).await["cluster"].clone();
            cluster["state"] == "closed" && cluster["electorate"] == 5
        })
        .await;
        assert_eq!(town.voters(4).await, ["gw-1", "gw-3"]);
        assert_eq!(load.stop().await, [""; 0], "clients of the others");
        assert_eq!(on_two.stop().await, [""; 0], "clients of the new life");
        town.none_has_flipped(&ALL);
        eprintln!("C04: the new life was known {known:?} after it served");
    });
}

#[test]
fn c14_the_last_of_five_still_counts_five_and_flips_nothing() {
    apart(async || {
        let plan = Plan { quorum: "member_grace: 5s", ..Plan::default() };
        let mut town = Town::start(plan).await;
        for number in [2, 3, 4, 5] {
            town.kill(number);
        }
        let lost =
            within(Duration::from_secs(20), "all are lost", async || town.live(1).await == 1).await;
        town.b.falls_ill().await;
        let load = town.load(&[1]);
        town.own_open(TEN_SECONDS, &[1]).await;
        throughout(TEN_SECONDS, "one of five is no majority", async || {
            let cluster = town.node(1).explain(B).await["cluster"].clone();
            cluster["electorate"] == 5 && cluster["quorum"] == 3 && cluster["state"] == "closed"
        })
        .await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        town.none_has_flipped(&[1]);
        eprintln!("C14: all four lost {lost:?}");
    });
}

#[test]
fn c14_the_expected_number_stands_when_the_lost_have_dropped_out() {
    apart(async || {
        let plan = Plan { quorum: "expected_members: 5, member_grace: 1s", ..Plan::default() };
        let mut town = Town::start(plan).await;
        town.kill(4);
        town.kill(5);
        within(Duration::from_secs(20), "two have dropped out", async || {
            town.row(1, 4).await.is_null() && town.row(1, 5).await.is_null()
        })
        .await;
        town.kill(2);
        town.kill(3);
        within(Duration::from_secs(20), "all are lost", async || town.live(1).await == 1).await;
        town.b.falls_ill().await;
        let load = town.load(&[1]);
        town.own_open(TEN_SECONDS, &[1]).await;
        throughout(Duration::from_secs(5), "one of five is no majority", async || {
            let cluster = town.node(1).explain(B).await["cluster"].clone();
            cluster["electorate"] == 5 && cluster["quorum"] == 3 && cluster["state"] == "closed"
        })
        .await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        town.none_has_flipped(&[1]);
    });
}

#[test]
fn c17_nodes_whose_seeds_do_not_resolve_serve_at_once_and_look_after_themselves() {
    apart(async || {
        let seeds = "nobody-1.invalid:7946, nobody-2.invalid:7946";
        let began = Instant::now();
        let town = Town::serve(Plan { seeds, ..Plan::default() }).await;
        for number in ALL {
            assert_eq!(town.node(number).chat().await, StatusCode::OK, "node {number}");
        }
        let served = began.elapsed();
        assert!(served < TEN_SECONDS, "five nodes and two mocks took {served:?} to serve");
        town.b.falls_ill().await;
        let load = town.load(&ALL);
        let opened = town.own_open(TEN_SECONDS, &ALL).await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        for number in ALL {
            assert_eq!(town.live(number).await, 1, "node {number} knows nobody");
        }
        eprintln!("C17: all served after {served:?}, own breakers open {opened:?}");
    });
}
