//! A primary, two replicas, and three sentinels that watch them.

use std::fs;

use super::{Folder, Server, cli, free_port, wait_for};

/// What the sentinels call the primary.
pub const NAME: &str = "main";

/// All six.
pub struct Sentinels {
    /// The primary first, as of the start.
    pub servers: Vec<Server>,
    pub sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts all, with a failover after one second of silence.
    pub fn start() -> Self {
        let primary = Server::start(&[]).answers();
        let port = primary.port.to_string();
        let follow = || Server::start(&["--replicaof", "127.0.0.1", &port]);
        let replicas = [follow(), follow()].map(Server::answers);
        let follows = |replica: &Server| {
            replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
        };
        wait_for(|| replicas.iter().all(follows));
        let sentinels = (0..3).map(|_| sentinel(primary.port, 2, "")).collect();
        let servers = std::iter::once(primary).chain(replicas).collect();
        let all = Self { servers, sentinels };
        // Each has to have heard of the others before it can vote.
        wait_for(|| all.sentinels.iter().all(|sentinel| knows_all(sentinel.port)));
        all
    }

    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// The port of the primary, in the eyes of a sentinel.
    pub fn primary(&self, sentinel: usize) -> u16 {
        let port = self.sentinels[sentinel].port.to_string();
        let asked = cli(&["-p", &port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        asked.unwrap_or_default().lines().nth(1).map_or(0, |port| port.parse().unwrap_or(0))
    }

    /// The server at a port.
    pub fn at(&mut self, port: u16) -> &mut Server {
        self.servers.iter_mut().find(|server| server.port == port).unwrap()
    }
}

/// One that watches the primary at a port, and calls it down when so many agree; with more lines of
/// configuration.
pub fn sentinel(primary: u16, quorum: u32, more: &str) -> Server {
    let (port, folder) = (free_port(), Folder::new());
    let file = folder.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {primary} {quorum}\n\
         sentinel down-after-milliseconds {NAME} 1000\nsentinel failover-timeout {NAME} 3000\n{more}\n"
    );
    fs::write(&file, text).unwrap();
    let words = vec![file.display().to_string(), "--sentinel".to_owned()];
    let mut server = Server { child: None, words, entry: Vec::new(), port, folder };
    server.restart();
    server.answers()
}

fn knows_all(port: u16) -> bool {
    let said = cli(&["-p", &port.to_string(), "SENTINEL", "MASTER", NAME]).unwrap_or_default();
    let lines: Vec<_> = said.lines().collect();
    let after = |name: &str| {
        let at = lines.iter().position(|line| *line == name)?;
        lines.get(at + 1).copied()
    };
    after("num-other-sentinels") == Some("2") && after("num-slaves") == Some("2")
}
