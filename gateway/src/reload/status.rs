//! What operators are told of the configuration and of what became of another one.

use quorum::EndpointKey;
use serde_json::{Value, json};

use crate::fleet::Changes;

/// So many endpoints of a kind are named in an event.
const NAMED_MAX: usize = 20;

/// The configuration of the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Every setting with its effective value; secrets are masked.
    pub yaml: String,
    /// Equal on two nodes that share their settings.
    pub hash: String,
    /// When it was taken on, in milliseconds of the wall clock.
    pub loaded_unix_ms: u64,
    /// The file it came from, if from one.
    pub source: Option<String>,
    /// Why the file holds another that was not taken on; `None`: the last try went well.
    pub last_error: Option<Failure>,
    /// The keys whose values hold only after a restart, in the order of the reference configuration.
    pub needs_restart: Vec<&'static str>,
}

/// A try that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When, in milliseconds of the wall clock.
    pub unix_ms: u64,
    /// What is wrong and what to do, in one line.
    pub message: String,
}

/// A text that could be taken on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// What its hash would be.
    pub hash: String,
    /// What it amounts to; secrets are masked, and so is what the environment gives. `None`: the
    /// environment gives something that cannot be masked, a number for example.
    pub yaml: Option<String>,
    /// As in [`Status`].
    pub needs_restart: Vec<&'static str>,
}

/// What a reload came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Whether anything was another.
    pub changed: bool,
    /// The hash of what holds.
    pub hash: String,
    /// As in [`Status`].
    pub needs_restart: Vec<&'static str>,
    /// Which endpoints.
    pub endpoints: Changes,
}

impl Status {
    /// As the admin API answers `GET config`.
    pub fn json(&self) -> Value {
        let failure = self.last_error.as_ref();
        let failure = failure.map(|one| json!({ "unix_ms": one.unix_ms, "message": one.message }));
        json!({
            "yaml": self.yaml,
            "hash": self.hash,
            "loaded_unix_ms": self.loaded_unix_ms,
            "source": self.source,
            "last_error": failure,
            "needs_restart": self.needs_restart,
        })
    }
}

impl Checked {
    /// As the admin API answers `POST config/check`.
    pub fn json(&self) -> Value {
        json!({
            "ok": true,
            "hash": self.hash,
            "yaml": self.yaml,
            "needs_restart": self.needs_restart,
        })
    }
}

impl Reloaded {
    /// As the admin API answers `POST config/reload`.
    pub fn json(&self) -> Value {
        self.written(usize::MAX)
    }

    /// The same for those who follow the events: how many endpoints, and the first names of each kind.
    pub fn news(&self) -> Value {
        let Changes { added, removed, changed } = &self.endpoints;
        let mut news = self.written(NAMED_MAX);
        let counts = json!({
            "added": added.len(), "removed": removed.len(), "changed": changed.len(),
        });
        if let Some(news) = news.as_object_mut() {
            news.insert("counts".to_owned(), counts);
        }
        news
    }

    fn written(&self, names_max: usize) -> Value {
        let names = |keys: &[EndpointKey]| -> Vec<String> {
            keys.iter().take(names_max).map(EndpointKey::to_string).collect()
        };
        let Changes { added, removed, changed } = &self.endpoints;
        json!({
            "changed": self.changed,
            "hash": self.hash,
            "needs_restart": self.needs_restart,
            "endpoints": {
                "added": names(added),
                "removed": names(removed),
                "changed": names(changed),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_news_of_a_reload_stay_small_however_many_endpoints_there_are() {
        let keys = |count: u32| (0..count).map(|n| EndpointKey::new(&format!("m/{n}"))).collect();
        let endpoints = Changes { added: keys(10_000), removed: keys(3), changed: keys(0) };
        let (hash, needs_restart) = (String::new(), Vec::new());
        let reloaded = Reloaded { changed: true, hash, needs_restart, endpoints };
        let news = reloaded.news();
        assert_eq!(news["counts"], json!({ "added": 10_000, "removed": 3, "changed": 0 }));
        assert_eq!(news["endpoints"]["added"].as_array().unwrap().len(), NAMED_MAX);
        assert!(news.to_string().len() < 4_096);
        assert_eq!(reloaded.json()["endpoints"]["added"].as_array().unwrap().len(), 10_000);
    }
}
