//! What lies in the files: the text of the configuration, and a digest of it and of all that it names.
//!
//! Invariants: a file that is no regular one is not opened, since a pipe would never end; no more than
//! a bounded part of any file is read; nothing here keeps what a key file holds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{config, files, fnv};

/// The configuration's file as it was read.
#[derive(Debug)]
pub(super) struct Reading {
    name: String,
    /// The text, or why there is none.
    text: Result<String, String>,
}

/// What the files hold, as far as it must be known to see that it is another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Print {
    /// The files beside the configuration's own that count.
    pub(super) files: Vec<PathBuf>,
    /// A digest of the text, or of why there is none.
    text: u64,
    /// A digest of what `files` hold.
    pub(super) contents: u64,
}

impl Default for Reading {
    /// Nothing that was read.
    fn default() -> Self {
        Self { name: String::new(), text: Ok(String::new()) }
    }
}

impl Reading {
    /// Reads the file at `path`. Blocks.
    pub(super) fn of(path: &Path) -> Self {
        let name = config::file_name(path);
        let text = match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                Err(format!("{name}: is no regular file; give the path of one"))
            }
            Ok(_) | Err(_) => config::read_text(path).map_err(|error| error.to_string()),
        };
        Self { name, text }
    }

    /// What errors call the file, and its text.
    ///
    /// # Errors
    /// Why there is none, in one line.
    pub(super) fn text(&self) -> Result<(&str, &str), String> {
        match &self.text {
            Ok(text) => Ok((&self.name, text)),
            Err(message) => Err(message.clone()),
        }
    }
}

impl Print {
    /// The print of `reading` with what the files `named` hold at this moment. Blocks.
    pub(super) fn of(reading: &Reading, named: Vec<PathBuf>) -> Self {
        let text = match &reading.text {
            Ok(text) => fnv::digest(text.bytes()),
            Err(message) => fnv::digest(message.bytes().chain([0])),
        };
        let mut digests = Vec::with_capacity(named.len() * size_of::<u64>());
        for file in &named {
            // One that cannot be used counts as empty.
            let held = files::read(file).unwrap_or_default();
            digests.extend(fnv::digest(held).to_le_bytes());
        }
        Self { files: named, text, contents: fnv::digest(digests) }
    }
}

/// Reads the file at `path` and prints it with `files`; `None`: the process is ending.
pub(super) async fn look(path: &Path, files: Vec<PathBuf>) -> Option<(Print, Reading)> {
    let path = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || {
        let reading = Reading::of(&path);
        (Print::of(&reading, files), reading)
    });
    looked.await.ok()
}

/// Reads the file at `path` until two looks, `still` apart, find the same; at most `looks_max` times.
pub(super) async fn settled(path: &Path, still: Duration, looks_max: u32) -> Reading {
    let mut before = None;
    for _ in 0..looks_max {
        let Some((print, reading)) = look(path, Vec::new()).await else { break };
        if before.as_ref() == Some(&print) {
            return reading;
        }
        before = Some(print);
        tokio::time::sleep(still).await;
    }
    let name = config::file_name(path);
    let text = Err(format!("{name}: changes all the time; write it once and try again"));
    Reading { name, text }
}
