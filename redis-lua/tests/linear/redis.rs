//! Ways to the ledger that lead to a real Redis, over wires that are slow and lose answers, some with
//! a fault that is planted.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use quorum::EndpointKey;
use quorum::ledger::{Answer, Call, Deed};
use redis_lua::client::{self, Client, Config, Health, Mode};
use redis_lua::error::Trouble;
use redis_lua::keys::Keys;
use redis_lua::ledger;
use redis_lua::script::Script;
use tokio::sync::watch;

use crate::doors::Fault;
use crate::history::{CALLERS, Door, Silence};
use crate::wire::{Delays, wire};

/// How long a caller waits, on a machine with much else to do.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Now and then a piece comes late, and a few pieces come after everybody has given up.
const DELAYS: Delays = Delays {
    one_of: 4,
    longest: Duration::from_millis(4),
    lost_one_of: 400,
    lost: Duration::from_millis(130),
};

/// No client is down for longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What `advance.lua` refuses a step by that was made for another version.
const VERSION_CHECK: &str = "SEEN.version ~= page.version or ";

/// A client that works until the switch is dropped.
pub(crate) async fn connect(url: String, timeout: Duration) -> (Client, watch::Sender<bool>) {
    let (switch, stop) = watch::channel(false);
    let mut config = Config::new(vec![url], Mode::Standalone);
    config.timeout = timeout;
    let (client, supervision) = client::start(config, stop).unwrap();
    tokio::spawn(supervision);
    client.health().wait_for(Health::is_up).await.unwrap();
    (client, switch)
}

/// A Redis behind a wire for each caller.
#[derive(Clone)]
pub(crate) struct RedisDoor {
    clients: Arc<Vec<(Client, watch::Sender<bool>)>>,
    keys: Keys,
    told: Arc<Mutex<HashMap<EndpointKey, Answer>>>,
    random: Arc<Mutex<fastrand::Rng>>,
    fault: Fault,
}

impl RedisDoor {
    /// Ways to the server at `port`.
    pub(crate) async fn to(port: u16, fault: Fault, seed: u64) -> Self {
        let server = SocketAddr::from(([127, 0, 0, 1], port));
        let mut random = fastrand::Rng::with_seed(seed);
        let mut clients = Vec::new();
        for _ in 0..CALLERS {
            let near = wire(server, DELAYS, random.u64(..)).await;
            clients.push(connect(format!("redis://{near}"), TIMEOUT).await);
        }
        Self {
            clients: Arc::new(clients),
            keys: Keys::new("linear"),
            told: Arc::default(),
            random: Arc::new(Mutex::new(random)),
            fault,
        }
    }

    async fn ask(&self, client: &Client, call: &Call) -> Result<Answer, Trouble> {
        if self.fault == Fault::LostUpdate && matches!(call.deed, Deed::Advance { .. }) {
            let mut invocation = ledger::invocation(&self.keys, call)?;
            invocation.script = careless();
            let value = client.run(invocation).await?;
            return ledger::reply(&value).map(|reply| reply.answer);
        }
        let answer = ledger::call(client, &self.keys, call).await?;
        if self.fault == Fault::StaleRead && call.deed == Deed::Read {
            let mut told = self.told.lock().unwrap();
            let before = told.insert(call.endpoint.clone(), answer.clone());
            let is_stale = self.random.lock().unwrap().u32(0..4) == 0;
            return Ok(before.filter(|_| is_stale).unwrap_or(answer));
        }
        Ok(answer)
    }
}

impl Door for RedisDoor {
    async fn call(&self, caller: usize, call: &Call) -> Result<Answer, Silence> {
        let (client, _) = &self.clients[caller];
        // While it is down nothing is sent, and nothing learned.
        let mut health = client.health();
        let up = tokio::time::timeout(PATIENCE, health.wait_for(Health::is_up)).await;
        drop(up.unwrap().unwrap());
        self.ask(client, call).await.map_err(|trouble| match trouble {
            Trouble::Busy => Silence::Unsent,
            Trouble::Away | Trouble::Timeout | Trouble::Refused(_) | Trouble::Tls(_) => {
                Silence::Lost
            }
            Trouble::Wrong(what) => unreachable!("{what}: {call:?}"),
        })
    }
}

/// `advance.lua` without the check of the version.
fn careless() -> &'static Script {
    static CARELESS: OnceLock<Script> = OnceLock::new();
    CARELESS.get_or_init(|| {
        let scripts = ledger::scripts();
        let source = scripts.iter().find(|script| script.name == "advance").unwrap().source;
        let careless = source.replace(VERSION_CHECK, "");
        assert_ne!(careless, source, "advance.lua no longer checks the version so");
        Script::new("careless", Box::leak(careless.into_boxed_str()))
    })
}
