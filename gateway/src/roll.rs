//! The names of the fleet's members, kept over a restart beside the state file.
//!
//! A majority is of the members that a node has known. A node that restarts on the small side of a
//! partition meets only that side, and would take it for the whole fleet; so the names are kept, and
//! a member that is not met counts as one that is lost.
//!
//! Invariants: the file holds the old list or the new one, never half of one; a file that is of no
//! use is said to be so and set aside for whoever looks into it, and the node starts without.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorum::NodeId;
use quorum::electorate::MEMBERS_MAX;
use tokio::sync::watch;

use crate::clock;
use crate::cluster::Seat;
use crate::people::chain;
use crate::snapshot::{self, SnapshotError};

/// The longest name of a node, in bytes.
const NAME_BYTES_MAX: usize = 253;
/// More than a full list of the longest names is not read.
const FILE_BYTES_MAX: u64 = (MEMBERS_MAX * (NAME_BYTES_MAX + 1)) as u64;

/// Keeps the list of members in a file.
pub struct Roll {
    path: PathBuf,
    every: Duration,
}

impl Roll {
    /// The list beside `state`, looked at every so often.
    pub fn beside(state: &Path, every: Duration) -> Self {
        Self { path: snapshot::with_ending(state, ".members"), every }
    }

    /// Tells the council whom this node knew in its last life. To be called before anything is heard.
    pub fn recall(&self, seat: &Seat) {
        self.recall_into(|names| seat.council().recall(clock::now(), names));
    }

    fn recall_into(&self, hear: impl FnOnce(Vec<NodeId>)) {
        match read(&self.path) {
            Ok(names) if names.is_empty() => {}
            Ok(names) => {
                tracing::info!(members = names.len(), "the members of the last life are known");
                hear(names);
            }
            Err(error) => {
                let to = snapshot::rename_bad(&self.path).unwrap_or_else(|_| self.path.clone());
                tracing::warn!(to = %to.display(), %error, "the list of members is of no use");
            }
        }
    }

    /// Writes the list whenever it has changed, until `stop`.
    pub async fn run(self, seat: Arc<Seat>, mut stop: watch::Receiver<bool>) {
        let mut written = Vec::new();
        loop {
            let is_over = tokio::select! {
                () = tokio::time::sleep(self.every) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            let names = seat.council().roll_call();
            if names != written {
                let (path, list) = (self.path.clone(), names.clone());
                let wrote = tokio::task::spawn_blocking(move || replace(&path, &list)).await;
                match wrote {
                    Ok(Ok(())) => written = names,
                    Ok(Err(error)) => {
                        let error = chain(&error);
                        tracing::warn!(error, "the list of members cannot be written");
                    }
                    Err(error) => {
                        tracing::error!(%error, "the writer of the list of members has panicked");
                    }
                }
            }
            if is_over {
                return;
            }
        }
    }
}

/// Reads the list; an absent file is an empty one.
fn read(path: &Path) -> io::Result<Vec<NodeId>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    let unfit = |why: &'static str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if text.len() as u64 > FILE_BYTES_MAX {
        return unfit("it is too long");
    }
    let is_name = |name: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain)
    };
    let names: Vec<&str> = text.lines().collect();
    if names.len() > MEMBERS_MAX || !names.iter().all(is_name) {
        return unfit("it holds something else than names");
    }
    Ok(names.into_iter().map(NodeId::new).collect())
}

/// Writes the list in the place of the last one, so that a crash leaves one or the other.
fn replace(path: &Path, names: &[NodeId]) -> Result<(), SnapshotError> {
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    snapshot::replace(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_list_that_is_of_no_use_is_kept_beside_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let roll = Roll::beside(&directory.path().join("state"), Duration::from_secs(1));
        fs::write(&roll.path, "gw 1\n").unwrap();
        roll.recall_into(|_| panic!("there is nothing to recall"));
        replace(&roll.path, &[NodeId::new("gw-2")]).unwrap();
        let bad = directory.path().join("state.members.bad");
        assert_eq!(fs::read_to_string(bad).unwrap(), "gw 1\n");
        assert_eq!(read(&roll.path).unwrap(), [NodeId::new("gw-2")]);
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("members");
        assert_eq!(read(&path).unwrap(), []);
        let names: Vec<NodeId> = ["gw-1", "gw-2.prod"].into_iter().map(NodeId::new).collect();
        replace(&path, &names).unwrap();
        assert_eq!(read(&path).unwrap(), names);
        for unfit in ["gw 1\n", "\n", "gw-1\n\ngw-2\n", "gw\u{1}\n"] {
            fs::write(&path, unfit).unwrap();
            assert!(read(&path).is_err(), "{unfit:?}");
        }
        fs::write(&path, "a\n".repeat(MEMBERS_MAX + 1)).unwrap();
        assert!(read(&path).is_err(), "more than there can be");
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&path).is_err(), "no text");
    }
}
