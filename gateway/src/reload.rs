//! Takes on another configuration while everything goes on: all of it or nothing.
//!
//! It is asked by a signal, by an operator, or by a file that is another than the last time it was
//! looked at: the configuration itself, through whatever links lead to it, or a certificate that it
//! names. Files are looked at by what they hold and not by their times, so that the swap of a link, as
//! Kubernetes does it, is seen like any other change, and a `touch` is none.
//!
//! What is being written while it is read is not believed: a text counts when two looks, a little apart,
//! find the same. A text that was refused is not tried again until it is another.
//!
//! Invariants: one reload at a time; whatever goes wrong, the old configuration stays whole and the
//! process serves on; no error shows a value from the environment; what cannot be taken on by a
//! running process is said, and is compared with what the process was started with.

mod restart;
mod source;
mod status;
#[cfg(test)]
mod tests;
mod variables;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use self::source::{Print, Reading};
pub use self::status::{Checked, Failure, Reloaded, Status};
use self::variables::Names;
use crate::clock;
use crate::config::{self, Config};
use crate::events::{Event, Events, Kind};
use crate::fleet::Changes;
use crate::metrics::Meters;

/// How often the files are looked at.
pub const POLL: Duration = Duration::from_secs(10);
/// A change that a look at the files has found must stand for this long.
const SETTLED: Duration = Duration::from_millis(200);
/// Whoever asks for a reload says that the file is ready; this is for the one who is quicker than it.
const STILL: Duration = Duration::from_millis(15);
/// So often at most a file is read until it stands still.
const LOOKS_MAX: u32 = 20;
/// So many reloads at most wait or run; whoever asks for another is turned away.
const WAITING_MAX: usize = 8;

/// What takes on a configuration: the parts of a running gateway. It may read files and must not be
/// called by a thread of a runtime.
pub trait Adopt: Send + Sync + 'static {
    /// Looks whether `config` could be taken on; nothing changes.
    ///
    /// # Errors
    /// What is wrong, in one line.
    fn try_on(&self, config: &Config) -> Result<(), String>;

    /// Takes `config` on, whole. When it returns, the next request meets it.
    ///
    /// # Errors
    /// What is wrong, in one line; nothing has changed.
    fn adopt(&self, config: &Config) -> Result<Changes, String>;
}

/// What the certificates and keys that a configuration names held at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Held(u64);

impl Held {
    /// What they hold. To be asked before they are loaded: one that is replaced in between is then seen
    /// as another, whichever of the two was loaded. Blocks.
    pub fn by(config: &Config) -> Self {
        Self(Print::of(&Reading::default(), config.files()).contents)
    }
}

/// The configuration of a running gateway, and the way to another.
pub struct Reload {
    /// The file; `None`: the configuration came from nowhere that could be read again.
    source: Option<PathBuf>,
    /// What the process was started with: it holds for what only a start can take on.
    boot: Config,
    adopter: Arc<dyn Adopt>,
    meters: Arc<Meters>,
    events: Arc<Events>,
    /// Whose turn it is. Of those who ask, at most [`WAITING_MAX`] wait.
    turn: tokio::sync::Mutex<()>,
    places: Arc<Semaphore>,
    /// Why the configuration that was meant does not hold, for whoever follows it; `None`: it does.
    refused: watch::Sender<Option<String>>,
    /// A plain mutex, held for a copy of pointers and never over an await.
    state: Mutex<State>,
}

struct State {
    config: Arc<Config>,
    /// The variables of the environment that its file names.
    variables: Arc<Names>,
    loaded_unix_ms: u64,
    last_error: Option<Failure>,
    /// The files that count, and what they held when they were last tried, with whatever success.
    tried: Print,
    /// What the certificates and keys held that are in use.
    held: u64,
}

impl Reload {
    /// The way from `config`, with which `adopter` has just begun and which was read from `source`; its
    /// certificates and keys were as `held` when they were loaded.
    pub fn new(
        config: &Config,
        (source, held): (Option<PathBuf>, Held),
        adopter: Arc<dyn Adopt>,
        (meters, events): (&Arc<Meters>, &Arc<Events>),
    ) -> Arc<Self> {
        let own = source.as_deref().and_then(|path| config::read_text(path).ok());
        let own = own.map(|text| variables::parse_own(&text, "").1).unwrap_or_default();
        let state = State {
            config: Arc::new(config.clone()),
            variables: Arc::new(own),
            loaded_unix_ms: clock::wall_millis(),
            last_error: None,
            held: held.0,
            // The first look at the files is a try, whatever they hold: they may have become others
            // since the configuration was read.
            tried: Print::default(),
        };
        let reload = Self {
            source,
            boot: config.clone(),
            adopter,
            meters: Arc::clone(meters),
            events: Arc::clone(events),
            turn: tokio::sync::Mutex::default(),
            places: Arc::new(Semaphore::new(WAITING_MAX)),
            refused: watch::Sender::default(),
            state: Mutex::new(state),
        };
        for result in ["ok", "unchanged", "error"] {
            reload.count(result, 0);
        }
        reload.show(true);
        Arc::new(reload)
    }

    /// The configuration of the moment.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.lock().config)
    }

    /// What operators see of it.
    pub fn status(&self) -> Status {
        let (config, loaded_unix_ms, last_error) = {
            let state = self.lock();
            (Arc::clone(&state.config), state.loaded_unix_ms, state.last_error.clone())
        };
        Status {
            yaml: config.effective_yaml(),
            hash: config.hash(),
            loaded_unix_ms,
            source: self.source.as_ref().map(|path| path.display().to_string()),
            last_error,
            needs_restart: restart::keys(&self.boot, &config),
        }
    }

    /// Follows why the configuration that was meant does not hold, whoever has asked for it: a signal, an
    /// operator, or the file itself. `None`: it holds.
    pub fn refused(&self) -> watch::Receiver<Option<String>> {
        self.refused.subscribe()
    }

    /// What went wrong at the last try, if the running configuration is not the one that was meant.
    pub fn last_error(&self) -> Option<Failure> {
        self.lock().last_error.clone()
    }

    /// Looks whether `text` could be taken on; nothing changes. Whoever sends a text does not own the
    /// environment of this process: only the variables that the running configuration's own file names
    /// are looked up, and what they hold is not shown.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub async fn check(self: &Arc<Self>, text: String) -> Result<Checked, String> {
        let this = Arc::clone(self);
        let checked = tokio::task::spawn_blocking(move || {
            let allowed = this.lock().variables.clone();
            let (config, yaml) = variables::parse_foreign(&text, "the text", &allowed)?;
            this.adopter.try_on(&config)?;
            let (hash, needs_restart) = (config.hash(), restart::keys(&this.boot, &config));
            Ok(Checked { hash, yaml, needs_restart })
        });
        checked.await.unwrap_or_else(|_| Err("the check broke off; see the log".to_owned()))
    }

    /// Reads the file again and takes on what it says. Waits for its turn.
    ///
    /// # Errors
    /// What is wrong, in one line; the old configuration stays. Too many wait already: nothing is tried.
    ///
    /// # Cancel safety
    /// A configuration that is being taken on is taken on all the same.
    pub async fn reload(self: &Arc<Self>) -> Result<Reloaded, String> {
        let this = Arc::clone(self);
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err("too many reloads wait already; try again when they are done".to_owned());
        };
        // In a task of its own, so that a caller who leaves does not let the next one in too soon.
        let done = tokio::spawn(async move {
            let (_place, _turn) = (place, this.turn.lock().await);
            let Some(path) = this.source.clone() else {
                return Err("this gateway was not started from a file; restart it".to_owned());
            };
            let reading = source::settled(&path, STILL, LOOKS_MAX).await;
            this.attempt(reading, true).await
        });
        done.await.unwrap_or_else(|_| Err("the reload broke off; see the log".to_owned()))
    }

    /// Looks at the files now and again until `stopped`, and takes on what has changed.
    pub async fn watch(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let Some(path) = self.source.clone() else { return };
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                _ = stopped.wait_for(|stop| *stop) => return,
            }
            let _turn = self.turn.lock().await;
            self.look(&path).await;
        }
    }

    /// One look at the files, which takes on what has changed.
    async fn look(self: &Arc<Self>, path: &std::path::Path) {
        // The first is a try whatever they hold, which nobody has asked for.
        let is_first = self.lock().tried == Print::default();
        if let Some(reading) = self.changed(path).await {
            // Whoever looks at the state or the log hears of it.
            let _ = self.attempt(reading, !is_first).await;
        }
    }

    /// What lies at `path`, if it or a file that counts is another than the last time and stays so.
    async fn changed(&self, path: &std::path::Path) -> Option<Reading> {
        let tried = self.lock().tried.clone();
        let (first, _) = source::look(path, tried.files.clone()).await?;
        if first == tried {
            return None;
        }
        tokio::time::sleep(SETTLED).await;
        let (second, reading) = source::look(path, tried.files.clone()).await?;
        (second == first).then_some(reading)
    }

    /// Takes on what was read, counts how it went, and remembers it. That nothing is another counts only
    /// if it `is_asked`.
    async fn attempt(
        self: &Arc<Self>,
        reading: Reading,
        is_asked: bool,
    ) -> Result<Reloaded, String> {
        let this = Arc::clone(self);
        let tried = tokio::task::spawn_blocking(move || this.take_on(&reading)).await;
        let tried = tried.unwrap_or_else(|_| Err("the reload broke off; see the log".to_owned()));
        match &tried {
            Ok(reloaded) => {
                if reloaded.changed || is_asked {
                    self.count(if reloaded.changed { "ok" } else { "unchanged" }, 1);
                }
                let Changes { added, removed, changed } = &reloaded.endpoints;
                let (added, removed, changed) = (added.len(), removed.len(), changed.len());
                let hash = reloaded.hash.as_str();
                if reloaded.changed {
                    tracing::info!(hash, added, removed, changed, "the configuration is another");
                    let event = Event::new(Kind::Config, "the configuration is another");
                    self.events.tell(event.detail(reloaded.news()));
                }
                if !reloaded.needs_restart.is_empty() {
                    let keys = reloaded.needs_restart.join(", ");
                    tracing::warn!(keys, "what was configured here holds after a restart");
                }
            }
            Err(message) => {
                self.count("error", 1);
                tracing::error!(error = message.as_str(), "not reloaded; the old one stays");
                let what = format!("not reloaded, the old configuration stays: {message}");
                self.events.tell(Event::new(Kind::Config, what));
                let failure = Failure { unix_ms: clock::wall_millis(), message: message.clone() };
                self.lock().last_error = Some(failure);
            }
        }
        self.show(tried.is_ok());
        let why = tried.as_ref().err().cloned();
        self.refused.send_if_modified(|was| {
            let is_news = *was != why;
            *was = why;
            is_news
        });
        tried
    }

    fn take_on(&self, reading: &Reading) -> Result<Reloaded, String> {
        let was = self.config();
        // What could not be read or understood is remembered too, so that it is not tried again.
        self.lock().tried = Print::of(reading, was.files());
        let (name, text) = reading.text()?;
        let (config, names) = variables::parse_own(text, name);
        let config = config?;
        let print = Print::of(reading, config.files());
        let is_same = config == *was && print.contents == self.lock().held;
        self.lock().tried = print.clone();
        let endpoints = if is_same { Changes::default() } else { self.adopter.adopt(&config)? };
        let (hash, needs_restart) = (config.hash(), restart::keys(&self.boot, &config));
        let mut state = self.lock();
        state.last_error = None;
        state.variables = Arc::new(names);
        if !is_same {
            state.held = print.contents;
            state.config = Arc::new(config);
            state.loaded_unix_ms = clock::wall_millis();
        }
        Ok(Reloaded { changed: !is_same, hash, needs_restart, endpoints })
    }

    fn count(&self, result: &'static str, by: u64) {
        self.meters.counter("config_reloads_total", &[("result", result)]).increment(by);
    }

    fn show(&self, is_good: bool) {
        let loaded_unix_ms = self.lock().loaded_unix_ms;
        let seconds = Duration::from_millis(loaded_unix_ms).as_secs_f64();
        self.meters.keep("config_loaded_timestamp_seconds", seconds);
        let is_good = if is_good { 1.0 } else { 0.0 };
        self.meters.keep("config_last_reload_success", is_good);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
