//! A cluster of three primaries, each with a replica.

use super::{Server, cli, wait_for};

const WORDS: [&str; 6] = [
    "--cluster-enabled",
    "yes",
    "--cluster-config-file",
    "nodes.conf",
    "--cluster-node-timeout",
    "1500",
];

/// All six, and whoever has joined since.
pub struct Cluster {
    pub servers: Vec<Server>,
    /// Their names in the cluster.
    pub names: Vec<String>,
}

impl Cluster {
    /// Starts all, with a failover after about two seconds of silence.
    pub fn start() -> Self {
        let servers: Vec<_> = (0..6).map(|_| Server::start(&WORDS)).collect();
        let servers: Vec<_> = servers.into_iter().map(Server::answers).collect();
        let places: Vec<_> = servers.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(places.iter().map(String::as_str));
        create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        let said = cli(&create).expect("the cluster was not made");
        assert!(said.contains("All 16384 slots covered"), "{said}");
        let names = servers.iter().map(name).collect();
        let all = Self { servers, names };
        wait_for(|| all.servers.iter().all(is_whole));
        // A failover needs a replica that has had all data.
        wait_for(|| all.servers.iter().filter(|server| follows(server)).count() == 3);
        all
    }

    /// Another primary joins, without any slot. Returns its place among the servers.
    pub fn join(&mut self) -> usize {
        let server = Server::start(&WORDS).answers();
        let known = self.servers[0].port.to_string();
        assert_eq!(server.cli(&["CLUSTER", "MEET", "127.0.0.1", &known]), "OK");
        let name = name(&server);
        self.servers.push(server);
        self.names.push(name.clone());
        let knows = |server: &Server| server.cli(&["CLUSTER", "NODES"]).contains(&name);
        let is_in = |server: &Server| server.cli(&["CLUSTER", "INFO"]).contains("state:ok");
        wait_for(|| self.servers.iter().all(|server| knows(server) && is_in(server)));
        self.servers.len() - 1
    }

    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// Those that are primaries, by their place among the servers.
    pub fn primaries(&self) -> Vec<usize> {
        let is = |index: &usize| self.servers[*index].cli(&["ROLE"]).starts_with("master");
        (0..self.servers.len()).filter(is).collect()
    }
}

fn name(server: &Server) -> String {
    server.cli(&["CLUSTER", "MYID"])
}

fn is_whole(server: &Server) -> bool {
    let said = server.cli(&["CLUSTER", "INFO"]);
    said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:6")
}

fn follows(server: &Server) -> bool {
    server.cli(&["INFO", "replication"]).contains("master_link_status:up")
}
