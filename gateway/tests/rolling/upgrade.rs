//! Two versions of the binary in one fleet under load: up, and back again.
//!
//! `QUORUMGATE_OLDER` names the binary of an earlier version; `chaos/upgrade.sh` builds one and sets
//! it. Five nodes go from it to this version and back then, and the fleet takes an endpoint out and back
//! in at every mixture of the two. Without it this binary is both, three nodes go up only, and what is
//! asserted is the same; that the bytes of earlier versions are read is held by the golden bytes of gossip's
//! `codec/tests.rs`, which are theirs, and by the state files below.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use breaker::SavedPhase;
use gateway::mock::Behaviour;
use gateway::snapshot::{self, Found};

use crate::CLIENTS;
use crate::fleet::{is_in, is_out};
use crate::load::Load;
use crate::process::{BINARY, until};
use crate::town::Town;

/// An ill endpoint refuses, and every request may be tried elsewhere: nothing hangs on how busy the
/// machine is.
const SECTIONS: &str = "circuit_breaker: { open: { base: 2s, max: 10s } }
retry: { budget: 1.0, budget_floor: 1000 }
state: { file: NODE.state, every: 1s }
";

/// What an upgrade has shown so far.
#[derive(Debug, Default)]
struct Record {
    restarts: usize,
    flips: usize,
    slowest_flip: Duration,
}

impl Record {
    /// Has the fleet take `b` out and back in, each by the word of every node.
    async fn flip(&mut self, town: &Town, mixture: &str) {
        let well = town.mocks[1].behaviour();
        town.mocks[1].set(Behaviour { status: Some(503), ..well.clone() });
        let began = Instant::now();
        for node in &town.nodes {
            until(&format!("{} takes b out, {mixture}", node.name), async || is_out(node).await)
                .await;
        }
        self.slowest_flip = self.slowest_flip.max(began.elapsed());
        town.mocks[1].set(well);
        for node in &town.nodes {
            until(&format!("{} takes b back, {mixture}", node.name), async || is_in(node).await)
                .await;
        }
        self.flips += 1;
    }

    /// Replaces one node by another binary.
    async fn replace(&mut self, town: &mut Town, load: &Load, index: usize) {
        let size = town.nodes.len();
        town.nodes[index].signal("TERM");
        let code = tokio::task::block_in_place(|| town.nodes[index].wait());
        let name = town.nodes[index].name.clone();
        assert_eq!(code, Some(0), "{name}: {:?}", town.nodes[index].log());
        let seed = town.nodes[(index + 1) % size].gossip;
        town.nodes[index] = town.raise(index + 1, seed);
        load.moves(index, town.nodes[index].clients, town.nodes[index].operators);
        town.is_whole(size).await;
        let node = &town.nodes[index];
        until("it may decide", async || node.look("/admin/v1/cluster").await["observing_ms"] == 0)
            .await;
        let log = node.log().join("\n");
        assert!(!log.contains("of no use"), "a state file was set aside: {log}");
        self.restarts += 1;
    }
}

/// Nothing that a member says is thrown away by another for what it is. A word of a life that is over may
/// come late, with whatever versions; and a kind of record that is new is skipped and counted by those
/// nodes that `are_older`, as `deploy/guide/release.md` allows it.
async fn is_understood(town: &Town, are_older: impl Fn(usize) -> bool, mixture: &str) {
    for (index, node) in town.nodes.iter().enumerate() {
        let page = node.text("/metrics").await;
        let is_allowed = |line: &str| {
            line.contains("\"identity\"") || are_older(index) && line.contains("\"unknown_format\"")
        };
        let is_reject = |line: &&str| {
            line.contains("gossip_rejects_total{") && !line.ends_with(" 0") && !is_allowed(line)
        };
        assert!(page.contains("gossip_rejects_total{"), "nothing is counted: {page}");
        let rejects: Vec<&str> = page.lines().filter(is_reject).collect();
        assert_eq!(rejects, [""; 0], "{}, {mixture}", node.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_in_one_fleet_lose_no_request_and_decide_together() {
    let older = std::env::var_os("QUORUMGATE_OLDER").map(PathBuf::from);
    let newer = Path::new(BINARY);
    let (count, ways) = match &older {
        Some(older) => (5, vec![newer, older]),
        None => (3, vec![newer]),
    };
    let first = older.as_deref().unwrap_or(newer);
    let mut town = Town::start_of(count, "1500ms", first, SECTIONS).await;
    let places = town.nodes.iter().map(|node| (node.clients, node.operators)).collect();
    let load = Load::on(places, CLIENTS).await;
    let mut record = Record::default();
    for way in ways {
        town.binary = way.to_owned();
        for index in 0..count {
            record.replace(&mut town, &load, index).await;
            let mixture = format!("{} of {count} run {}", index + 1, way.display());
            // One flip is enough where both are the same.
            if older.is_some() || index == count / 2 {
                record.flip(&town, &mixture).await;
            }
            // Those up to this one run what is being rolled out, the others what was there.
            let is_way_up = way == newer;
            let are_older = |one: usize| older.is_some() && (one <= index) != is_way_up;
            is_understood(&town, are_older, &mixture).await;
        }
    }
    let tally = load.stop().await;
    eprintln!(
        "{record:?}: {} answers, {} streams, {} refused by who was not ready, {} failures",
        tally.plain,
        tally.streams,
        tally.refused,
        tally.failures.len()
    );
    assert_eq!(tally.failures, [""; 0]);
    assert!(tally.plain > 20 * record.restarts && tally.streams > 5 * record.restarts, "{tally:?}");
}

/// A state file that commit 3073b70 has written: of `m/a`, which is well, and of `m/b`, which is
/// out since it refuses.
const STATE: &str = "51475301a8129d64f376ee92fd36b5202fa201000002036d2f61fbcd0c00000001fb510300fbcc0c00fb3075 \
    01fbcc0c1818000000000000036d2f62fbcd0c010100000001fbe5e400";

#[test]
fn the_state_file_of_an_earlier_version_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let digits: String = STATE.split_whitespace().collect();
    let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
    std::fs::write(&path, bytes.collect::<Result<Vec<u8>, _>>().unwrap()).unwrap();
    let Found::Saved(saved) = snapshot::read(&path, 0) else { panic!("it is of no use") };
    let phases: Vec<_> = saved.iter().map(|one| (one.key.as_str(), &one.snapshot.phase)).collect();
    assert!(
        matches!(phases[..], [("m/a", SavedPhase::Closed(_)), ("m/b", SavedPhase::Open { .. })]),
        "{phases:?}"
    );
}
