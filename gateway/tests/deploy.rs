//! What is deployed: the image, the Compose file, the unit of systemd, the chart, each by its own checker and then run.
//!
//! Checkers of others come at their pinned versions, see `tests/python`. A checker that is not there is a
//! failure that says what to install.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "netns/apart.rs"]
mod apart;
#[path = "deploy/chart.rs"]
mod chart;
#[path = "deploy/compose.rs"]
mod compose;
#[path = "deploy/container.rs"]
mod container;
#[path = "deploy/image.rs"]
mod image;
#[path = "deploy/pods.rs"]
mod pods;
#[path = "process/mod.rs"]
mod process;
#[path = "python/mod.rs"]
mod python;
#[path = "deploy/systemd.rs"]
mod systemd;
#[path = "deploy/telling.rs"]
mod telling;
#[path = "netns/wires.rs"]
#[allow(dead_code, reason = "nothing is split here")]
mod wires;

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
