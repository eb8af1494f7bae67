//! A node's hand on the roll: the loop that writes its row, reads the others', and publishes them.
//!
//! # Invariants
//! - One call is under way at a time, and each has the client's deadline.
//! - What could not be written is written anew, and what was written is not written again.
//! - The set is published at every interval, whatever Redis does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quorum::NodeId;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, error, info, warn};

use super::held::Held;
use super::rows::{self, BEAT, Beaten, READ};
use super::{Config, Figures, LEASE_INTERVALS, LEASE_MIN, Member, Mine, Ours};
use crate::client::{Client, Health, Invocation};
use crate::error::Trouble;
use crate::keys::safe;

/// All is read anew every so many intervals, in case something went unnoticed.
const ANEW_INTERVALS: u32 = 60;

/// Readings that follow notices are so far apart, for in a large fleet many come at once.
const NOTICE_GAP: Duration = Duration::from_millis(10);

/// What could not be written is written anew after this long.
const RETRY: Duration = Duration::from_millis(100);

/// So many failures in a row are worth a line in the log; a busy machine has one now and then.
const FAILURES_WARN: u32 = 5;

/// Enough bytes for one reading.
const PAGE_BYTES: usize = 512 * 1_024;

/// Readings in a row: more than enough for [`quorum::electorate::MEMBERS_MAX`] of the largest rows.
const PAGES_MAX: usize = 1_024;

/// How often the last word is tried.
const FAREWELLS_MAX: usize = 3;

/// A node's hand on the roll.
pub(super) struct Enroller {
    config: Config,
    client: Client,
    keys: Vec<String>,
    /// This life's, as it stands on the roll.
    generation: u64,
    /// Whether this process was ever on the roll.
    has_begun: bool,
    /// Since when the row of a later life was seen to be nobody's.
    vacant_since: Option<Instant>,
    /// Tells this process from another of the same name and generation.
    nonce: u64,
    lease: Duration,
    mine: watch::Receiver<Mine>,
    ours: watch::Sender<Ours>,
    figures: Arc<Figures>,
    held: Held,
    /// What was written last.
    told: Option<Told>,
    /// Where another process under this node's name is, while it lives.
    rival: Option<String>,
    /// Calls in a row that were not answered well.
    failures: u32,
    /// When what could not be written is written anew.
    retry_at: Option<Instant>,
    /// When a notice is followed.
    notice_at: Option<Instant>,
    intervals: u32,
}

/// What stands in this node's row.
struct Told {
    said: Arc<[u8]>,
    mark: u64,
    news: u64,
}

impl Enroller {
    pub(super) fn new(
        config: Config,
        client: Client,
        mine: watch::Receiver<Mine>,
        (ours, figures): (watch::Sender<Ours>, Arc<Figures>),
    ) -> Self {
        let lease = (config.interval * LEASE_INTERVALS).max(LEASE_MIN);
        Self {
            keys: rows::of_fleet(&config.prefix, &config.cluster_id),
            generation: config.generation,
            has_begun: false,
            vacant_since: None,
            nonce: fastrand::u64(..=rows::NUMBER_MAX),
            lease,
            held: Held::new(NodeId::new(&config.node_id), lease),
            config,
            client,
            mine,
            ours,
            figures,
            told: None,
            rival: None,
            failures: 0,
            retry_at: None,
            notice_at: None,
            intervals: 0,
        }
    }

    /// Carries until it is stopped.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut ticks = interval(self.config.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut notices = Some(self.client.notices());
        let mut health = self.client.health();
        loop {
            tokio::select! {
                () = stopped(&mut stop) => return self.farewell().await,
                _ = ticks.tick() => self.tick().await,
                Ok(()) = self.mine.changed() => self.tell().await,
                Ok(()) = health.changed() => {
                    let is_up = matches!(*health.borrow_and_update(), Health::Up);
                    self.turn(is_up).await;
                }
                notice = next(&mut notices) => self.note(&notice),
                () = due(self.notice_at) => self.follow().await,
                () = due(self.retry_at) => self.tell().await,
            }
        }
    }

    async fn tick(&mut self) {
        self.intervals += 1;
        if self.intervals >= ANEW_INTERVALS {
            self.intervals = 0;
            self.held.read_anew();
        }
        self.tell().await;
        self.read().await;
        self.publish();
    }

    /// Redis has come back, or has gone.
    async fn turn(&mut self, is_up: bool) {
        if is_up {
            self.held.read_anew();
            self.tick().await;
        }
    }

    /// Writes this node's row, and tells the others if that is news.
    async fn tell(&mut self) {
        self.retry_at = None;
        let mine = self.mine.borrow_and_update().clone();
        let Some(said) = mine.said.clone() else { return };
        let lease = if mine.has_left { Duration::ZERO } else { self.lease };
        match self.beat(&mine, said, lease).await {
            Ok(is_news) => {
                self.retry_at = None;
                if is_news {
                    self.client.publish(self.notice());
                }
            }
            Err(trouble) => {
                self.fail(trouble);
                // While Redis is away, its return is waited for.
                let is_away = trouble == Trouble::Away;
                self.retry_at =
                    (!is_away).then(|| Instant::now() + RETRY.min(self.config.interval));
            }
        }
    }

    /// Writes this node's row. Returns whether the others wait for it.
    async fn beat(
        &mut self,
        mine: &Mine,
        said: Arc<[u8]>,
        lease: Duration,
    ) -> Result<bool, Trouble> {
        let is_same = self.told.as_ref().is_some_and(|told| told.said == said);
        let first = self.call_beat(mine.pulse, (!is_same).then_some(&*said), lease).await?;
        let answer = match first {
            Beaten::Whole => self.call_beat(mine.pulse, Some(&said), lease).await?,
            Beaten::Done { .. } | Beaten::Younger { .. } | Beaten::Full => first,
        };
        match answer {
            Beaten::Done { mark, is_new } => {
                self.figures.beats.fetch_add(1, Ordering::Relaxed);
                self.recover();
                self.give_way(None);
                self.has_begun = true;
                let news = self.told.as_ref().map_or(0, |told| told.news);
                self.told = Some(Told { said, mark, news: mine.news });
                if is_new {
                    // This node was not known to be alive: so others may not be known to it.
                    self.held.read_anew();
                }
                Ok(is_new || mine.news > news || mine.has_left)
            }
            Beaten::Younger { is_alive, address, generation } => {
                self.told = None;
                self.outgrow(is_alive, generation);
                self.give_way(is_alive.then_some(address));
                Ok(false)
            }
            Beaten::Full => Err(Trouble::Wrong("the roll is full")),
            Beaten::Whole => Err(Trouble::Wrong("what was said whole is not there")),
        }
    }

    async fn call_beat(
        &self,
        pulse: u64,
        said: Option<&[u8]>,
        lease: Duration,
    ) -> Result<Beaten, Trouble> {
        let Config { node_id, address, .. } = &self.config;
        let mark = self.told.as_ref().map_or(0, |told| told.mark);
        let arguments = vec![
            node_id.clone().into_bytes(),
            self.generation.to_string().into_bytes(),
            self.nonce.to_string().into_bytes(),
            pulse.min(rows::NUMBER_MAX).to_string().into_bytes(),
            address.clone().into_bytes(),
            lease.as_millis().to_string().into_bytes(),
            mark.to_string().into_bytes(),
            said.unwrap_or_default().to_vec(),
        ];
        let keys = self.keys.clone();
        let answer = self.client.run(Invocation { script: &BEAT, keys, arguments }).await?;
        rows::beaten(answer)
    }

    fn give_way(&mut self, rival: Option<String>) {
        if rival.is_some() && self.rival.is_none() {
            let address = rival.as_deref().unwrap_or_default();
            error!(address, "a younger process goes under this node's name");
            self.figures.duplicates.fetch_add(1, Ordering::Relaxed);
        }
        self.rival = rival;
    }

    /// Goes above a life that is over though its number is greater: this node's clock was set back.
    ///
    /// Another process under this name that only could not reach Redis for a while renews its row
    /// within a lease; and one that was on the roll before knows that it was followed by a later life.
    fn outgrow(&mut self, is_alive: bool, generation: u64) {
        let now = Instant::now();
        if is_alive || self.has_begun || generation >= rows::NUMBER_MAX {
            self.vacant_since = None;
        } else if now >= *self.vacant_since.get_or_insert(now) + self.lease {
            warn!(
                own = self.generation,
                past = generation,
                "this node's clock is behind that of its past life; it goes on above that"
            );
            self.generation = generation + 1;
            self.vacant_since = None;
        }
    }

    /// Reads what has changed.
    async fn read(&mut self) {
        for _ in 0..PAGES_MAX {
            let (change, at_ms) = self.held.from();
            let arguments = [change, at_ms, PAGE_BYTES as u64];
            let arguments = arguments.map(|number| number.to_string().into_bytes()).into();
            let keys = self.keys.clone();
            let answer = self.client.run(Invocation { script: &READ, keys, arguments }).await;
            self.figures.readings.fetch_add(1, Ordering::Relaxed);
            let page = match answer.and_then(rows::page) {
                Ok(page) => page,
                Err(trouble) => return self.fail(trouble),
            };
            if page.ignored > 0 {
                debug!(rows = page.ignored, "rows of the roll cannot be read");
                self.figures.ignored.fetch_add(page.ignored, Ordering::Relaxed);
            }
            if !self.held.take(Instant::now(), page) {
                return;
            }
        }
    }

    /// Notes that somebody has written news; other notices are none of the roll's.
    fn note(&mut self, notice: &Notice) {
        let is_ours = match notice {
            Notice::Some(payload) => self.is_from_another(payload),
            Notice::Lost => true,
        };
        if is_ours && self.notice_at.is_none() {
            let (now, last) = (Instant::now(), self.held.read_at());
            self.notice_at = Some(last.map_or(now, |last| now.max(last + NOTICE_GAP)));
        }
    }

    async fn follow(&mut self) {
        self.notice_at = None;
        self.read().await;
        self.publish();
    }

    fn fail(&mut self, trouble: Trouble) {
        self.figures.failures.fetch_add(1, Ordering::Relaxed);
        self.failures = self.failures.saturating_add(1);
        debug!(%trouble, "the roll of members does not answer");
        if self.failures == FAILURES_WARN {
            warn!(%trouble, "the roll of members is out of reach");
        }
    }

    fn recover(&mut self) {
        if self.failures >= FAILURES_WARN {
            info!("the roll of members is within reach again");
        }
        self.failures = 0;
    }

    fn notice(&self) -> Vec<u8> {
        // Without a space it is taken for no notice of the ledger's.
        format!("roll:{}:{}", safe(&self.config.cluster_id), safe(&self.config.node_id))
            .into_bytes()
    }

    fn is_from_another(&self, payload: &[u8]) -> bool {
        let fleet = format!("roll:{}:", safe(&self.config.cluster_id));
        let writer = payload.strip_prefix(fleet.as_bytes());
        writer.is_some_and(|writer| writer != safe(&self.config.node_id).as_bytes())
    }

    fn publish(&self) {
        let members = self.held.members(Instant::now());
        let at = self.ours.borrow().at + 1;
        log_changes(&self.ours.borrow().members, &members);
        self.ours.send_replace(Ours { members, at, duplicate: self.rival.clone() });
    }

    /// Writes the last word.
    async fn farewell(&mut self) {
        if !self.mine.borrow().has_left {
            return;
        }
        for _ in 0..FAREWELLS_MAX {
            self.tell().await;
            if self.retry_at.is_none() {
                return;
            }
        }
    }
}

/// What came over the channel of notices.
enum Notice {
    Some(Vec<u8>),
    /// Some were lost.
    Lost,
}

/// The next notice; waits for ever when there can be none any more.
async fn next(notices: &mut Option<broadcast::Receiver<Vec<u8>>>) -> Notice {
    if let Some(receiver) = notices {
        match receiver.recv().await {
            Ok(payload) => return Notice::Some(payload),
            Err(RecvError::Lagged(_)) => return Notice::Lost,
            Err(RecvError::Closed) => *notices = None,
        }
    }
    std::future::pending().await
}

/// Waits for the stop, or for the end of whoever could have stopped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits for a moment; for ever without one.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Says which members came, went, or began anew.
fn log_changes(before: &[Member], after: &[Member]) {
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
