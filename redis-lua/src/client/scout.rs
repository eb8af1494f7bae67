//! Finds out which servers there are, and which keys each has.
//!
//! A standalone server is where the configuration says. The primary behind sentinels is the one of
//! the highest configuration epoch that any of them knows, so that a sentinel that has missed a
//! failover, and an old primary that has come back, do not mislead. A cluster is asked for its slots,
//! first through servers that are known to be good.

mod cluster;
mod sentinel;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

pub(super) use self::cluster::STEP as SLOTS;
use super::config::{Address, Config, Mode};
use super::dial::Dialer;
use super::link::jittered;
use super::papers::Papers;
use super::setback::Setback;
use super::table::{Owners, Table};
use crate::error::Trouble;

/// How often it is asked anew while nothing calls for it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long after one look the next may be, whoever calls for it. After looks that found nothing it
/// doubles, up to [`LOOK_EVERY`].
const LOOK_GAP: Duration = Duration::from_millis(50);

/// Who is where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) owners: Owners,
    /// All that have keys, each with a key of ours in one of its slots.
    pub(super) servers: Vec<(Address, String)>,
    /// Whether every slot has an owner.
    pub(super) is_whole: bool,
}

/// What was found last; before that, why nothing was.
pub(super) type Sight = Result<Arc<Places>, Setback>;

/// How it is found out.
enum Way {
    Standalone(Address),
    Sentinel(sentinel::Sentinels),
    Cluster(cluster::Seeds),
}

/// Who finds out.
pub(super) struct Scout {
    way: Way,
    prefix: String,
    seen: watch::Sender<Sight>,
}

impl Scout {
    /// A scout that tells `seen`; `urls` are the configured addresses.
    pub(super) fn new(
        config: &Config,
        urls: Vec<Address>,
        papers: Option<Arc<Papers>>,
        dialer: Arc<Dialer>,
        seen: watch::Sender<Sight>,
    ) -> Self {
        let way = match &config.mode {
            Mode::Sentinel { master } => {
                let password = config.sentinel_password.as_deref();
                let dialer = Dialer::plain(papers, config.timeout, password);
                let name = master.clone();
                Way::Sentinel(sentinel::Sentinels::new(urls, dialer, config.timeout, name))
            }
            Mode::Standalone => {
                Way::Standalone(urls.into_iter().next().unwrap_or_else(Address::nowhere))
            }
            Mode::Cluster => Way::Cluster(cluster::Seeds::new(urls, dialer, config.timeout)),
        };
        Self { way, prefix: config.prefix.clone(), seen }
    }

    /// Looks again and again, sooner when `look` asks for it.
    pub(super) async fn run(mut self, table: watch::Receiver<Arc<Table>>, look: Arc<Notify>) {
        let mut gap = LOOK_GAP;
        loop {
            let known = Arc::clone(&table.borrow());
            let sight = match &mut self.way {
                Way::Standalone(address) => Ok(whole(&self.prefix, address.clone())),
                Way::Sentinel(sentinels) => {
                    sentinels.primary().await.map(|address| whole(&self.prefix, address))
                }
                Way::Cluster(seeds) => seeds.places(&self.prefix, &known).await,
            };
            let pause = jittered(gap);
            gap = if sight.is_ok() { LOOK_GAP } else { (gap * 2).min(LOOK_EVERY) };
            self.tell(sight);
            sleep(pause).await;
            tokio::select! {
                () = look.notified() => {}
                () = sleep(jittered(LOOK_EVERY)) => {}
            }
        }
    }

    /// What was found once stays until something else is: a scout that is blind is no reason to leave
    /// servers that are good.
    fn tell(&self, sight: Result<Places, Setback>) {
        self.seen.send_if_modified(|last| match (&*last, sight) {
            (Ok(_), Err(_)) => false,
            (Err(last), Err(setback)) if *last == setback => false,
            (Ok(last), Ok(places)) if **last == places => false,
            (_, sight) => {
                *last = sight.map(Arc::new);
                true
            }
        });
    }
}

/// One server that has all keys.
fn whole(prefix: &str, address: Address) -> Places {
    Places {
        owners: Owners::One(address.clone()),
        servers: vec![(address, format!("{prefix}{{health}}:beat"))],
        is_whole: true,
    }
}

/// One question, within one deadline.
async fn ask(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    deadline: Duration,
) -> Result<Value, Trouble> {
    let answer = timeout(deadline, connection.send_packed_command(command)).await;
    let answer = answer.map_err(|_| Trouble::Timeout)?;
    answer.and_then(Value::extract_error).map_err(|error| Trouble::from(&error))
}

/// A text, as any of the types that servers send texts as.
fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
