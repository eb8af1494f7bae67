//! The verbs that work on files and ask nobody: check, schema, import, replay, certificates.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use gateway::import::{self, Imported};
use gateway::people::chain;
use gateway::{config, replay};
use serde_json::json;

use super::failure::Failure;
use super::run::read;
use super::text::plain;
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

/// Makes what is missing of an authority and the nodes' certificates, so that it can be run at every start.
pub(super) fn certs_ensure(dir: &Path, nodes: &[String]) -> Result<(), Failure> {
    if !dir.join("ca.crt").exists() {
        certs_init(dir)?;
    }
    for node in nodes {
        if !dir.join(format!("{node}.crt")).exists() {
            certs_issue(dir, node)?;
        }
    }
    Ok(())
}

/// Prints the JSON Schema of the configuration.
pub(super) fn schema() -> Result<(), Failure> {
    say(&format!("{:#}\n", config::schema()))
}

/// Turns a LiteLLM configuration into ours.
pub(super) fn import_litellm(file: &Path, output: Output) -> Result<(), Failure> {
    let text = text_of(file)?;
    let shown = file.display();
    let imported =
        import::litellm(&text).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    let Imported { yaml, notes, warnings } = imported;
    if output == Output::Json {
        let document = json!({ "yaml": yaml, "notes": notes, "warnings": warnings });
        return say(&format!("{document}\n"));
    }
    for warning in &warnings {
        eprintln!("quorumgate: {}", plain(warning));
    }
    if !notes.is_empty() {
        let count = notes.len();
        eprintln!("quorumgate: {count} settings work differently; the comments at the top say how");
    }
    say(&yaml)
}

/// The text of a file; `-` is standard input.
fn text_of(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let unreadable = |error: io::Error| {
        Failure::usage(format!("{shown}: {error}; name a file that can be read, or -"))
    };
    let source: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(unreadable)?)
    };
    let mut text = String::new();
    source.take(config::FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > config::FILE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{shown}: the file is longer than 8MiB; make it shorter"
        )));
    }
    Ok(text)
}
