//! The parts that take on another configuration while they run, and in which order they do.
//!
//! Everything that may fail is made first and apart: the endpoints, the ways to them, the gate. What
//! then follows cannot fail: the endpoints' rules, the council, the workers, the checks, the tokens.
//! So a configuration is taken on whole or not at all. A request that began under the old one keeps it
//! to its end.

use std::sync::{Arc, Mutex, PoisonError};

use hyper::header::HeaderValue;

use crate::admin::Tokens;
use crate::cluster::Seat;
use crate::config::{Config, Policy};
use crate::fleet::{Changes, Fleet, Heir, Sink};
use crate::health::Checks;
use crate::keys::Keys;
use crate::limits::Desk;
use crate::memory::Memory;
use crate::metrics::Meters;
use crate::people::chain;
use crate::proxy::admission::Vocabulary;
use crate::proxy::{Cors, Gate};
use crate::reload::Adopt;
use crate::server::{Desks, Identity, Pair};
use crate::trace::Tracer;
use crate::upstream::Roads;

/// Sets from which level on is logged.
pub type Relevel = Box<dyn Fn(&str) + Send + Sync>;

/// The parts of a running gateway that another configuration reaches.
pub(super) struct Live {
    pub(super) seat: Arc<Seat>,
    pub(super) meters: Arc<Meters>,
    pub(super) sink: Sink,
    pub(super) desks: Arc<Desks>,
    pub(super) checks: Arc<Checks>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) identity: Option<Arc<Identity>>,
    /// Whether others than this machine reach the operators' listener.
    pub(super) is_exposed: bool,
    pub(super) relevel: Option<Relevel>,
    /// What the workers have before them. A plain mutex: one reload at a time looks at it.
    pub(super) current: Mutex<(Arc<Gate>, Arc<Roads>)>,
}

/// What was made of a configuration and is not in use yet.
struct Ready {
    heir: Heir,
    gate: Arc<Gate>,
    roads: Arc<Roads>,
    /// The certificate that clients are to be shown.
    identity: Option<Pair>,
}

impl Live {
    /// Makes whatever of `config` may fail to be made, and changes nothing but that the series of what is
    /// new are counted in `meters` from here on.
    fn prepare(&self, config: &Config, meters: &Arc<Meters>) -> Result<Ready, String> {
        if self.is_exposed && config.admin.token.is_none() {
            return Err("admin.token: cannot be taken away while others than this machine reach \
                the operators' listener; restart with admin.listen at 127.0.0.1"
                .to_owned());
        }
        let identity = match (&self.identity, &config.server.tls) {
            (Some(_), Some(files)) => Some(Identity::read(files).map_err(|error| chain(&error))?),
            (Some(_) | None, _) => None,
        };
        // Files are read without the lock.
        let (gate, roads) = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let roads = roads.heir(&config.pools).map_err(|error| chain(&error))?;
        // From here on nothing fails, so that no series is made for what is refused.
        let heir = self.seat.fleet().heir(&config.pools, meters, &self.sink);
        let gate = self::gate(
            config,
            (gate.node.clone(), gate.tracer.clone()),
            &heir.fleet,
            meters,
            Some(&gate),
        );
        Ok(Ready { heir, gate, roads, identity })
    }
}

impl Adopt for Live {
    fn try_on(&self, config: &Config) -> Result<(), String> {
        // What is only tried on leaves no series behind.
        self.prepare(config, &Arc::new(Meters::new())).map(drop)
    }

    fn adopt(&self, config: &Config) -> Result<Changes, String> {
        let Ready { heir, gate, roads, identity: pair } = self.prepare(config, &self.meters)?;
        if let (Some(identity), Some(pair)) = (&self.identity, pair) {
            identity.show(pair);
        }
        // An endpoint is known to the council before it gets its first request.
        self.seat.adopt(&heir, &roads, config.hash());
        self.desks.replace(&config.server, &gate, &roads);
        roads.forget_others();
        self.checks.adopt(&self.seat);
        self.tokens.replace(&config.admin);
        if let Some(relevel) = &self.relevel {
            relevel(&config.log.level);
        }
        gate.memory.tell(&self.meters);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = (gate, roads);
        Ok(heir.changes)
    }
}

/// What every request needs to know by `config`; `before`: the gate that this one takes the place of,
/// which hands on what callers and models have used up, and which requests are held for deadly.
pub(super) fn gate(
    config: &Config,
    (node, tracer): (HeaderValue, Option<Arc<Tracer>>),
    fleet: &Arc<Fleet>,
    meters: &Arc<Meters>,
    before: Option<&Gate>,
) -> Arc<Gate> {
    let share = fleet.share();
    let desk = before.map(|gate| gate.desk.heir(config, share));
    Arc::new(Gate {
        fleet: Arc::clone(fleet),
        meters: Arc::clone(meters),
        keys: Keys::new(&config.api_keys, &config.pools),
        has_prefixes: config.pools.iter().any(|pool| pool.policy == Policy::PrefixHash),
        vocabulary: config.fail_closed.tokenizer.map(Vocabulary::load),
        desk: desk.unwrap_or_else(|| Desk::new(config, share)),
        fail_closed: config.fail_closed.clone(),
        quarantine: before.map(|gate| Arc::clone(&gate.quarantine)).unwrap_or_default(),
        retry: config.retry.clone(),
        max_body_bytes: config.server.max_body_bytes,
        memory: match before {
            Some(gate) => gate.memory.heir(config.server.max_body_memory_bytes),
            None => Memory::new(config.server.max_body_memory_bytes, meters),
        },
        body_idle: config.server.body_idle,
        cors: config.server.cors.as_ref().map(Cors::new),
        heartbeat: config.server.heartbeat,
        tracer,
        node,
    })
}
