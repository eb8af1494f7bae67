//! What is deployed: the image, the Compose file, the unit of systemd, the chart, each by its own checker and then run.
//!
//! Checkers of others come at their pinned versions, see `tests/python`. A checker that is not there is a
//! failure that says what to install.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop loudly"
)]

#[path = "deploy/chart.rs"]
mod chart;
#[path = "deploy/image.rs"]
mod image;
#[path = "deploy/pods.rs"]
mod pods;
#[path = "process/mod.rs"]
mod process;
#[path = "python/mod.rs"]
mod python;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

/// A checker out of the one environment of these tests.
fn checker(name: &str) -> Command {
    let environment = python::environment("deploy", include_str!("deploy/requirements.txt"));
    Command::new(environment.join("bin").join(name))
}
