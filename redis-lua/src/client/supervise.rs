//! Owns every connection, and says whether Redis as a whole is to be relied on.
//!
//! Redis is *up* when all servers that have keys are; one of a cluster's primaries being gone is
//! enough to be *down*, since the fleet has one rule for all endpoints at a time. A server that is
//! only being dialled changes nothing, until that succeeds or fails.
//!
//! Invariant: only this future changes the table and the health.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::interval;

use super::config::{self, Address, Config, Mode};
use super::dial::Dialer;
use super::link::{Keeper, State};
use super::notices;
use super::papers::Papers;
use super::scout::{self, Scout, Sight};
use super::setback::Setback;
use super::table::{Link, Owners, Table};
use super::{Health, Shared};
use crate::error::{RedisError, Trouble};

/// At most so many servers are connected to only since a redirection named them.
pub(super) const GUESTS_MAX: usize = 16;
/// How long such a connection is kept.
const GUEST_STAYS: Duration = Duration::from_secs(30);
/// Reports of connections that wait to be read; more wait in their keepers.
const REPORTS_MAX: usize = 64;
/// So many setbacks are logged in one absence, at most.
const TOLD_MAX: usize = 32;
/// How often what has no event of its own is looked after.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// The process's clock, as the runtime sees it.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// One server that is connected to.
struct Post {
    id: u64,
    state: State,
    poke: Arc<Notify>,
    key: watch::Sender<String>,
    task: AbortHandle,
    /// Since when it is only a guest; `None`: it has keys.
    guest_since: Option<Instant>,
}

/// All parts, before they run.
pub(super) struct Supervisor {
    scout: Scout,
    keepers: Keepers,
}

/// Every connection for calls.
struct Keepers {
    shared: Arc<Shared>,
    dialer: Arc<Dialer>,
    is_cluster: bool,
    places: watch::Receiver<Sight>,
    table: watch::Sender<Arc<Table>>,
    health: watch::Sender<Health>,
    /// What was logged since Redis was up last, at most [`TOLD_MAX`].
    told: Vec<(String, Trouble)>,
    /// At most as many as the places name, and [`GUESTS_MAX`].
    posts: HashMap<Address, Post>,
    tasks: JoinSet<()>,
    next_id: u64,
    reports: mpsc::Sender<(u64, State)>,
}

impl Supervisor {
    /// Reads what files there are; dials nothing.
    ///
    /// # Errors
    /// [`RedisError`]: the configuration cannot be used.
    pub(super) fn new(
        config: &Config,
        shared: Arc<Shared>,
        table: watch::Sender<Arc<Table>>,
        health: watch::Sender<Health>,
    ) -> Result<Self, RedisError> {
        config::check_prefix(&config.prefix)?;
        let (urls, is_tls) = config::addresses(config)?;
        if !is_tls && config.tls != config::Tls::default() {
            return Err(RedisError::TlsUnused);
        }
        let papers = if is_tls { Some(Arc::new(Papers::read(&config.tls)?)) } else { None };
        let (user, password) = (config.username.as_deref(), config.password.as_deref());
        let dialer = Arc::new(Dialer::new(papers.clone(), config.timeout, user, password));
        let (seen, places) = watch::channel(Err(Setback::nowhere("start", Trouble::Away)));
        let scout = Scout::new(config, urls, papers, Arc::clone(&dialer), seen);
        let keepers = Keepers {
            shared,
            dialer,
            is_cluster: config.mode == Mode::Cluster,
            places,
            table,
            health,
            told: Vec::new(),
            posts: HashMap::new(),
            tasks: JoinSet::new(),
            next_id: 0,
            reports: mpsc::channel(1).0,
        };
        Ok(Self { scout, keepers })
    }

    /// Works until `stop`, and leaves the health *down*.
    pub(super) async fn run(
        self,
        arriving: mpsc::Receiver<Address>,
        outgoing: mpsc::Receiver<Vec<u8>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let Self { scout, mut keepers } = self;
        let shared = Arc::clone(&keepers.shared);
        let looking = scout.run(shared.table.clone(), Arc::clone(&shared.look));
        let hearing = notices::hear(Arc::clone(&shared), Arc::clone(&keepers.dialer));
        let telling = notices::tell(shared, outgoing);
        tokio::select! {
            _ = stop.wait_for(|is_over| *is_over) => {}
            () = keepers.watch(arriving) => {}
            () = looking => {}
            () = hearing => {}
            () = telling => {}
        }
        keepers.tasks.shutdown().await;
        keepers.posts.clear();
        keepers.publish();
        keepers.say(Some(Setback::nowhere("stop", Trouble::Away)));
    }
}

impl Keepers {
    /// Follows what is found and what is reported.
    async fn watch(&mut self, mut arriving: mpsc::Receiver<Address>) {
        let (reports, mut incoming) = mpsc::channel(REPORTS_MAX);
        self.reports = reports;
        let mut places = self.places.clone();
        let mut tidying = interval(TIDY_EVERY);
        loop {
            tokio::select! {
                changed = places.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.place();
                }
                Some((id, state)) = incoming.recv() => self.hear(id, state),
                Some(address) = arriving.recv() => self.host(address),
                _ = tidying.tick() => self.tidy(),
            }
            self.publish();
            if let Some(verdict) = self.judge() {
                self.say(verdict);
            }
        }
    }

    /// Connects to whoever has keys, and leaves whoever has none.
    fn place(&mut self) {
        let Ok(places) = self.places.borrow().clone() else { return };
        for (address, post) in &mut self.posts {
            if !places.servers.iter().any(|(server, _)| server == address) {
                post.guest_since.get_or_insert_with(now);
            }
        }
        for (address, key) in &places.servers {
            match self.posts.get_mut(address) {
                Some(post) => {
                    post.guest_since = None;
                    post.key.send_if_modified(|known| {
                        let is_other = known != key;
                        known.clone_from(key);
                        is_other
                    });
                }
                None => self.employ(address.clone(), key.clone(), None),
            }
        }
        self.tidy();
    }

    /// Connects to a server that a redirection has named.
    fn host(&mut self, address: Address) {
        let guests = self.posts.values().filter(|post| post.guest_since.is_some()).count();
        if guests < GUESTS_MAX && !self.posts.contains_key(&address) {
            // It answers that this key is elsewhere, which shows that it is alive.
            let key = self.posts.values().next().map(|post| post.key.borrow().clone());
            self.employ(address, key.unwrap_or_default(), Some(now()));
        }
    }

    fn employ(&mut self, address: Address, key: String, guest_since: Option<Instant>) {
        self.next_id += 1;
        let (key, key_receiver) = watch::channel(key);
        let poke = Arc::new(Notify::new());
        let keeper = Keeper {
            id: self.next_id,
            address: address.clone(),
            dialer: Arc::clone(&self.dialer),
            timeout: self.shared.timeout,
            is_cluster: self.is_cluster,
            key: key_receiver,
            poke: Arc::clone(&poke),
            look: Arc::clone(&self.shared.look),
            reports: self.reports.clone(),
            tally: Arc::clone(&self.shared.tally),
        };
        let task = self.tasks.spawn(keeper.keep());
        let state = State::Dialling;
        let post = Post { id: self.next_id, state, poke, key, task, guest_since };
        self.posts.insert(address, post);
    }

    fn hear(&mut self, id: u64, state: State) {
        if let Some(post) = self.posts.values_mut().find(|post| post.id == id) {
            post.state = state;
        }
    }

    /// Lets go of guests that have stayed long enough, or are of no use.
    fn tidy(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.posts.retain(|_, post| {
            let stayed = post.guest_since.map(|since| now().duration_since(since));
            let is_useless = stayed.is_some() && matches!(post.state, State::Down(_));
            let is_kept = !is_useless && stayed.is_none_or(|stayed| stayed < GUEST_STAYS);
            if !is_kept {
                post.task.abort();
            }
            is_kept
        });
    }

    /// What callers go by.
    fn publish(&self) {
        let links = self.posts.iter().map(|(address, post)| {
            let connection = match &post.state {
                State::Up(connection) => Some(connection.clone()),
                State::Dialling | State::Down(_) => None,
            };
            (address.clone(), Link { connection, poke: Arc::clone(&post.poke) })
        });
        let owners = match &*self.places.borrow() {
            Ok(places) => places.owners.clone(),
            Err(_) => Owners::Nobody,
        };
        self.table.send_replace(Arc::new(Table { links: links.collect(), owners }));
    }

    /// `Some(None)`: up; `Some(Some(_))`: down; `None`: as before.
    fn judge(&self) -> Option<Option<Setback>> {
        let places = match &*self.places.borrow() {
            Ok(places) => Arc::clone(places),
            Err(setback) => return Some(Some(setback.clone())),
        };
        if !places.is_whole {
            let down = Trouble::Refused("CLUSTERDOWN");
            return Some(Some(Setback::nowhere(scout::SLOTS, down)));
        }
        let mut verdict = Some(None);
        for (address, _) in &places.servers {
            match self.posts.get(address).map(|post| &post.state) {
                Some(State::Up(_)) => {}
                Some(State::Down(setback)) => return Some(Some(setback.clone())),
                Some(State::Dialling) | None => verdict = None,
            }
        }
        verdict
    }

    fn say(&mut self, setback: Option<Setback>) {
        let Self { health, told, .. } = self;
        health.send_if_modified(|health| match (&*health, setback) {
            (Health::Up, None) => false,
            (Health::Down { since, .. }, None) => {
                let away_ms = now().duration_since(*since).as_millis();
                tracing::info!(away_ms, "redis is up");
                told.clear();
                *health = Health::Up;
                true
            }
            (Health::Down { trouble, server, step, .. }, Some(other))
                if *trouble == other.trouble && *server == other.server && *step == other.step =>
            {
                false
            }
            (Health::Up, Some(setback)) => {
                *health = down(setback, now(), told);
                true
            }
            (Health::Down { since, .. }, Some(setback)) => {
                *health = down(setback, *since, told);
                true
            }
        });
    }
}

/// What is said of a setback. It is logged once in one absence for each server and trouble, since
/// one that ends each dial in another way would fill the log.
fn down(setback: Setback, since: Instant, told: &mut Vec<(String, Trouble)>) -> Health {
    let Setback { server, step, trouble } = setback;
    let is_told = told.iter().any(|(at, what)| *at == server && *what == trouble);
    if !is_told && told.len() < TOLD_MAX {
        tracing::warn!(server, step, trouble = trouble.kind(), "redis is down: {trouble}");
        told.push((server.clone(), trouble));
    }
    Health::Down { trouble, since, server, step }
}

#[cfg(test)]
mod tests {
    use super::{Health, Setback, TOLD_MAX, Trouble, down, now};

    #[test]
    fn each_trouble_of_a_server_is_told_once_in_one_absence() {
        let mut told = Vec::new();
        let mut say = |server: &str, trouble, step| {
            let since = now();
            let setback = Setback::at(&server, step, trouble);
            let said = down(setback, since, &mut told);
            let (server, step) = (server.to_owned(), step);
            assert_eq!(said, Health::Down { trouble, since, server, step });
            told.len()
        };
        assert_eq!(say("a:1", Trouble::Away, "connect"), 1);
        assert_eq!(say("a:1", Trouble::Timeout, "PING"), 2);
        assert_eq!(say("a:1", Trouble::Away, "resolve"), 2);
        assert_eq!(say("b:1", Trouble::Away, "connect"), 3);
        for port in 0..99 {
            say(&format!("c:{port}"), Trouble::Away, "connect");
        }
        assert_eq!(say("a:1", Trouble::Timeout, "write"), TOLD_MAX);
    }
}
