//! Fifty endpoints of a fleet in a cluster of six, whose slots move and of which a primary dies.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redis_lua::slot;

use crate::load::failures;
use crate::process::until;
use crate::servers::cluster::Cluster;
use crate::servers::{cli, wait_for};
use crate::town::{Plan, Town, redis_of};

/// One question every so often.
const PACE: Duration = Duration::from_millis(5);
const MODELS: usize = 5;
/// Mocks, each of them an endpoint of every model: fifty endpoints.
const MOCKS: usize = 10;
/// What no log and no count of errors may have.
const NEVER: [&str; 3] = ["CROSSSLOT", "MOVED", "same slot"];

#[tokio::test(flavor = "multi_thread")]
async fn f20_fifty_endpoints_flip_and_recover_while_slots_move_and_a_primary_dies() {
    let _together = crate::MACHINE.read().await;
    let mut cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let urls: Vec<String> = cluster.urls().iter().map(|url| format!("\"{url}\"")).collect();
    let redis = format!("urls: [{}], mode: cluster", urls.join(", "));
    let plan = Plan { redis: &redis, models: MODELS, endpoints: MOCKS, base: "1s" };
    let town = Town::start(plan).await;
    let load = town.load(PACE);

    // Twenty endpoints go out and come back while their slots move.
    town.ill(0..4, true);
    let moving = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let moved = migrate(&cluster);
        (cluster, format!("{moved} slots moved in {:?}", began.elapsed()))
    });
    let out = town.all_see_out(4 * MODELS).await;
    town.ill(0..4, false);
    let back = town.all_see_out(0).await;
    let moved;
    (cluster, moved) = moving.await.unwrap();
    eprintln!("{moved}; out after {out:?}, back after {back:?}");

    // Others do while the primary that has them all is killed and its replica takes over.
    let victim = *cluster.primaries().last().unwrap();
    town.ill(4..8, true);
    cluster.servers[victim].kill();
    let out = town.all_see_out(4 * MODELS).await;
    let killed = Instant::now();
    town.all_are("up").await;
    eprintln!("a primary is killed: out after {out:?}, Redis is back {:?} later", killed.elapsed());
    town.ill(4..8, false);
    eprintln!("back after {:?}", town.all_see_out(0).await);
    cluster.servers[victim].restart();
    let port = cluster.servers[victim].port.to_string();
    let role = || cli(&["-p", &port, "ROLE"]).unwrap_or_default();
    wait_for(|| role().starts_with("slave"));

    let complaints = town.complaints(&NEVER).await;
    assert!(complaints.is_empty(), "{complaints:#?}");

    // Where servers send calls for one slot to and fro, its endpoint goes out with the others all the
    // same: whoever gets no answer of it says that Redis is away.
    disown(&cluster);
    town.ill(9..10, true);
    eprintln!("out with a slot that nobody has after {:?}", town.all_see_out(MODELS).await);
    until("somebody is told of it", async || {
        let mut is_told = false;
        for node in &town.nodes {
            is_told |= redis_of(node).await["state"] == "away";
        }
        is_told
    })
    .await;

    let samples = load.stop();
    let (count, some) = failures(&samples);
    assert_eq!(count, 0, "of {} questions: {some:#?}", samples.len());
}

/// Has the owner of the slot of the last endpoint of the first model say that another has it, who says
/// that the first does: what becomes of a move that was broken off.
fn disown(cluster: &Cluster) {
    let key = format!("quorumgate{{m0/e{}}}:state", MOCKS - 1);
    let slot = slot::of(key.as_bytes()).to_string();
    let primaries: Vec<usize> = cluster.primaries();
    let has = |at: &usize| !cluster.servers[*at].cli(&["EXISTS", &key]).starts_with("MOVED");
    let owner = primaries.iter().copied().find(has).unwrap();
    let other = primaries.iter().copied().find(|at| *at != owner).unwrap();
    let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &cluster.names[other]];
    assert_eq!(cluster.servers[owner].cli(&words), "OK");
}

/// Moves the slot of each endpoint to the last primary, whatever is in it; how many were moved.
///
/// All go to one: it alone takes new epochs, each above all others. Were slots to go to and fro faster
/// than the nodes hear of each other's epochs, some would end up with nobody.
fn migrate(cluster: &Cluster) -> usize {
    let at = |index: usize| Wire::to(cluster.servers[index].port, cluster.names[index].clone());
    let mut primaries: Vec<Wire> = cluster.primaries().into_iter().map(at).collect();
    let target = primaries.pop().unwrap();
    (0..MODELS * MOCKS).filter(|number| moves(&primaries, &target, *number)).count()
}

/// Moves one slot, unless it is there.
fn moves(others: &[Wire], target: &Wire, number: usize) -> bool {
    let keys = ["state", "votes", "lease"]
        .map(|what| format!("quorumgate{{m{}/e{}}}:{what}", number / MOCKS, number % MOCKS));
    let slot = slot::of(keys[0].as_bytes());
    let has = |wire: &Wire| !wire.ask(&format!("EXISTS {}", keys[0])).starts_with("-MOVED");
    let Some(source) = others.iter().find(|wire| has(wire)) else { return false };
    let ok = |wire: &Wire, what: &str| assert_eq!(wire.ask(what), "+OK", "{what}");
    ok(target, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.name));
    ok(source, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.name));
    // What is written meanwhile is written there already.
    let (port, keys) = (target.port, keys.join(" "));
    let said = source.ask(&format!("MIGRATE 127.0.0.1 {port} \"\" 0 1000 KEYS {keys}"));
    assert!(said == "+OK" || said == "+NOKEY", "{said}");
    for wire in [target, source].into_iter().chain(others.iter()) {
        ok(wire, &format!("CLUSTER SETSLOT {slot} NODE {}", target.name));
    }
    true
}

/// A connection to one server for commands that are answered by one line.
struct Wire {
    port: u16,
    /// What the server is called in the cluster.
    name: String,
    stream: TcpStream,
}

impl Wire {
    fn to(port: u16, name: String) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { port, name, stream }
    }

    fn ask(&self, command: &str) -> String {
        (&self.stream).write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(&self.stream).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
