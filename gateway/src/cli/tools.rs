//! The verbs that work on files and ask nobody: check, schema, import, replay, certificates.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use gateway::import::{self, Imported};
use gateway::people::chain;
use gateway::{config, replay};
use gossip::certs::CertsError;
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
    let file = File::open(log).map_err(|error| {
        let why = format!("{}: {error}; check the path and who may read it", log.display());
        Failure::unavailable(why)
    })?;
    let report = replay::run(BufReader::new(file), &config)
        .map_err(|error| Failure::unavailable(chain(&error)))?;
    match output {
        Output::Json => say(&format!("{}\n", report.json())),
        Output::Text => say(&report.text()),
    }
}

/// Makes a certificate authority.
pub(super) fn certs_init(dir: &Path) -> Result<(), Failure> {
    let cure = |error: &CertsError| match error {
        CertsError::MakeFile { .. } => "what is there is never overwritten; choose another --dir",
        _ => "",
    };
    gossip::certs::init(dir).map_err(|error| Failure::cured(&error, cure(&error)))
}

/// Makes a node's certificate.
pub(super) fn certs_issue(dir: &Path, node: &str) -> Result<(), Failure> {
    let cure = |error: &CertsError| match error {
        CertsError::ReadFile { .. } => "first make a CA there: quorumgate certs init --dir DIR",
        CertsError::MakeFile { .. } => {
            "what is there is never overwritten; to renew it, move the old .crt and .key away first"
        }
        CertsError::NameNode { .. } => "letters, digits, dashes and dots, as in gw-1",
        _ => "",
    };
    gossip::certs::issue(dir, node).map_err(|error| Failure::cured(&error, cure(&error)))
}

/// Makes what is missing of an authority and the nodes' certificates, so that it can be run at every start.
/// Where all nodes have theirs, the authority's key may be elsewhere.
pub(super) fn certs_ensure(dir: &Path, nodes: &[String]) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for node in nodes {
        if !is_whole(dir, node)? {
            missing.push(node);
        }
    }
    if missing.is_empty() && !nodes.is_empty() && dir.join("ca.crt").exists() {
        return Ok(());
    }
    if !is_whole(dir, "ca")? {
        certs_init(dir)?;
    }
    missing.into_iter().try_for_each(|node| certs_issue(dir, node))
}

/// Whether a certificate is there with its key; neither of them is missing alone.
///
/// # Errors
/// One is. Keys are written first, so that an end in between leaves one without its certificate.
fn is_whole(dir: &Path, name: &str) -> Result<bool, Failure> {
    let file = |ending: &str| dir.join(format!("{name}.{ending}"));
    let (key, certificate) = (file("key"), file("crt"));
    match (key.exists(), certificate.exists()) {
        (true, true) => Ok(true),
        (false, false) => Ok(false),
        (true, false) => Err(Failure::unavailable(format!(
            "{} is there without {}: an earlier run broke off, or it was moved away; bring it back, \
             or remove the key and run this again",
            key.display(),
            certificate.display()
        ))),
        (false, true) => Err(Failure::unavailable(format!(
            "{} is there without {}; bring the key back, or move the certificate away and run this again",
            certificate.display(),
            key.display()
        ))),
    }
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
