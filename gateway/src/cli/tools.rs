//! The verbs that work on files and ask nobody: check, schema, import, replay, certificates.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use gateway::replay;
use serde_json::json;

use super::failure::{Failure, chain};
use super::run::read;
use super::{Output, say};

/// Validates a configuration and prints what it amounts to.
pub(super) fn check(file: &Path, output: Output) -> Result<(), Failure> {
    let config = read(file)?;
    let yaml = config.effective_yaml();
    match output {
        Output::Text => say(&yaml),
        Output::Json => {
            say(&format!("{}\n", json!({ "ok": true, "hash": config.hash(), "yaml": yaml })))
        }
    }
}

/// Runs a recorded access log through the breakers.
pub(super) fn replay(log: &Path, config: &Path, output: Output) -> Result<(), Failure> {
    let config = read(config)?;
    let file = File::open(log)
        .map_err(|error| Failure::unavailable(format!("{}: {error}", log.display())))?;
    let report = replay::run(BufReader::new(file), &config)
        .map_err(|error| Failure::unavailable(chain(&error)))?;
    match output {
        Output::Json => say(&format!("{}\n", report.json())),
        Output::Text => say(&report.text()),
    }
}

/// Makes a certificate authority.
pub(super) fn certs_init(dir: &Path) -> Result<(), Failure> {
    gossip::certs::init(dir).map_err(|error| Failure::unavailable(chain(&error)))
}

/// Makes a node's certificate.
pub(super) fn certs_issue(dir: &Path, node: &str) -> Result<(), Failure> {
    gossip::certs::issue(dir, node).map_err(|error| Failure::unavailable(chain(&error)))
}

/// Prints the JSON Schema of the configuration.
pub(super) fn schema() -> Result<(), Failure> {
    Err(Failure::usage("not yet"))
}

/// Turns a LiteLLM configuration into ours.
pub(super) fn import_litellm(_file: &Path, _output: Output) -> Result<(), Failure> {
    Err(Failure::usage("not yet"))
}
