//! Cases of the network: splits, links that carry one way, ways to an endpoint that are shut.

use std::time::Duration;

use hyper::Method;

use crate::apart::apart;
use crate::process::{CHAT, call, chat_body};
use crate::town::{
    ALL, B, PORT_A, PORT_B, Plan, TEN_SECONDS, TWO_INTERVALS, Town, throughout, within,
};
use crate::wires::Machine;

/// How long it may take until a silent member is lost.
const LOSS_MAX: Duration = Duration::from_secs(20);

fn machines(numbers: &[u8]) -> Vec<Machine> {
    numbers.iter().copied().map(Machine).collect()
}

#[test]
fn c07_in_a_split_the_two_never_flip_and_the_views_agree_after_the_heal() {
    apart(async || {
        let town = Town::start(Plan::default()).await;
        town.wires.split(&machines(&[1, 2, 3]), &machines(&[4, 5]));
        let lost = within(LOSS_MAX, "the sides lose each other", async || {
            town.live(1).await == 3 && town.live(4).await == 2 && town.live(5).await == 2
        })
        .await;
        town.b.falls_ill().await;
        let load = town.load(&ALL);
        let three =
            within(TEN_SECONDS, "the three flip", async || town.is_out_on(&[1, 2, 3]).await).await;
        town.own_open(TEN_SECONDS, &[4, 5]).await;
        throughout(Duration::from_secs(4), "the two hold two votes and no quorum", async || {
            let view = town.node(4).explain(B).await["cluster"].clone();
            view["state"] == "closed" && view["quorum"] == 3 && view["electorate"] == 5
        })
        .await;
        town.none_has_flipped(&[4, 5]);
        town.wires.heal();
        let healed = within(TEN_SECONDS, "the views are one", async || {
            town.is_out_on(&ALL).await && town.live(4).await == 5 && town.live(1).await == 5
        })
        .await;
        let agreed = town.agree(TEN_SECONDS.saturating_sub(healed)).await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        eprintln!("C07: lost {lost:?}, three {three:?}, healed {healed:?}, agreed +{agreed:?}");
    });
}

#[test]
fn c07_the_two_keep_what_was_open_before_the_split_and_let_go_when_its_time_is_over() {
    apart(async || {
        let quorum = "member_grace: 60s, max_open: 20s";
        // A node that opened by itself too is ready to ask b again long before the hold ends.
        let town = Town::start(Plan { base: "5s", quorum, ..Plan::default() }).await;
        town.b.falls_ill().await;
        let load = town.load(&ALL);
        within(TEN_SECONDS, "all five flip", async || town.is_out_on(&ALL).await).await;
        town.wires.split(&machines(&[1, 2, 3]), &machines(&[4, 5]));
        within(LOSS_MAX, "the two are alone", async || town.live(4).await == 2).await;
        throughout(Duration::from_secs(2), "they keep it out", async || {
            town.is_out_on(&[4, 5]).await
        })
        .await;
        town.b.recovers().await;
        let let_go = within(Duration::from_secs(30), "they let go of it", async || {
            town.verdict(4).await == "closed" && town.verdict(5).await == "closed"
        })
        .await;
        let own =
            within(TEN_SECONDS * 3, "b is back with the two by their own breakers", async || {
                town.node(4).explain(B).await["in_rotation"] == true
            })
            .await;
        town.wires.heal();
        let agreed = town.agree(TEN_SECONDS * 2).await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        eprintln!(
            "C07: let go +{let_go:?}, own way back +{own:?}, agreed +{agreed:?} after the heal"
        );
    });
}

#[test]
fn c08_a_link_that_carries_one_way_makes_nobody_flap_and_nothing_flip() {
    apart(async || {
        let town = Town::start(Plan::default()).await;
        let before: Vec<usize> = ALL.iter().map(|number| town.member_changes(*number)).collect();
        town.wires.mute(Machine(1), Machine(2));
        // The two at the ends of the link also see an endpoint fail that is well for the others.
        town.wires.close_way(Machine(1), PORT_B);
        town.wires.close_way(Machine(2), PORT_B);
        let load = town.load(&ALL);
        let opened = town.own_open(TEN_SECONDS, &[1, 2]).await;
        throughout(Duration::from_secs(20), "two of five flip nothing", async || {
            let closed = town.verdict(1).await == "closed" && town.verdict(2).await == "closed";
            closed && town.verdict(3).await == "closed"
        })
        .await;
        let after: Vec<usize> = ALL.iter().map(|number| town.member_changes(*number)).collect();
        for (before, after) in before.iter().zip(&after) {
            assert!(after - before <= 1, "members came and went: {before} to {after} changes");
        }
        town.wires.heal();
        let healed = town.forms(TEN_SECONDS).await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        town.none_has_flipped(&ALL);
        eprintln!("C08: opened {opened:?}, changes {before:?} to {after:?}, formed {healed:?}");
    });
}

#[test]
fn c13_three_of_five_see_failures_and_all_five_flip_within_two_intervals() {
    apart(async || {
        let town = Town::start(Plan::default()).await;
        let load = town.load(&ALL);
        for number in [1, 2, 3] {
            town.wires.close_way(Machine(number), PORT_B);
        }
        within(Duration::from_secs(15), "all five flip", async || town.is_out_on(&ALL).await).await;
        let mut votes = Vec::new();
        let mut flips = Vec::new();
        for number in ALL {
            votes.extend(town.noted(number, "local", "closed to open").await);
            flips.extend(town.noted(number, "cluster", "opened:").await);
        }
        votes.sort_unstable();
        let (deciding, last) = (votes[2], *flips.iter().max().unwrap());
        let took = Duration::from_millis(last.saturating_sub(deciding));
        assert!(took <= TWO_INTERVALS, "{took:?} from the deciding vote to the last flip");
        // That it is well for everybody from here on is no reason to close it.
        town.wires.heal();
        throughout(Duration::from_secs(5), "nothing but the steward closes it", async || {
            town.is_out_on(&ALL).await
        })
        .await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        eprintln!("C13: {took:?} from the deciding vote to the last of five");
    });
}

#[test]
fn f18_packets_lost_between_one_node_and_an_endpoint_take_it_from_that_node_only() {
    apart(async || {
        let town = Town::start(Plan::default()).await;
        let load = town.load(&ALL);
        town.wires.close_way(Machine(1), PORT_B);
        let opened = town.own_open(TEN_SECONDS, &[1]).await;
        within(TWO_INTERVALS, "the others have heard of it", async || {
            town.node(5).explain(B).await["cluster"]["votes_counted"] == 1
        })
        .await;
        let before = town.b.requests().await;
        throughout(Duration::from_secs(4), "the fleet keeps it", async || {
            let view = town.node(3).explain(B).await;
            view["cluster"]["state"] == "closed" && view["in_rotation"] == true
        })
        .await;
        let more = town.b.requests().await - before;
        assert!(more > 40, "the others no longer use b: {more} requests");
        assert_eq!(load.stop().await, [""; 0], "a is well");
        town.none_has_flipped(&ALL);
        eprintln!("F18: opened {opened:?}, {more} requests of the others");
    });
}

#[test]
fn f18_a_node_for_which_everything_fails_is_suspect_to_itself_and_to_the_others() {
    apart(async || {
        let town = Town::start(Plan::default()).await;
        let load = town.load(&[2, 3, 4, 5]);
        town.wires.close_way(Machine(1), PORT_A);
        town.wires.close_way(Machine(1), PORT_B);
        let first = town.node(1).clients;
        let suspected = within(Duration::from_secs(25), "it is suspect everywhere", async || {
            // Each pool is asked; that there is no good answer is the point.
            for model in ["m", "k"] {
                let body = chat_body(false).replace("\"m\"", &format!("\"{model}\""));
                let _ = call(first, Method::POST, CHAT, &[], &body).await;
            }
            town.suspects(1).await == ["gw-1"] && town.suspects(3).await == ["gw-1"]
        })
        .await;
        assert_eq!(load.stop().await, [""; 0], "clients of the others");
        assert_eq!(town.voters(3).await, [""; 0], "it abstains");
        town.none_has_flipped(&ALL);
        eprintln!("F18: suspect after {suspected:?}");
    });
}

#[test]
fn f19b_one_parted_from_two_flips_nothing_and_its_old_vote_flips_nothing_later() {
    apart(async || {
        let town = Town::start(Plan { size: 3, ..Plan::default() }).await;
        town.wires.split(&machines(&[1]), &machines(&[2, 3]));
        town.wires.close_way(Machine(1), PORT_B);
        let load = town.load(&[1, 2, 3]);
        town.own_open(TEN_SECONDS, &[1]).await;
        within(LOSS_MAX, "the sides lose each other", async || {
            town.live(1).await == 1 && town.live(2).await == 2
        })
        .await;
        throughout(Duration::from_secs(3), "nothing flips", async || {
            town.verdict(1).await == "closed" && town.verdict(2).await == "closed"
        })
        .await;
        town.wires.heal();
        let formed = town.forms(TEN_SECONDS).await;
        throughout(Duration::from_secs(4), "nothing flips after the heal", async || {
            town.verdict(2).await == "closed" && town.verdict(3).await == "closed"
        })
        .await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        town.none_has_flipped(&[1, 2, 3]);
        eprintln!("F19b: formed {formed:?} after the heal");
    });
}

#[test]
fn f19b_four_parted_in_the_middle_flip_nothing_until_they_are_one_again() {
    apart(async || {
        let town = Town::start(Plan { size: 4, ..Plan::default() }).await;
        town.wires.split(&machines(&[1, 2]), &machines(&[3, 4]));
        within(LOSS_MAX, "the sides lose each other", async || {
            town.live(1).await == 2 && town.live(4).await == 2
        })
        .await;
        town.b.falls_ill().await;
        let load = town.load(&[1, 2, 3, 4]);
        town.own_open(TEN_SECONDS, &[1, 2, 3, 4]).await;
        throughout(Duration::from_secs(4), "two of four are no majority", async || {
            let view = town.node(1).explain(B).await["cluster"].clone();
            view["state"] == "closed" && view["quorum"] == 3 && town.verdict(3).await == "closed"
        })
        .await;
        town.none_has_flipped(&[1, 2, 3, 4]);
        town.wires.heal();
        let flipped =
            within(TEN_SECONDS, "four of four flip", async || town.is_out_on(&[1, 2, 3, 4]).await)
                .await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        eprintln!("F19b: four flipped {flipped:?} after the heal");
    });
}
