//! What the environment says instead of the file: `QUORUMGATE__SERVER__LISTEN=0.0.0.0:8081`.
//!
//! One file serves many nodes if what differs between them can be said from outside. The name of
//! such a variable is the path of a key; it is put on what was read from the file before anything is
//! checked, so that nothing can be said this way that a file could not say.
//!
//! Invariants: a variable that begins like one of these and is none stops a start, like a mistyped
//! key; their number and length are bounded; what they hold is never shown.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::error::ConfigError;
use super::file::{File, Overlay, Place, Way};
use super::scalar;

/// How their names begin.
const PREFIX: &str = "QUORUMGATE__";
/// What stands between two keys of a path.
const BETWEEN: &str = "__";
/// Most overrides: twice as many as there are keys that can be overridden.
const OVERRIDES_MAX: usize = 256;
/// Longest name, in bytes; no path is half as long.
const NAME_BYTES_MAX: usize = 128;
/// Longest value, in bytes; each entry of a list has the bound of any value beside.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// The overrides, in the order of their names.
#[derive(Default)]
pub(super) struct Overrides(Vec<Override>);

struct Override {
    name: String,
    path: Vec<String>,
    value: String,
}

impl Overrides {
    /// Takes those among `variables` that are overrides.
    ///
    /// # Errors
    /// They are too many, one is too long or is not UTF-8, or two name the same key.
    pub(super) fn of(
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        // What stands in the order of names does not depend on that of the environment.
        let mut named: BTreeMap<String, OsString> = BTreeMap::new();
        for (name, value) in variables {
            let name = name.to_string_lossy();
            if !name.starts_with(PREFIX) {
                continue;
            }
            if named.len() == OVERRIDES_MAX {
                let problem = format!("with this there are more than {OVERRIDES_MAX} overrides");
                return Err(refuse(&name, &problem, "write some of them in the file"));
            }
            named.insert(name.into_owned(), value);
        }
        let mut taken: BTreeMap<Vec<String>, String> = BTreeMap::new();
        let mut overrides = Vec::with_capacity(named.len());
        for (name, value) in named {
            let one = Override::read(name, value)?;
            if let Some(other) = taken.insert(one.path.clone(), one.name.clone()) {
                let problem = format!("{other} names the same key");
                return Err(refuse(&one.name, &problem, "unset one of them"));
            }
            overrides.push(one);
        }
        Ok(Self(overrides))
    }

    /// Puts them on what was read from `file`.
    ///
    /// # Errors
    /// One names no key, or has not the shape of what stands there.
    pub(super) fn apply(&self, file: &mut File) -> Result<(), ConfigError> {
        for (index, one) in self.0.iter().enumerate() {
            let way = Way::new(&one.path, &one.value, Place::variable(index));
            *file = File::over(Some(std::mem::take(file)), way)
                .map_err(|refusal| refuse(&one.name, &refusal.problem, &refusal.cure))?;
        }
        Ok(())
    }

    /// Refuses what the override with this index says.
    pub(super) fn refuse(&self, index: usize, problem: &str, cure: &str) -> ConfigError {
        let name = self.0.get(index).map_or(PREFIX, |one| one.name.as_str());
        refuse(name, problem, cure)
    }
}

impl Override {
    fn read(name: String, value: OsString) -> Result<Self, ConfigError> {
        if name.len() > NAME_BYTES_MAX {
            let problem = "the name is longer than that of any key";
            return Err(refuse(&name, problem, "correct it or unset the variable"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(refuse(&name, "the value is longer than 64KiB", "shorten it"));
        }
        let Ok(value) = value.into_string() else {
            return Err(refuse(&name, "the value is not UTF-8 text", "write it as UTF-8"));
        };
        let path = name.get(PREFIX.len()..).unwrap_or_default();
        let path = path.split(BETWEEN).map(str::to_ascii_lowercase).collect();
        Ok(Self { name, path, value })
    }
}

fn refuse(name: &str, problem: &str, cure: &str) -> ConfigError {
    let short: String = name.chars().take(NAME_BYTES_MAX).collect();
    ConfigError::RefuseVariable {
        variable: scalar::one_line(&short),
        problem: problem.to_owned(),
        cure: cure.to_owned(),
    }
}
