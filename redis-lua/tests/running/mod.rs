//! A client that runs, for tests.

#![allow(unreachable_pub, dead_code, reason = "each test binary uses a part")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop loudly")]

use std::time::{Duration, Instant};

use redis::Value;
use redis_lua::client::{self, Client, Config, Health, Invocation};
use redis_lua::error::Trouble;
use redis_lua::script::Script;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Adds to a number.
pub static ADD: Script = Script::new("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])");

/// How soon *down* must be said.
pub const WITHIN: Duration = Duration::from_secs(1);
/// How soon *up* must be said, the longest pause between dials included.
pub const RETURN: Duration = Duration::from_secs(3);

/// A client and the task that works for it.
pub struct Running {
    pub client: Client,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    pub fn start(config: Config) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (client, supervise) = client::start(config, stopped).unwrap();
        Self { client, stop, task: tokio::spawn(supervise) }
    }

    pub async fn up(config: Config) -> Self {
        let running = Self::start(config);
        running.is_up_within(Duration::from_secs(10)).await;
        running
    }

    /// Waits for *up*, and tells how long it took.
    pub async fn is_up_within(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        let mut health = self.client.health();
        let up = timeout(limit, health.wait_for(Health::is_up)).await;
        assert!(up.is_ok(), "not up within {limit:?}: {:?}", *self.client.health().borrow());
        began.elapsed()
    }

    /// Waits for *down*, and tells how long it took, and why.
    pub async fn is_down_within(&self, limit: Duration) -> (Duration, Trouble) {
        let began = Instant::now();
        let mut health = self.client.health();
        let down = timeout(limit, health.wait_for(|health| !health.is_up())).await;
        let down = down.unwrap_or_else(|_| panic!("not down within {limit:?}"));
        let health = down.unwrap().clone();
        let Health::Down { trouble, .. } = health else { panic!("{health:?}") };
        (began.elapsed(), trouble)
    }

    pub async fn add(&self, key: &str) -> Result<Value, Trouble> {
        self.client.run(add(key)).await
    }

    /// Ends in good order.
    pub async fn end(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap();
        assert!(!self.client.health().borrow().is_up());
        assert_eq!(self.client.run(add("x{y}")).await, Err(Trouble::Away));
    }
}

/// One more.
pub fn add(key: &str) -> Invocation {
    Invocation { script: &ADD, keys: vec![key.to_owned()], arguments: vec![b"1".to_vec()] }
}
