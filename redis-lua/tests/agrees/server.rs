//! A server of the test's own, and the ledger's scripts with a clock that the test turns.
#![expect(clippy::unwrap_used, reason = "a test may stop loudly")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quorum::ledger::Call;
use redis::{Connection, Pipeline, Value};
use redis_lua::keys::Keys;
use redis_lua::ledger::invocation;

const WORDS: &str = include_str!("../../lua/words.lua");
const PAGE: &str = include_str!("../../lua/page.lua");

/// In place of `server.lua`: the last two arguments are the time and the run.
const CLOCK: &str = "local function clock() return tonumber(ARGV[#ARGV - 1]) end\n\
                     local function run_of_server() return ARGV[#ARGV] end\n";

const SCRIPTS: [(&str, &str); 8] = [
    ("cast", include_str!("../../lua/cast.lua")),
    ("take", include_str!("../../lua/take.lua")),
    ("renew", include_str!("../../lua/renew.lua")),
    ("release", include_str!("../../lua/release.lua")),
    ("advance", include_str!("../../lua/advance.lua")),
    ("carry", include_str!("../../lua/carry.lua")),
    ("order", include_str!("../../lua/order.lua")),
    ("read", include_str!("../../lua/read.lua")),
];

/// A server without a port: nobody else finds it.
pub(crate) struct Server {
    process: Child,
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts one, and returns when it answers.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no"])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, directory };
        let patience = Instant::now() + Duration::from_secs(20);
        while server.try_connect().is_none() {
            assert!(Instant::now() < patience, "redis-server does not answer");
            std::thread::yield_now();
        }
        server
    }

    /// Another connection.
    pub(crate) fn connect(&self) -> Connection {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> Option<Connection> {
        let socket: &Path = &self.directory.path().join("socket");
        let address = format!("redis+unix://{}", socket.display());
        redis::Client::open(address).ok()?.get_connection().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The ledger's scripts, loaded.
pub(crate) struct Scripts {
    keys: Keys,
    digests: Vec<(&'static str, String)>,
}

impl Scripts {
    /// Loads them as they are.
    pub(crate) fn load(connection: &mut Connection, keys: &Keys) -> Self {
        Self::load_altered(connection, keys, |source| source)
    }

    /// Loads them with what `alter` makes of each text.
    pub(crate) fn load_altered(
        connection: &mut Connection,
        keys: &Keys,
        alter: impl Fn(String) -> String,
    ) -> Self {
        let digests = SCRIPTS.map(|(name, own)| {
            let source = [CLOCK, &alter([WORDS, PAGE, own].concat())].concat();
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(source).query(connection);
            (name, load.unwrap())
        });
        Self { keys: keys.clone(), digests: digests.into() }
    }

    /// Adds one call to what is sent, made at `now` in `run`.
    pub(crate) fn push(&self, pipeline: &mut Pipeline, now: Duration, run: u64, call: &Call) {
        let invocation = invocation(&self.keys, call).unwrap();
        let name = invocation.script.name;
        let digest = &self.digests.iter().find(|(known, _)| *known == name).unwrap().1;
        let time = now.as_micros().to_string();
        pipeline
            .cmd("EVALSHA")
            .arg(digest)
            .arg(invocation.keys.len())
            .arg(&invocation.keys)
            .arg(&invocation.arguments)
            .arg(time)
            .arg(format!("{run:x}"));
    }

    /// Makes one call by itself.
    pub(crate) fn call(
        &self,
        connection: &mut Connection,
        now: Duration,
        call: &Call,
    ) -> redis::RedisResult<Value> {
        let mut pipeline = redis::pipe();
        self.push(&mut pipeline, now, 1, call);
        pipeline.query::<Vec<Value>>(connection).map(|mut all| all.remove(0))
    }
}
