//! A failover behind Sentinel that loses acknowledged writes, and an old primary that goes on writing.

use std::time::{Duration, Instant};

use quorum::ledger::{Against, Answer, Begin, Call, Deed, Floor, Outcome, Word};
use quorum::{EndpointKey, NodeId, Stage, Step};
use redis_lua::client::{self, Client, Config, Health, Mode};
use redis_lua::keys::Keys;
use redis_lua::ledger;
use tokio::sync::watch;

use crate::process::{Gateway, until};
use crate::servers::sentinels::{NAME, Sentinels};
use crate::servers::{Server, wait_for};
use crate::town::{Plan, Town, figure};

/// The endpoint that the fleet has out.
const OUT: &str = "m0/e1";
/// The endpoint against which only the late writer has anything.
const IN: &str = "m0/e0";
/// Two intervals, and what a busy machine takes.
const HEALED_MAX: Duration = Duration::from_secs(4);
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_lost_writes_heals_from_live_votes_and_late_writers_are_fenced() {
    let _together = crate::MACHINE.read().await;
    let all = tokio::task::spawn_blocking(Sentinels::start).await.unwrap();
    let urls: Vec<String> = all.urls().iter().map(|url| format!("\"{url}\"")).collect();
    let redis = format!("urls: [{}], mode: sentinel, master: {NAME}", urls.join(", "));
    let town = Town::start(Plan { redis: &redis, models: 1, endpoints: 2, base: "60s" }).await;
    let (late, _switch) = connect(all.servers[0].url()).await;

    // From here on no replica hears anything; the primary acknowledges all the same.
    lose(&all);
    town.ill(1..2, true);
    let load = town.load(Duration::from_millis(10));
    town.all_see_out(1).await;
    drop(load.stop());
    let old = all.servers[0].port;
    let lost = kept(&all.servers[0], OUT, "epoch");
    assert!(!kept(&all.servers[0], OUT, "step").is_empty(), "it was acknowledged");
    for replica in &all.servers[1..] {
        assert_eq!(kept(replica, OUT, "step"), "", "a replica has what was to be lost");
    }

    all.servers[0].stop();
    let stopped = Instant::now();
    wait_for(|| (0..3).all(|sentinel| all.primary(sentinel) != old));
    let new = all.primary(0);
    town.all_are("up").await;
    let returned = Instant::now();
    let primary = all.servers.iter().find(|server| server.port == new).unwrap();
    until("the lost opening stands again", async || !kept(primary, OUT, "step").is_empty()).await;
    let healed = returned.elapsed();
    eprintln!("failed over after {:?}, healed {healed:?} later", returned - stopped);
    assert!(healed < HEALED_MAX, "{healed:?}");
    let epoch = kept(primary, OUT, "epoch");
    assert!(number(&epoch) >= number(&lost), "an epoch came twice: {epoch} after {lost}");
    stands(&town).await;

    all.servers[0].cont();
    wait_for(|| all.servers[0].cli(&["ROLE"]).starts_with("master"));
    writes_late(&late, number(&lost)).await;
    // The fleet does not heed it, now or after it has become a replica.
    let began = Instant::now();
    while all.servers[0].cli(&["ROLE"]).starts_with("master") {
        assert!(began.elapsed() < Duration::from_secs(30), "it stays a primary");
        stands(&town).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    wait_for(|| all.servers[0].cli(&["INFO", "replication"]).contains("master_link_status:up"));
    eprintln!("the old primary follows {:?} after its return", began.elapsed());
    for server in &all.servers {
        assert_eq!(kept(server, IN, "step"), "", "of the late writer, on {}", server.port);
        let step = kept(server, OUT, "step");
        assert!(step.contains("waiting"), "{step} on {}", server.port);
    }
    stands(&town).await;
}

/// Lets no replica follow any more, while sentinels and the primary notice nothing.
fn lose(all: &Sentinels) {
    let primary = &all.servers[0];
    assert_eq!(primary.cli(&["ACL", "SETUSER", "default", "-psync", "-sync"]), "OK");
    primary.cli(&["CLIENT", "KILL", "TYPE", "REPLICA"]);
    let is_cut = |replica: &Server| {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:down")
    };
    wait_for(|| all.servers[1..].iter().all(is_cut));
}

/// The fleet has one endpoint out and flipped it once; the other it has in and never flipped.
async fn stands(town: &Town) {
    for node in &town.nodes {
        let states = [state(node, OUT).await, state(node, IN).await];
        assert_eq!(states, ["open", "closed"], "{}", node.name);
        for (direction, count) in [("open", 1), ("close", 0)] {
            let series = format!("cluster_flips_total{{direction=\"{direction}\"}}");
            assert_eq!(figure(node, &series).await, count, "{}: {direction}", node.name);
        }
    }
}

async fn state(node: &Gateway, endpoint: &str) -> String {
    node.explain(endpoint).await["cluster"]["state"].as_str().unwrap().to_owned()
}

/// A field of an entry, as one server has it; empty if there is none.
fn kept(server: &Server, endpoint: &str, field: &str) -> String {
    server.cli(&["HGET", &format!("quorumgate{{{endpoint}}}:state"), field])
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

/// A client of one server, whatever sentinels say.
async fn connect(url: String) -> (Client, watch::Sender<bool>) {
    let (switch, stop) = watch::channel(false);
    let mut config = Config::new(vec![url], Mode::Standalone);
    config.timeout = Duration::from_secs(1);
    let (client, supervision) = client::start(config, stop).unwrap();
    tokio::spawn(supervision);
    client.health().wait_for(Health::is_up).await.unwrap();
    (client, switch)
}

/// Opens one endpoint and closes the other, by the words of members, on a server that believes to be
/// the primary. All of it is acknowledged.
async fn writes_late(late: &Client, incident: u64) {
    late.health().wait_for(Health::is_up).await.unwrap();
    let opened = cast(late, "gw-1").await.outcome == Outcome::Opened
        || cast(late, "gw-2").await.outcome == Outcome::Opened;
    assert!(opened, "the late writer is not heard even where it writes");
    let step = Step {
        incident,
        failures: 0,
        level: 0,
        stage: Stage::Closed,
        steward: NodeId::new("gw-1"),
        age: Duration::ZERO,
        is_held: false,
    };
    let answer = write(late, OUT, "gw-1", Deed::Carry(step)).await;
    assert_eq!(answer.entry.step.map(|step| step.stage), Some(Stage::Closed));
}

async fn cast(late: &Client, by: &str) -> Answer {
    let vote = Some(Against { incident: 1, is_first_hand: true });
    let opening = Some(Begin { level: 0, cool_down: HOUR });
    let word = Word { seq: 1, vote, lease: HOUR, electorate: 3, opening, ..Word::default() };
    write(late, IN, by, Deed::Cast(word)).await
}

async fn write(late: &Client, endpoint: &str, by: &str, deed: Deed) -> Answer {
    let call = Call {
        endpoint: EndpointKey::new(endpoint),
        by: NodeId::new(by),
        // A later life than that of the process: it is not refused for being of an earlier one.
        generation: (1 << 53) - 1,
        floor: Floor::default(),
        deed,
    };
    ledger::call(late, &Keys::new("quorumgate"), &call).await.unwrap()
}
