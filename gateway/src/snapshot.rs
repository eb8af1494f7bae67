//! What every breaker knows, in a file, so that a restart does not send traffic to an ill endpoint.
//!
//! A process that was killed and comes back within seconds would otherwise begin with every circuit
//! closed and learn again, at its clients' cost, what it knew. The file is a help and never a
//! condition: whatever is wrong with it is said, the file is set aside for whoever looks into it,
//! and the gateway starts clean.
//!
//! Both calls block on the disk. One writer at a time is the caller's promise, for the file that is
//! being written has one name.
//!
//! Invariants:
//! - What stands under the name is a whole snapshot, the older or the newer, whenever the process or
//!   the machine stops and however full the disk is.
//! - What was written can be read; what differs from it by a single byte is set aside.
//! - The wall clock only tells how long nobody was there, so that it can shorten a cool-down and
//!   never lengthen one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::snapshot::format::{FILE_BYTES_MAX, Unfit};

mod format;
#[cfg(any(test, feature = "fuzzing"))]
mod promise;
mod reason;
#[cfg(test)]
mod tests;
mod wire;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::promise::keep as promise;

/// A gateway that was away for longer knows nothing that still matters: no cool-down is longer.
const AWAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What a snapshot file holds: each endpoint's breaker by its key.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// `pool/name`, at most 256 bytes.
    pub key: String,
    /// What its breaker knows. Of its times whole milliseconds are kept, and its `away` is not: it
    /// is found out on reading.
    pub snapshot: breaker::Snapshot,
}

/// Why no snapshot was written.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// More endpoints than a file may hold.
    #[error("{count} endpoints are too many for a snapshot ({most} at most)")]
    CountEndpoints {
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// A breaker knows more than a file may hold of one.
    #[error("{key}: {part} too long for a snapshot")]
    FitEndpoint {
        /// The endpoint's key.
        key: String,
        /// What is too long.
        part: &'static str,
    },
    /// The file would be larger than a reader accepts.
    #[error("{bytes} bytes are too many for a snapshot ({most} at most)", most = FILE_BYTES_MAX)]
    FitFile {
        /// How large it would be.
        bytes: usize,
    },
    /// The data has no encoding.
    #[error("a snapshot cannot be encoded")]
    Encode(#[source] bincode::error::EncodeError),
    /// The new file cannot be written beside the old one.
    #[error("{}: cannot be written", path.display())]
    WriteBeside {
        /// The new file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The new file cannot take the old one's place.
    #[error("{}: cannot be replaced", path.display())]
    Replace {
        /// The old file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The new file is in its place, but may not be there any more after the machine stops.
    #[error("{}: cannot be brought to the disk", path.display())]
    SyncFolder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What was found where the snapshot should be.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// No file: the first start.
    Nothing,
    /// A snapshot; `away` of each breaker is the time since it was written, at most a day.
    Saved(Vec<Saved>),
    /// Something that is no snapshot this version can read.
    SetAside {
        /// Where it lies: under the name with `.bad`, in the place of an earlier one; or where it
        /// was, if it could not be renamed.
        to: PathBuf,
        /// What is wrong with it, as half a sentence.
        why: String,
    },
}

/// Writes a snapshot in the place of the last one, readable by its owner only. `wall_millis` is the
/// wall clock in milliseconds since 1970.
///
/// The new file is brought to the disk before it takes the old one's name, and then its folder is,
/// for a rename is on the disk once its folder is.
///
/// # Errors
/// [`SnapshotError`]. The old file stays as it is and nothing is left beside it, except after
/// [`SnapshotError::SyncFolder`], when the new one has taken its place.
pub fn write(path: &Path, wall_millis: u64, saved: &[Saved]) -> Result<(), SnapshotError> {
    replace(path, &format::encode(wall_millis, saved)?)
}

/// Puts `bytes` in the place of a file, as [`write`] does; other small files that are kept beside the
/// snapshot are written by it too.
///
/// # Errors
/// As [`write`], but for what has no encoding or does not fit.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let beside = with_ending(path, ".new");
    if let Err(source) = write_beside(&beside, bytes) {
        // A disk that is full must not be kept full by half a snapshot.
        let _ = fs::remove_file(&beside);
        return Err(SnapshotError::WriteBeside { path: beside, source });
    }
    if let Err(source) = fs::rename(&beside, path) {
        let _ = fs::remove_file(&beside);
        return Err(SnapshotError::Replace { path: path.to_owned(), source });
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // Where folders cannot be opened, a rename is as durable as the system makes it.
    let Ok(opened) = File::open(folder) else {
        return Ok(());
    };
    let synced = opened.sync_all();
    synced.map_err(|source| SnapshotError::SyncFolder { path: folder.to_owned(), source })
}

/// Reads the last snapshot. `wall_millis` is the wall clock in milliseconds since 1970; if it ran
/// back, no time counts as passed.
///
/// It never fails: what cannot be read is renamed, so that the next snapshot does not destroy it and
/// the next start does not stumble over it again. A symbolic link is not followed.
pub fn read(path: &Path, wall_millis: u64) -> Found {
    let snapshot = match read_file(path) {
        Ok(None) => return Found::Nothing,
        Ok(Some(bytes)) => format::decode(&bytes),
        Err(unfit) => Err(unfit),
    };
    let (written, mut saved) = match snapshot {
        Ok(snapshot) => snapshot,
        Err(unfit) => return set_aside(path, &unfit),
    };
    let away = Duration::from_millis(wall_millis.saturating_sub(written)).min(AWAY_MAX);
    for saved in &mut saved {
        saved.snapshot.away = away;
    }
    Found::Saved(saved)
}

fn write_beside(beside: &Path, bytes: &[u8]) -> io::Result<()> {
    // What a process that was killed left there goes away instead of being written into: it may be
    // readable by others, or a link to elsewhere.
    match fs::remove_file(beside) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(beside)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The bytes of the file, at most [`FILE_BYTES_MAX`]; `None` if there is no file.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, Unfit> {
    let unreadable = |error: io::Error| Unfit::Unreadable { kind: error.kind() };
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    if kind.is_symlink() {
        return Err(Unfit::Link);
    }
    // Opening a pipe would wait for its other end.
    if !kind.is_file() {
        return Err(Unfit::NoFile);
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than there may be, to tell a file that is too large from one that just fits.
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() <= FILE_BYTES_MAX {
        true => Ok(Some(bytes)),
        false => Err(Unfit::TooLarge),
    }
}

fn set_aside(path: &Path, unfit: &Unfit) -> Found {
    match rename_bad(path) {
        Ok(to) => Found::SetAside { to, why: unfit.to_string() },
        Err(error) => {
            let why = format!("{unfit}, and it cannot be renamed ({})", error.kind());
            Found::SetAside { to: path.to_owned(), why }
        }
    }
}

/// Renames a file that is of no use, so that the next one does not wipe out what went wrong: under its
/// name with `.bad`, in the place of an earlier one. Returns where it lies.
///
/// # Errors
/// It cannot be renamed and lies where it was.
pub(crate) fn rename_bad(path: &Path) -> io::Result<PathBuf> {
    let to = with_ending(path, ".bad");
    fs::rename(path, &to).map(|()| to)
}

/// The path with more behind its name.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}
