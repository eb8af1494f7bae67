//! What is kept over a restart: every breaker, in one file, so that an ill endpoint stays known.
//!
//! The file is written at intervals and at the end, off the request path. Keeping is a convenience:
//! whatever goes wrong with the file is logged and counted, and the gateway serves on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quorum::EndpointKey;
use tokio::sync::watch;

use crate::clock;
use crate::cluster::Seat;
use crate::config::StateFile;
use crate::fleet::Fleet;
use crate::metrics::Meters;
use crate::people::chain;
use crate::snapshot::{self, Found, Saved};

/// Keeps the breakers of a fleet in a file.
pub struct Keeper {
    path: PathBuf,
    every: Duration,
    meters: Arc<Meters>,
}

impl Keeper {
    /// A keeper as the configuration says.
    pub fn new(config: &StateFile, meters: &Arc<Meters>) -> Self {
        Self { path: config.path.clone(), every: config.every, meters: Arc::clone(meters) }
    }

    /// Lets `fleet` go on from what was kept. To be called before any request.
    pub fn restore(&self, fleet: &Fleet) {
        match snapshot::read(&self.path, clock::wall_millis()) {
            Found::Nothing => {}
            Found::Saved(saved) => {
                let now = clock::now();
                let mut count = 0;
                for one in &saved {
                    if let Some((_, endpoint)) = fleet.endpoint(&EndpointKey::new(&one.key)) {
                        endpoint.restore(now, &one.snapshot);
                        count += 1;
                    }
                }
                tracing::info!(endpoints = count, "the breakers go on from the state file");
            }
            Found::SetAside { to, why } => {
                tracing::warn!(to = %to.display(), why, "the state file was of no use");
            }
        }
    }

    /// Writes what the seat's endpoints have come to, at intervals until `stop`, and once more then.
    pub async fn run(self, seat: Arc<Seat>, mut stop: watch::Receiver<bool>) {
        let keeper = Arc::new(self);
        loop {
            let is_over = tokio::select! {
                () = tokio::time::sleep(keeper.every) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            let (writer, fleet) = (Arc::clone(&keeper), seat.fleet());
            let _ = tokio::task::spawn_blocking(move || writer.write(&fleet)).await;
            if is_over {
                return;
            }
        }
    }

    fn write(&self, fleet: &Fleet) {
        let now = clock::now();
        let save = |key: &EndpointKey, snapshot| Saved { key: key.to_string(), snapshot };
        let endpoints = fleet.endpoints();
        let saved: Vec<Saved> =
            endpoints.map(|(_, one)| save(&one.key, one.snapshot(now))).collect();
        let result = match snapshot::write(&self.path, clock::wall_millis(), &saved) {
            Ok(()) => "ok",
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(
                    error,
                    "the state file cannot be written, and the old one stays; its directory must exist, \
                     be writable for this user, and have room"
                );
                "error"
            }
        };
        self.meters.counter("state_writes_total", &[("result", result)]).increment(1);
    }
}
