//! The demo's stage: three gateways and four mock endpoints on loopback, in this process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use breaker::State;
use quorum::EndpointKey;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::say;
use crate::app::App;
use crate::clock;
use crate::config;
use crate::mock::{self, Mock};
use crate::people::chain;

/// The model that the demo serves.
pub(super) const MODEL: &str = "demo-model";
const NODES: [&str; 3] = ["gw-1", "gw-2", "gw-3"];
const ENDPOINTS: [&str; 4] = ["gpu-a", "gpu-b", "gpu-c", "gpu-d"];

/// What stands on the stage.
pub(super) struct Stage {
    nodes: Vec<Node>,
    mocks: Vec<(&'static str, SocketAddr, Mock)>,
    tasks: Vec<JoinHandle<()>>,
    certificates: PathBuf,
}

/// One of the gateways.
pub(super) struct Node {
    app: App,
}

/// What a node says of an endpoint at one moment.
pub(super) struct Sight {
    pub(super) slow_pieces: u32,
    pub(super) local: State,
    pub(super) local_since: Option<Duration>,
    pub(super) is_out: bool,
    pub(super) is_serving: bool,
    pub(super) votes: usize,
    pub(super) quorum: usize,
}

impl Stage {
    /// Sets everything up.
    ///
    /// # Errors
    /// One line: what could not be started.
    pub(super) async fn set() -> Result<Self, String> {
        let mut stage = Self {
            nodes: Vec::new(),
            mocks: Vec::new(),
            tasks: Vec::new(),
            certificates: throw_away_directory()?,
        };
        for name in ENDPOINTS {
            stage.add_mock(name).await.map_err(|error| format!("mock {name}: {error}"))?;
        }
        gossip::certs::throw_away(&stage.certificates, &NODES).map_err(|e| e.to_string())?;
        for name in NODES {
            let seed = stage.nodes.first().and_then(|node| node.app.gossip_address);
            let text = stage.configuration(name, seed);
            let config = config::parse(&text, "demo.yaml", &|_| None).map_err(|e| e.to_string())?;
            let app =
                App::start(&config).await.map_err(|error| format!("{name}: {}", chain(&error)))?;
            stage.nodes.push(Node { app });
        }
        Ok(stage)
    }

    async fn add_mock(&mut self, name: &'static str) -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mock = Mock::new(name);
        self.mocks.push((name, address, mock.clone()));
        self.tasks.push(tokio::spawn(async move {
            if let Err(error) = mock::serve(listener, mock).await {
                say(&format!("mock {name}: {error}"));
            }
        }));
        Ok(())
    }

    /// The configuration of one node, as it could stand in a file.
    fn configuration(&self, node: &str, seed: Option<SocketAddr>) -> String {
        let certificate = |name: &str| self.certificates.join(name).display().to_string();
        let seeds = seed.map(|seed| seed.to_string()).unwrap_or_default();
        let endpoints: String = self
            .mocks
            .iter()
            .map(|(name, address, _)| {
                format!("      - {{ name: {name}, address: \"http://{address}\" }}\n")
            })
            .collect();
        format!(
            "server: {{ listen: 127.0.0.1:0, workers: 1, drain_delay: 100ms, drain_timeout: 2s }}
admin: {{ listen: 127.0.0.1:0 }}
cluster:
  id: demo
  node_id: {node}
  listen: 127.0.0.1:0
  seeds: [{seeds}]
  tls: {{ ca: \"{}\", cert: \"{}\", key: \"{}\" }}
  gossip_interval: 1s
  quorum: {{ expected_members: 3 }}
circuit_breaker:
  slow: {{ total: 1s, first_token: off, dedup: 500ms, confirmations: 2 }}
  open: {{ base: 5s, max: 20s }}
  probe: {{ first_token: 1s }}
models:
  - name: {MODEL}
    endpoints:
{endpoints}",
            certificate("ca.crt"),
            certificate(&format!("{node}.crt")),
            certificate(&format!("{node}.key")),
        )
    }

    /// Tells where everything is.
    pub(super) fn introduce(&self) {
        for node in &self.nodes {
            let app = &node.app;
            say(&format!(
                "{}: clients http://{}  the live page http://{}/",
                app.seat.me, app.address, app.admin_address
            ));
        }
        for (name, address, _) in &self.mocks {
            say(&format!("{name}: http://{address}  faults http://{address}/__admin/state"));
        }
    }

    pub(super) fn key(&self, endpoint: &str) -> EndpointKey {
        EndpointKey::new(&format!("{MODEL}/{endpoint}"))
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The mock of an endpoint.
    pub(super) fn mock(&self, endpoint: &str) -> Mock {
        let found = self.mocks.iter().find(|(name, ..)| *name == endpoint);
        found.map_or_else(|| Mock::new(endpoint), |(_, _, mock)| mock.clone())
    }

    pub(super) fn client_addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.app.address).collect()
    }

    /// Whether every node knows all three.
    pub(super) fn is_fleet_formed(&self) -> bool {
        self.nodes.iter().all(|node| node.app.seat.council().live_count() == NODES.len())
    }

    /// Whether no node has the endpoint out, for itself or by the fleet.
    pub(super) fn is_in_everywhere(&self, key: &EndpointKey) -> bool {
        let now = clock::now();
        self.nodes
            .iter()
            .all(|node| node.sight(now, key).is_some_and(|s| !s.is_out && s.is_serving))
    }

    /// Who leads the endpoint's recovery.
    pub(super) fn steward(&self, key: &EndpointKey) -> Option<String> {
        let seat = &self.nodes.first()?.app.seat;
        let view = seat.council().endpoint(clock::now(), key)?;
        view.steward.map(|node| node.to_string())
    }

    /// Takes everything down, in good order.
    pub(super) async fn strike(self) {
        for node in self.nodes {
            node.app.shutdown().await;
        }
        for task in self.tasks {
            task.abort();
        }
        let _ = std::fs::remove_dir_all(&self.certificates);
    }
}

impl Node {
    pub(super) fn name(&self) -> String {
        self.app.seat.me.to_string()
    }

    /// What the node says of an endpoint.
    pub(super) fn sight(&self, now: Duration, key: &EndpointKey) -> Option<Sight> {
        let fleet = self.app.fleet();
        let (_, endpoint) = fleet.endpoint(key)?;
        let view = endpoint.view(now);
        let cluster = self.app.seat.council().endpoint(now, key)?;
        Some(Sight {
            slow_pieces: view.slow_pieces,
            local: view.state,
            local_since: endpoint.local_opening().map(|opening| opening.since),
            is_out: view.held && cluster.is_open,
            is_serving: endpoint.weight() > 0,
            votes: cluster.tally.counted,
            quorum: cluster.tally.quorum,
        })
    }
}

/// A directory of this process alone, readable by its owner only.
fn throw_away_directory() -> Result<PathBuf, String> {
    use std::os::unix::fs::DirBuilderExt;
    let name = format!("quorumgate-demo-{}-{:08x}", std::process::id(), fastrand::u32(..));
    let path = std::env::temp_dir().join(name);
    let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
