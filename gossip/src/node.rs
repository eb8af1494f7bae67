//! The loop that joins the parts: *mine* out, *ours* back, chitchat supervised.
//!
//! chitchat runs as a task of its own and may end: an assertion of its, or a frame that the vet
//! should have stopped. It is then started again over the same port after a pause. A new life
//! begins with an empty state under the next generation, since peers hold the old one's versions
//! and would not take smaller ones.
//!
//! # Invariants
//! - The set is published whole, after every push that says something new, after changes that
//!   gossip brought, and at every interval.
//! - News leaves by push before it is written for gossip.
//! - After a stop the loop ends within two seconds.

mod held;
mod life;
mod lonely;
mod outbox;
mod seeds;
mod telling;
mod tree;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chitchat::{ChitchatConfig, ChitchatHandle, ChitchatId, FailureDetectorConfig, spawn_chitchat};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{debug, error, info, warn};

use crate::codec::Push;
use crate::generation::STRIDE;
use crate::push::Overlay;
use crate::seal::Seals;
use crate::stats::{self, Stats};
use crate::transport::{NetGuard, QuicTransport};
use crate::vet::{DIGEST_BYTES_MAX, NODES_MAX};
use crate::{Command, Config, Mine, Ours};
use held::{Held, Rival};
use lonely::Lonely;
use outbox::Outbox;
use seeds::Seeds;

/// Seeds that are tried per round while nobody is live.
const SEEDS_AT_ONCE: usize = 8;

/// Live members that are met per round, for a push takes three times as long where a handshake has
/// to be made first. Chance would meet them all too, but late.
const MEETINGS_AT_ONCE: usize = 4;

/// The suspicion beyond which chitchat holds a member for dead: this many mean intervals of
/// silence.
const PHI_MAX: f64 = 8.0;

/// Intervals between heartbeats that the detector remembers.
const SAMPLES_MAX: usize = 1_000;

/// Longer silences say nothing of a member's rhythm.
const SILENCE_INTERVALS_MAX: u32 = 10;
const SILENCE_MIN: Duration = Duration::from_secs(5);

/// How long dead members and deleted keys are remembered. With chitchat's default of a day,
/// restarts would outgrow the digest.
const GRACE: Duration = Duration::from_secs(15 * 60);

/// The pause before chitchat is started again; doubles up to the second.
const RESTART_MIN: Duration = Duration::from_millis(100);
const RESTART_MAX: Duration = Duration::from_secs(10);

/// A life this long was a good one: the next pause begins small again.
const RESTART_FORGIVEN: Duration = Duration::from_secs(60);

/// The pause before an advertised name that does not resolve is tried again.
const RESOLVE_EVERY: Duration = Duration::from_secs(1);

/// How often the certificate files are looked at.
const RELOAD_EVERY: Duration = Duration::from_secs(30);

/// Nine tenths of what a digest may hold.
const DIGEST_BYTES_WARN: usize = DIGEST_BYTES_MAX * 9 / 10;
const LIVES_WARN: usize = NODES_MAX * 9 / 10;

/// How long the last frames may take.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// How the loop is connected to its surroundings.
pub(crate) struct Channels {
    pub(crate) mine: watch::Receiver<Mine>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) pushes: mpsc::Receiver<Push>,
    pub(crate) ours: watch::Sender<Ours>,
}

/// A node's share in the gossip.
pub(crate) struct Node {
    config: Config,
    /// Grows with every life of chitchat.
    generation: u64,
    net: NetGuard,
    stats: Arc<Stats>,
    channels: Channels,
    outbox: Outbox,
    held: Held,
    overlay: Overlay,
    seals: Seals,
    /// Another process under this node's name, while it lives.
    rival: Option<Rival>,
    /// Up to as many members are told directly.
    direct_max: usize,
    /// Whether it has been said that the fleet is nearly too large.
    is_crowded: bool,
    lonely: Lonely,
}

enum Ended {
    Stopped,
    Died,
}

impl Node {
    pub(crate) fn new(
        config: Config,
        (net, seals): (NetGuard, Seals),
        stats: Arc<Stats>,
        channels: Channels,
    ) -> Self {
        Self {
            generation: config.generation,
            held: Held::new(&config.node_id, config.gossip_interval, seals.is_secure()),
            overlay: Overlay::new(config.gossip_interval),
            config,
            net,
            stats,
            channels,
            outbox: Outbox::default(),
            seals,
            rival: None,
            direct_max: tree::DIRECT_MAX,
            is_crowded: false,
            lonely: Lonely::default(),
        }
    }

    /// Gossips until it is stopped.
    pub(crate) async fn run(mut self) {
        let (seeds, resolving) = Seeds::new(self.config.seeds.clone());
        let mut stop = self.channels.stop.clone();
        tokio::select! {
            () = self.lives(&seeds) => {}
            () = resolving => {}
            () = stopped_for_long(&mut stop) => warn!("gossip did not end in time"),
        }
        self.net.close().await;
    }

    async fn lives(&mut self, seeds: &Seeds) {
        let Some(address) = self.advertised().await else {
            return;
        };
        let mut pause = RESTART_MIN;
        loop {
            let born = Instant::now();
            match self.life(address, seeds).await {
                Ended::Stopped => return,
                Ended::Died => {}
            }
            stats::add(&self.stats.restarts, 1);
            if born.elapsed() >= RESTART_FORGIVEN {
                pause = RESTART_MIN;
            }
            warn!(?pause, "the gossip task ended and is started again");
            tokio::select! {
                () = sleep(pause) => {}
                () = stopped(&mut self.channels.stop) => return,
            }
            pause = (pause * 2).min(RESTART_MAX);
            // Beyond the stride a later process might take the same number.
            self.generation = (self.generation + 1).min(self.config.generation + STRIDE - 1);
        }
    }

    /// The address at which peers reach this node; `None` if it was stopped before it is known.
    async fn advertised(&mut self) -> Option<SocketAddr> {
        let bound = self.net.local_addr();
        loop {
            let found = tokio::select! {
                found = seeds::resolve(&self.config.advertise) => found,
                () = stopped(&mut self.channels.stop) => return None,
            };
            let same_family = found.iter().find(|found| found.is_ipv4() == bound.is_ipv4());
            if let Some(address) = same_family.or(found.first()) {
                let port = if address.port() == 0 { bound.port() } else { address.port() };
                return Some(SocketAddr::new(address.ip(), port));
            }
            warn!(name = self.config.advertise, "the advertised name does not resolve");
            tokio::select! {
                () = sleep(RESOLVE_EVERY) => {}
                () = stopped(&mut self.channels.stop) => return None,
            }
        }
    }

    /// One life of chitchat.
    async fn life(&mut self, address: SocketAddr, seeds: &Seeds) -> Ended {
        self.net.net().vet().live_as(self.generation);
        let transport = QuicTransport(Arc::clone(self.net.net()));
        let spawned = spawn_chitchat(self.chitchat_config(address), Vec::new(), &transport).await;
        let handle = match spawned {
            Ok(handle) => handle,
            Err(error) => {
                warn!(%error, "the gossip task does not start");
                return Ended::Died;
            }
        };
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        let _listener = handle
            .with_chitchat(|chitchat| {
                let notify = Arc::clone(&notify);
                chitchat.subscribe_event("", move |_| notify.notify_one())
            })
            .await;
        self.outbox.begin_life();
        self.tell(&handle).await;
        let mut rounds = interval(self.config.gossip_interval);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reloads = interval(RELOAD_EVERY);
        reloads.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut death = std::pin::pin!(handle.termination_watcher());
        loop {
            tokio::select! {
                () = stopped(&mut self.channels.stop) => {
                    self.farewell(handle).await;
                    return Ended::Stopped;
                }
                ended = &mut death => {
                    debug!(?ended, "the gossip task ended");
                    return Ended::Died;
                }
                Ok(()) = self.channels.mine.changed() => self.tell(&handle).await,
                Some(push) = self.channels.pushes.recv() => self.merge(push),
                () = changed.notified() => self.listen(&handle).await,
                _ = rounds.tick() => self.round(&handle, address, seeds).await,
                _ = reloads.tick() => self.reload(&handle).await,
                Some(command) = self.channels.commands.recv() => match command {
                    Command::Join(names) => seeds.add(names),
                    Command::ReloadCertificates => self.reload(&handle).await,
                },
            }
        }
    }

    fn chitchat_config(&self, address: SocketAddr) -> ChitchatConfig {
        let interval = self.config.gossip_interval;
        ChitchatConfig {
            chitchat_id: ChitchatId::new(self.config.node_id.as_str(), self.generation, address),
            cluster_id: self.config.cluster_id.clone(),
            gossip_interval: interval,
            listen_addr: self.net.local_addr(),
            // Seeds may be added while it runs, which chitchat's own cannot.
            seed_nodes: Vec::new(),
            failure_detector_config: FailureDetectorConfig::new(
                PHI_MAX,
                SAMPLES_MAX,
                (interval * SILENCE_INTERVALS_MAX).max(SILENCE_MIN),
                interval,
                GRACE,
            ),
            marked_for_deletion_grace_period: GRACE,
            catchup_callback: None,
            extra_liveness_predicate: None,
        }
    }

    /// Reads what gossip holds, and publishes it.
    async fn listen(&mut self, handle: &ChitchatHandle) {
        let now = Instant::now();
        let held = &mut self.held;
        handle.with_chitchat(|chitchat| held.note(chitchat, now)).await;
        self.held.open(self.generation, &mut self.seals, &self.stats);
        if self.watch_for_rival(now) {
            self.tell(handle).await;
        }
        self.publish();
    }

    /// Looks for another process under this node's name, and says whether this node has to give
    /// way to it from here on, or has to no longer.
    fn watch_for_rival(&mut self, now: Instant) -> bool {
        let gave_way = self.gives_way();
        let rival = self.held.rival(self.generation, now);
        if let Some(rival) = rival.as_ref().filter(|rival| self.rival.as_ref() != Some(*rival)) {
            let (address, generation) = (rival.address, rival.generation);
            let gives_way = generation > self.generation;
            error!(%address, generation, gives_way, "another process goes under this node's name");
            stats::add(&self.stats.duplicates, 1);
        }
        self.rival = rival;
        gave_way != self.gives_way()
    }

    /// Whether a younger process under this node's name lives. It speaks for the node then.
    fn gives_way(&self) -> bool {
        self.rival.as_ref().is_some_and(|rival| rival.generation > self.generation)
    }

    fn publish(&self) {
        let members = self.held.members(&self.overlay);
        let at = self.channels.ours.borrow().at + 1;
        log_changes(&self.channels.ours.borrow().members, &members);
        let beats = self.held.beats();
        let rival = self.rival.as_ref().filter(|_| self.gives_way());
        let duplicate = rival.map(|rival| rival.address.to_string());
        self.channels.ours.send_replace(Ours { members, at, duplicate, beats });
    }

    async fn round(&mut self, handle: &ChitchatHandle, own: SocketAddr, seeds: &Seeds) {
        stats::add(&self.stats.rounds, 1);
        self.held.meet(self.net.net().met());
        self.listen(handle).await;
        self.hold();
        let held = &self.held;
        self.overlay
            .prune(Instant::now(), |node, generation, key| held.newest(node, generation, key));
        let members = self.held.addresses();
        let live: HashSet<_> = members.filter_map(|(at, live)| live.then_some(at)).collect();
        self.lonely.note(Instant::now(), !live.is_empty(), seeds.others(own));
        let is_new = |seed: &SocketAddr| *seed != own && !live.contains(seed);
        let count = if live.is_empty() { SEEDS_AT_ONCE } else { 1 };
        let new = seeds.shuffled().into_iter().filter(is_new).take(count);
        let is_unmet = |member: &SocketAddr| !self.net.net().is_connected(*member);
        let unmet = live.iter().copied().filter(is_unmet).take(MEETINGS_AT_ONCE);
        for address in new.chain(unmet) {
            // An error means that chitchat has ended, which its watcher tells.
            let _ = handle.gossip(address);
        }
    }

    /// Tells the vet what is held, and says when that is nearly all that may be.
    fn hold(&mut self) {
        let holdings = self.held.holdings();
        let lives = holdings.values().filter(|held| held.is_shared).count();
        let bytes = self.net.net().vet().hold(holdings);
        self.stats.lives.store(lives as u64, Ordering::Relaxed);
        self.stats.digest_bytes.store(bytes as u64, Ordering::Relaxed);
        let is_crowded = bytes > DIGEST_BYTES_WARN || lives > LIVES_WARN;
        if is_crowded && !self.is_crowded {
            let bytes_max = DIGEST_BYTES_MAX;
            error!(lives, bytes, bytes_max, "the fleet is nearly too large for gossip");
        }
        self.is_crowded = is_crowded;
    }

    /// Looks at the certificates: this node's, those of the connections, and those of the writers.
    async fn reload(&mut self, handle: &ChitchatHandle) {
        let net = Arc::clone(self.net.net());
        match tokio::task::spawn_blocking(move || net.reload()).await {
            Ok(Ok(Some(authority))) => {
                info!("the certificates have changed");
                if self.seals.replace(Some(authority)) {
                    // What the old CA vouched for has to be vouched for by the new one.
                    self.held.forget(None);
                    self.overlay.clear();
                }
                self.outbox.change_seal();
                self.tell(handle).await;
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => warn!(%error, "the old certificates stay in use"),
            Err(error) => warn!(%error, "the certificates were not read"),
        }
        let held = &self.held;
        let expired = self.seals.expire(|node_id, generation| held.has(node_id, generation));
        for (member, generation) in &expired {
            warn!(member, generation, "a member's certificate has run out");
        }
        self.held.forget(Some(&expired));
        self.overlay.forget(&expired);
        // What was forgotten is opened again before anything is published.
        self.listen(handle).await;
    }
}

/// Waits for the stop, or for the end of whoever could have stopped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|is_stopped| *is_stopped).await;
}

/// Ends some time after the stop, so that no forgotten wait can hold the process up.
async fn stopped_for_long(stop: &mut watch::Receiver<bool>) {
    stopped(stop).await;
    sleep(FAREWELL_MAX + FAREWELL_MAX / 2).await;
}

/// Says which members came, went, or began anew.
fn log_changes(before: &[quorum::Member], after: &[quorum::Member]) {
    for member in after {
        let place = before.binary_search_by(|other| other.id.cmp(&member.id));
        let was = place.ok().and_then(|place| before.get(place));
        let is_same = was.is_some_and(|was| {
            was.is_live == member.is_live && was.generation == member.generation
        });
        if !is_same {
            let (id, generation) = (&member.id, member.generation);
            info!(member = %id, generation, is_live = member.is_live, "a member changed");
        }
    }
}

#[cfg(test)]
mod tests;
