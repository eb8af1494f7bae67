//! The whole gateway put together, and taken apart again in good order: the only file that knows
//! every part.

mod departure;
mod failure;
mod ledger;
mod live;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gossip::{Carrier, Mine, Ours};
use hyper::header::HeaderValue;
use quorum::{Card, NodeId, Standing};
use redis_lua::client::Client;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub use self::departure::Hurry;
use self::departure::{Departure, Going, Tasks, Told};
pub use self::failure::StartError;
use self::live::Live;
pub use self::live::Relevel;
use crate::admin::{self, Admin, Tokens};
use crate::clock;
use crate::cluster::{Courier, Parts, Seat, muster};
use crate::config::{ClusterTls, Config};
use crate::events::{Event, Events, Kind};
use crate::fleet::{Fleet, Happening, Sink};
use crate::handles;
use crate::health::Checks;
use crate::history::{Entry, History};
use crate::keep::Keeper;
use crate::metrics::{Meters, words};
use crate::reload::{Held, Reload};
use crate::roll::Roll;
use crate::server::{self, Identity, Server};
use crate::snapshot;
use crate::trace::{Exporter, Tracer};
use crate::upstream::{Roads, Upstream};

/// Samples of histograms are folded this often: a few megabytes at most at ten thousand requests a second.
const FOLD_EVERY: Duration = Duration::from_secs(5);

/// Where a configuration came from, and how a running process takes on what is not a part of it.
#[derive(Default)]
pub struct Origin {
    /// The file, which is read again when it is to be taken on anew.
    pub file: Option<PathBuf>,
    /// What is called with `log.level`; `None`: the level stays.
    pub relevel: Option<Relevel>,
}

/// A running gateway.
pub struct App {
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where operators connect.
    pub admin_address: SocketAddr,
    /// Where it gossips.
    pub gossip_address: Option<SocketAddr>,
    /// Its seat in the fleet.
    pub seat: Arc<Seat>,
    /// Its configuration, and the way to another.
    pub reload: Arc<Reload>,
    /// What is counted.
    pub meters: Arc<Meters>,
    /// Who follows what happens.
    pub events: Arc<Events>,
    /// Who it is to its clients; `None`: they connect in the clear.
    pub identity: Option<Arc<Identity>>,
    going: watch::Sender<Going>,
    leaving: JoinHandle<()>,
    stop_admin: watch::Sender<bool>,
    admin_task: JoinHandle<()>,
    exporter: Option<JoinHandle<()>>,
}

impl App {
    /// Starts every part. When it returns, clients and operators can connect.
    ///
    /// # Errors
    /// [`StartError`]: a listener, the carrier or a certificate; nothing is left running.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_from(config, Origin::default()).await
    }

    /// The same with a configuration that is read again where it came from, when that changes or when
    /// somebody asks for it.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_from(config: &Config, origin: Origin) -> Result<Self, StartError> {
        // Before any of them is loaded.
        let held = Held::by(config);
        let ground = Ground::lay(config).await?;
        let Ground { meters, history, events, sink, fleet, roads, seat, identity, .. } = ground;
        let Ground { ours, mine_out, mine, carrier, mut membership, mut service, .. } = ground;
        let (tracer, exporter) = ground.tracing.unzip();
        let node = seat.me.as_str();
        let bound = admin::bind(config.admin.listen).await;
        let (listener, admin_address) = bound
            .map_err(|source| StartError::ListenAdmin { address: config.admin.listen, source })?;
        let node = HeaderValue::from_str(node).unwrap_or_else(|_| HeaderValue::from_static("node"));
        let gate = live::gate(config, (node, tracer), &fleet, &meters, None);
        let ways = (identity.as_ref(), &roads, &gate);
        let server = Server::start(&config.server, ground.handles.clients, ways)
            .map_err(|source| StartError::Listen { address: config.server.listen, source })?;
        let checks = Arc::new(Checks::default());
        checks.adopt(&seat);
        let tokens = Arc::new(Tokens::new(&config.admin));
        let share = (gate.memory.clone(), ground.handles.operators);
        let live = Live {
            seat: Arc::clone(&seat),
            meters: Arc::clone(&meters),
            sink,
            desks: server.desks(),
            checks: Arc::clone(&checks),
            tokens: Arc::clone(&tokens),
            identity: identity.clone(),
            is_exposed: !admin_address.ip().is_loopback(),
            relevel: origin.relevel,
            current: Mutex::new((gate, roads)),
        };
        let reload = Reload::new(config, (origin.file, held), Arc::new(live), (&meters, &events));
        membership.spawn(Arc::clone(&reload).watch(membership.stopped()));
        let known = (tokens, Arc::clone(&reload), share);
        let talk = (carrier.as_ref(), ground.ledger.as_ref());
        let admin = Admin::new(config, &seat, (&history, &events), &meters, talk, known);
        let admin = Arc::new(admin);
        service.spawn(Arc::clone(&seat).run(ours, mine_out, service.stopped()));
        let (stop_admin, admin_stopped) = watch::channel(false);
        let exporter = exporter.map(|one| tokio::spawn(one.run(admin_stopped.clone())));
        let admin_task = tokio::spawn(Arc::clone(&admin).run(listener, admin_stopped));
        let (going, gone) = watch::channel(Going::Staying);
        let address = server.address;
        let departure = Departure {
            admin,
            seat: Arc::clone(&seat),
            server,
            mine,
            membership,
            service,
            checks,
            reload: Arc::clone(&reload),
        };
        Ok(Self {
            leaving: tokio::spawn(departure.run(Told::new(&seat, gone))),
            address,
            admin_address,
            gossip_address: carrier.map(|carrier| carrier.local_addr),
            seat,
            reload,
            meters,
            events,
            identity,
            going,
            stop_admin,
            admin_task,
            exporter,
        })
    }

    /// Its endpoints of the moment.
    pub fn fleet(&self) -> Arc<Fleet> {
        self.seat.fleet()
    }

    /// Leaves in good order: not ready at once, out of the electorate at once, new connections still
    /// served for the drain's delay, streams finished up to its time-out; those that are not get an
    /// error event and an unclean end.
    pub async fn shutdown(self) {
        self.going.send_replace(Going::Ending);
        let _ = self.leaving.await;
        let _ = self.stop_admin.send(true);
        let _ = self.admin_task.await;
        // By now every request has ended; its spans get their own time to arrive.
        if let Some(exporter) = self.exporter {
            let _ = exporter.await;
        }
    }

    /// A handle that cuts a shutdown short.
    pub fn hurry(&self) -> Hurry {
        Hurry(self.going.clone())
    }
}

/// What stands before anybody can connect.
struct Ground {
    identity: Option<Arc<Identity>>,
    meters: Arc<Meters>,
    history: Arc<History>,
    events: Arc<Events>,
    sink: Sink,
    fleet: Arc<Fleet>,
    roads: Arc<Roads>,
    /// Who may have how many sockets.
    handles: handles::Handles,
    seat: Arc<Seat>,
    tracing: Option<(Arc<Tracer>, Exporter)>,
    carrier: Option<Carrier>,
    ledger: Option<Client>,
    ours: watch::Receiver<Ours>,
    mine_out: watch::Sender<Mine>,
    mine: watch::Receiver<Mine>,
    /// What makes it a member; it ends when the node has left.
    membership: Tasks,
    /// What serves its requests; it ends after the last of them.
    service: Tasks,
}

impl Ground {
    /// Lays it: the endpoints with what they were, the ways to them, the seat in the fleet.
    async fn lay(config: &Config) -> Result<Self, StartError> {
        let identity = config.server.tls.as_ref().map(Identity::load).transpose()?;
        let meters = Arc::new(Meters::new());
        let history = Arc::new(History::default());
        let wake = Arc::new(Notify::new());
        let node = config.cluster.as_ref().map_or("single", |cluster| &cluster.node_id);
        let generation = generation(config);
        let events = Arc::new(Events::new(NodeId::new(node), generation));
        let sink = sink(&history, &events, &meters, &wake);
        let fleet = Arc::new(Fleet::new(&config.pools, &meters, &sink));
        let keeper = config.state.as_ref().map(|state| Keeper::new(state, &meters));
        if let Some(keeper) = &keeper {
            keeper.restore(&fleet);
        }
        let handles = handles::Handles::found(server::workers(&config.server));
        let roads = Roads::new(&config.pools, handles.endpoints)?;
        let (mine_out, mine) = watch::channel(Mine::default());
        let (mut membership, mut service) = (Tasks::default(), Tasks::default());
        let tracing = tracing_by(config, node, &meters)?;
        let ledger = ledger::open(config, &mut service)?;
        let roll = ledger.as_ref().map(|(client, _)| client);
        let (ours, carrier) =
            carry(config, (generation, roll, &meters), mine.clone(), &mut membership).await?;

        let parts = Parts {
            history: Arc::clone(&history),
            events: Arc::clone(&events),
            meters: Arc::clone(&meters),
            wake,
            carrier: carrier.as_ref().map(|carrier| carrier.commands.clone()),
        };
        let me = (NodeId::new(node), generation);
        let endpoints = (Arc::clone(&fleet), Upstream::new(&roads));
        let seat = Arc::new(Seat::new(me, config.cluster.as_ref(), card(config), endpoints, parts));
        if let Some(keeper) = keeper {
            service.spawn(keeper.run(Arc::clone(&seat), service.stopped()));
        }
        keep_roll(config, &seat, &mut membership);
        if let Some((client, keys)) = &ledger {
            let courier = Courier::new(&seat, client.clone(), keys.clone());
            membership.spawn(courier.run(membership.stopped()));
        }
        let life = (node, generation);
        ledger::keep_limits(ledger.as_ref(), life, fleet.share(), &meters, &mut service);
        // Before the first request, which must not find the whole of a limit.
        seat.share_out(clock::now());
        service.spawn(fold(Arc::clone(&meters), service.stopped()));
        Ok(Self {
            identity,
            meters,
            history,
            events,
            sink,
            fleet,
            roads,
            handles,
            seat,
            tracing,
            carrier,
            ledger: ledger.map(|(client, _)| client),
            ours,
            mine_out,
            mine,
            membership,
            service,
        })
    }
}

/// What this node says of itself at first.
fn card(config: &Config) -> Card {
    Card {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config_hash: config.hash(),
        standing: Standing::Serving,
        is_suspect: false,
    }
}

/// The number that tells this life of the node from its past ones. Beside the state file it is kept, so
/// that a clock that ran back does not make the node its own past; without, or if the file is of no
/// use, the clock alone gives it.
fn generation(config: &Config) -> u64 {
    let wall_millis = clock::wall_millis();
    let kept = config.state.as_ref();
    let kept = kept.map(|state| snapshot::with_ending(&state.path, ".generation"));
    gossip::generation::next(kept.as_deref(), wall_millis).unwrap_or_else(|error| {
        tracing::warn!(%error, "the generation cannot be kept; the clock alone gives it");
        wall_millis
    })
}

/// Folds what the histograms were told, over and over, until `stopped`.
async fn fold(meters: Arc<Meters>, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FOLD_EVERY) => meters.fold(),
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

/// Recalls the members of the last life and keeps the list from here on; a single node has none.
fn keep_roll(config: &Config, seat: &Arc<Seat>, membership: &mut Tasks) {
    let state = config.state.as_ref().filter(|_| config.cluster.is_some());
    let Some(state) = state else { return };
    let roll = Roll::beside(&state.path, state.every);
    roll.recall(seat);
    membership.spawn(roll.run(Arc::clone(seat), membership.stopped()));
}

/// Who tells a collector of requests, if one is configured.
fn tracing_by(
    config: &Config,
    node: &str,
    meters: &Meters,
) -> Result<Option<(Arc<Tracer>, Exporter)>, StartError> {
    let Some(otlp) = &config.telemetry else { return Ok(None) };
    let (tracer, exporter) = Tracer::new(otlp, node, meters)?;
    Ok(Some((Arc::new(tracer), exporter)))
}

/// Starts the carrier that the configuration asks for: gossip, or the roll in Redis; without one,
/// nothing is ever heard.
async fn carry(
    config: &Config,
    (generation, client, meters): (u64, Option<&Client>, &Arc<Meters>),
    mine: watch::Receiver<Mine>,
    membership: &mut Tasks,
) -> Result<(watch::Receiver<Ours>, Option<Carrier>), StartError> {
    let Some(cluster) = &config.cluster else {
        let (_, ours) = watch::channel(Ours::default());
        return Ok((ours, None));
    };
    let Some(wire) = &cluster.gossip else {
        let settings = ledger::roll(config, cluster, generation);
        let ours = match (settings, client) {
            (Some(settings), Some(client)) => {
                let stop = membership.stopped();
                let ways = (client.clone(), Arc::clone(meters));
                let (ours, running) = muster::start(settings, ways, mine, stop)?;
                membership.spawn(running);
                ours
            }
            // The configuration is refused where there is neither gossip nor Redis.
            (None, _) | (_, None) => watch::channel(Ours::default()).1,
        };
        return Ok((ours, None));
    };
    let tls = match &wire.tls {
        ClusterTls::Files { ca, cert, key } => {
            gossip::Tls::Files { ca: ca.clone(), cert: cert.clone(), key: key.clone() }
        }
        ClusterTls::Insecure => gossip::Tls::Insecure,
    };
    let settings = gossip::Config {
        cluster_id: cluster.id.clone(),
        node_id: cluster.node_id.clone(),
        generation,
        listen: wire.listen,
        advertise: wire.advertise.clone(),
        seeds: wire.seeds.clone(),
        gossip_interval: cluster.gossip_interval,
        tls,
        push: wire.push,
    };
    let (carrier, running) = gossip::start(settings, mine, membership.stopped()).await?;
    membership.spawn(running);
    Ok((carrier.ours.clone(), Some(carrier)))
}

/// What follows from a breaker's transition outside the breaker: history, an event, counters, a log
/// line, and the cluster loop looks at once.
fn sink(
    history: &Arc<History>,
    events: &Arc<Events>,
    meters: &Arc<Meters>,
    wake: &Arc<Notify>,
) -> Sink {
    let (history, events) = (Arc::clone(history), Arc::clone(events));
    let (meters, wake) = (Arc::clone(meters), Arc::clone(wake));
    Arc::new(move |happening: Happening| {
        let Happening { endpoint, tenant, transition } = happening;
        let (from, to) = (transition.from.to_string(), transition.to.to_string());
        let reason = transition.reason.to_string();
        let labels = [
            ("endpoint", endpoint.as_str()),
            ("from", from.as_str()),
            ("to", to.as_str()),
            ("reason", words::reason(transition.reason)),
        ];
        // A tenant's breaker is this node's affair: counted without its name, no news to the fleet.
        if let Some(tenant) = tenant {
            tracing::info!(%endpoint, %tenant, %from, %to, %reason, "breaker of a tenant");
            meters.counter("tenant_breaker_transitions_total", &labels).increment(1);
            return;
        }
        tracing::info!(%endpoint, %from, %to, %reason, epoch = transition.epoch, "breaker");
        meters.counter("breaker_transitions_total", &labels).increment(1);
        let what = format!("{from} to {to}: {reason}");
        let detail = json!({ "from": from, "to": to, "reason": reason, "epoch": transition.epoch });
        events.tell(Event::new(Kind::Breaker, what.as_str()).endpoint(&endpoint).detail(detail));
        let wall_millis = clock::wall_millis_at(transition.at);
        history.note(&endpoint, Entry { at: transition.at, wall_millis, scope: "local", what });
        wake.notify_one();
    })
}

/// What every request needs to know by `config`, with nothing around it: no node, no checks, no limits of
/// a fleet.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn gate_of(config: &Config, meters: &Arc<Meters>) -> Arc<crate::proxy::Gate> {
    let fleet = Arc::new(Fleet::new(&config.pools, meters, &(Arc::new(|_| {}) as _)));
    live::gate(config, (HeaderValue::from_static("n"), None), &fleet, meters, None)
}
