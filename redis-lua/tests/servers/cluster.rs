//! A cluster of three primaries, each with a replica.

use super::{Server, cli, wait_for};

/// All six.
pub struct Cluster {
    pub servers: Vec<Server>,
}

impl Cluster {
    /// Starts all, with a failover after about two seconds of silence.
    pub fn start() -> Self {
        let words = [
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
            "--cluster-node-timeout",
            "1500",
        ];
        let servers: Vec<_> = (0..6).map(|_| Server::start(&words)).collect();
        let servers: Vec<_> = servers.into_iter().map(Server::answers).collect();
        let places: Vec<_> = servers.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(places.iter().map(String::as_str));
        create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        let said = cli(&create).expect("the cluster was not made");
        assert!(said.contains("All 16384 slots covered"), "{said}");
        let all = Self { servers };
        wait_for(|| all.servers.iter().all(is_whole));
        // A failover needs a replica that has had all data.
        wait_for(|| all.servers.iter().filter(|server| follows(server)).count() == 3);
        all
    }

    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// The name of a server in the cluster.
    pub fn name(&self, index: usize) -> String {
        self.servers[index].cli(&["CLUSTER", "MYID"])
    }

    /// Those that are primaries, by their place among the servers.
    pub fn primaries(&self) -> Vec<usize> {
        let is = |index: &usize| self.servers[*index].cli(&["ROLE"]).starts_with("master");
        (0..self.servers.len()).filter(is).collect()
    }
}

fn is_whole(server: &Server) -> bool {
    let said = server.cli(&["CLUSTER", "INFO"]);
    said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:6")
}

fn follows(server: &Server) -> bool {
    server.cli(&["INFO", "replication"]).contains("master_link_status:up")
}
