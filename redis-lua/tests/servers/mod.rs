//! Real Redis servers for tests: started on free loopback ports, ended by their process ids.
//!
//! Other crates' tests include this folder by path, so that it needs nothing but the standard library,
//! tokio and the redis crate.

#![allow(unreachable_pub, dead_code, reason = "each test binary uses a part")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may stop loudly"
)]

pub mod cluster;
pub mod fake;
pub mod sentinels;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take to answer after its start, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder that is gone when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A port that nobody listens on, low enough that the kernel gives it to no outgoing connection, and
/// that leaves room for a cluster's bus 10,000 above.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(37);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(12_000 + (start + step) % 8_000).unwrap();
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

/// A running `redis-server`, or a sentinel.
pub struct Server {
    child: Option<Child>,
    words: Vec<String>,
    /// What `redis-cli` needs to be let in.
    entry: Vec<String>,
    pub port: u16,
    folder: Folder,
}

impl Server {
    /// Starts a server with these words beside `--port` and `--dir`; `PORT` and `DIR` in them stand
    /// for its own.
    pub fn start(extra: &[&str]) -> Self {
        let port = free_port();
        let folder = Folder::new();
        let dir = folder.path().display().to_string();
        let mut words = vec![
            "--port".to_owned(),
            port.to_string(),
            "--bind".to_owned(),
            "127.0.0.1".to_owned(),
            "--dir".to_owned(),
            dir.clone(),
            "--save".to_owned(),
            String::new(),
            "--appendonly".to_owned(),
            "no".to_owned(),
        ];
        let own = |word: &&str| word.replace("PORT", &port.to_string()).replace("DIR", &dir);
        words.extend(extra.iter().map(own));
        let mut server = Self { child: None, words, entry: Vec::new(), port, folder };
        server.restart();
        server
    }

    /// Starts what is killed again, at the same port.
    pub fn restart(&mut self) {
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let child = Command::new("redis-server")
            .args(&self.words)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("redis-server is not installed"));
    }

    /// Makes `redis-cli` use these words, for TLS or a password.
    pub fn entered_by(mut self, words: &[&str]) -> Self {
        self.entry = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Waits until it answers anything at all.
    pub fn answers(self) -> Self {
        wait_for(|| self.try_cli(&["PING"]).is_some_and(|answer| !answer.contains("Could not")));
        self
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("it was killed").id()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs a command by `redis-cli`, and gives what it printed.
    pub fn cli(&self, words: &[&str]) -> String {
        self.try_cli(words).expect("redis-cli did not answer")
    }

    fn try_cli(&self, words: &[&str]) -> Option<String> {
        let port = self.port.to_string();
        let mut all = vec!["-p", port.as_str()];
        all.extend(self.entry.iter().map(String::as_str));
        all.extend(words);
        cli(&all)
    }

    /// Stops it where it stands: connections stay, nothing is answered.
    pub fn stop(&self) {
        signal(self.id(), "STOP");
    }

    /// Lets it go on.
    pub fn cont(&self) {
        signal(self.id(), "CONT");
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One server on its own.
pub struct Standalone {
    pub server: Server,
}

impl Standalone {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With these words on its command line.
    pub fn with(extra: &[&str]) -> Self {
        Self { server: Server::start(extra).answers() }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }
}

/// Runs `redis-cli`, for as long as it takes, up to ten seconds.
pub fn cli(words: &[&str]) -> Option<String> {
    let output = Command::new("timeout").args(["10", "redis-cli"]).args(words).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Waits for something that takes its time, looking often.
pub fn wait_for(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it has not come in {PATIENCE:?}");
        sleep(Duration::from_millis(20));
    }
}

fn signal(id: u32, name: &str) {
    let done = Command::new("kill").args([&format!("-{name}"), &id.to_string()]).status();
    assert!(done.unwrap().success());
}
