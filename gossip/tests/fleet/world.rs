//! Nodes of a fleet as a test holds them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gossip::{Carrier, Config, Mine, Ours, Tls, certs};
use quorum::{
    Basis, Card, EndpointKey, Evidence, Heard, Member, Standing, Stated, Statement, Vote, VoteState,
};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The interval of tests in which gossip is to be quick.
pub(crate) const QUICK: Duration = Duration::from_millis(100);

/// A running node.
pub(crate) struct Running {
    pub(crate) carrier: Carrier,
    pub(crate) mine: watch::Sender<Mine>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Certificates of one CA.
pub(crate) struct Certificates {
    pub(crate) directory: TempDir,
}

impl Certificates {
    pub(crate) fn for_nodes(node_ids: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        certs::throw_away(directory.path(), node_ids).unwrap();
        Self { directory }
    }

    pub(crate) fn of(&self, node_id: &str) -> Tls {
        files(self.directory.path(), node_id)
    }
}

pub(crate) fn files(directory: &Path, node_id: &str) -> Tls {
    Tls::Files {
        ca: directory.join("ca.crt"),
        cert: directory.join(format!("{node_id}.crt")),
        key: directory.join(format!("{node_id}.key")),
    }
}

pub(crate) fn config(node_id: &str, tls: Tls, seeds: &[SocketAddr]) -> Config {
    Config {
        cluster_id: "fleet".to_owned(),
        node_id: node_id.to_owned(),
        generation: 1,
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: "127.0.0.1:0".to_owned(),
        seeds: seeds.iter().map(SocketAddr::to_string).collect(),
        gossip_interval: QUICK,
        tls,
        push: true,
    }
}

pub(crate) async fn start(config: Config) -> Running {
    let (mine, mine_out) = watch::channel(Mine::default());
    let (stop, stop_out) = watch::channel(false);
    let (carrier, run) = gossip::start(config, mine_out, stop_out).await.unwrap();
    Running { carrier, mine, stop, task: tokio::spawn(run) }
}

/// Starts nodes of one fleet, each of which knows the first.
pub(crate) async fn start_fleet(
    certificates: &Certificates,
    node_ids: &[&str],
    interval: Duration,
) -> Vec<Running> {
    let mut fleet: Vec<Running> = Vec::new();
    for node_id in node_ids {
        let seeds: Vec<_> = fleet.first().map(Running::address).into_iter().collect();
        let mut config = config(node_id, certificates.of(node_id), &seeds);
        config.gossip_interval = interval;
        fleet.push(start(config).await);
    }
    fleet
}

impl Running {
    pub(crate) fn address(&self) -> SocketAddr {
        self.carrier.local_addr
    }

    /// Waits until what the node holds is as wanted, and returns how long it took.
    pub(crate) async fn wait(&mut self, what: &str, wanted: impl Fn(&Ours) -> bool) -> Duration {
        let begin = Instant::now();
        let waited = timeout(PATIENCE, self.carrier.ours.wait_for(wanted)).await;
        let is_met = waited.is_ok_and(|met| met.is_ok());
        assert!(is_met, "{what} did not come; held is {:?}", self.carrier.ours.borrow().members);
        begin.elapsed()
    }

    /// Waits until a figure of the node is as wanted.
    pub(crate) async fn wait_for_count(&mut self, what: &str, counted: impl Fn(&Carrier) -> bool) {
        let begin = Instant::now();
        while !counted(&self.carrier) {
            assert!(begin.elapsed() < PATIENCE, "{what} was not counted: {:?}", self.carrier.stats);
            self.carrier.ours.changed().await.unwrap();
        }
    }

    pub(crate) fn state(&self, stated: Vec<Stated>) {
        self.mine.send_modify(|mine| mine.stated = stated);
    }

    pub(crate) fn member(&self, node_id: &str) -> Option<Member> {
        member(&self.carrier.ours.borrow(), node_id).cloned()
    }

    /// Ends the node without a word.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Stops the node in good order, and returns how long it took.
    pub(crate) async fn stop(self) -> Duration {
        let begin = Instant::now();
        self.stop.send(true).unwrap();
        timeout(PATIENCE, self.task).await.unwrap().unwrap();
        begin.elapsed()
    }
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

pub(crate) fn member<'a>(ours: &'a Ours, node_id: &str) -> Option<&'a Member> {
    ours.members.iter().find(|member| member.id.as_str() == node_id)
}

pub(crate) fn is_live(ours: &Ours, node_id: &str) -> bool {
    member(ours, node_id).is_some_and(|member| member.is_live)
}

/// The member's vote on the endpoint.
pub(crate) fn vote_of<'a>(ours: &'a Ours, node_id: &str, endpoint: &str) -> Option<&'a Vote> {
    let heard = member(ours, node_id)?.heard.iter();
    heard.map(|heard: &Heard| &heard.statement).find_map(|statement| match statement {
        Statement::Vote(on, vote) if on.as_str() == endpoint => Some(vote),
        Statement::Vote(..)
        | Statement::Step(..)
        | Statement::Override(..)
        | Statement::Window(..)
        | Statement::Member(..) => None,
    })
}

pub(crate) fn has_vote(ours: &Ours, node_id: &str, endpoint: &str) -> bool {
    vote_of(ours, node_id, endpoint).is_some_and(|vote| vote.state == VoteState::Stands)
}

pub(crate) fn vote(endpoint: &str, seq: u64, stands: bool) -> Stated {
    let vote = Vote {
        incident: 1,
        basis: Basis::FirstHand,
        state: if stands { VoteState::Stands } else { VoteState::Withdrawn },
        reason: "504 in a row".to_owned(),
        evidence: Evidence { requests: 9, faults_milli: 8_000, successes: 1, slow_pieces: 0 },
        age: Duration::from_millis(20),
    };
    Stated { seq, fresh: true, statement: Statement::Vote(EndpointKey::new(endpoint), vote) }
}

/// A vote that only gossip carries.
pub(crate) fn renewal(endpoint: &str, seq: u64) -> Stated {
    Stated { fresh: false, ..vote(endpoint, seq, true) }
}

pub(crate) fn card(standing: Standing) -> Option<Card> {
    Some(Card {
        version: "1".to_owned(),
        config_hash: "abc".to_owned(),
        standing,
        is_suspect: false,
    })
}
