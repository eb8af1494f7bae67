//! Another gateway's configuration turned into ours, with comments where something has no
//! counterpart.
//!
//! Whoever tries this gateway has one already, and its file holds what took longest to collect:
//! which models are served where, by which keys. The rest is translated as far as it means the
//! same; what does not is said and not guessed.
//!
//! Invariants: what is written passes the check of a configuration, once the variables it names are
//! set; no secret of the file is repeated, neither in what is written nor in a note; odd files are
//! refused, and none ends in a panic.

mod litellm;
mod names;
mod provider;
mod settings;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use crate::config;

pub use self::litellm::litellm;

/// What came of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Our configuration, with comments.
    pub yaml: String,
    /// What has no counterpart or works differently, a sentence each.
    pub notes: Vec<String>,
    /// Secrets that stood in the file in clear, and the variables that take their place.
    pub warnings: Vec<String>,
}

/// Why nothing came of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It is no YAML.
    #[error("line {line}: this is no YAML; check that it is the proxy's config.yaml")]
    Syntax {
        /// Where the reading ended.
        line: u64,
    },
    /// It holds no list of models.
    #[error("there is no model_list; name the proxy's config.yaml")]
    NoModels,
    /// None of its models can be served.
    #[error("no model can be served: {first}")]
    NothingServed {
        /// The first reason.
        first: String,
    },
    /// What was written is refused by our own check: a fault of this translation.
    #[error("what came of it is refused ({0}); please report this")]
    Refused(String),
}

/// What a variable stands for, so that a check can be tried without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Text,
    Address,
    Digest,
}

/// The variables that the configuration will need.
type Variables = BTreeMap<String, Stands>;

/// Checks what was written, with the variables set to something of their kind.
fn check(yaml: &str, variables: &Variables) -> Result<(), String> {
    let value = |name: &str| {
        let value = match variables.get(name)? {
            Stands::Text => "placeholder".to_owned(),
            Stands::Address => format!("http://{}.example", name.len()),
            Stands::Digest => "0".repeat(64),
        };
        Some(value)
    };
    config::parse(yaml, "imported", &value).map(drop).map_err(|error| {
        let line = error.to_string();
        // The place is one in our text, which nobody has before them.
        line.split_once(": ").map_or(line.clone(), |(_, rest)| rest.to_owned())
    })
}
