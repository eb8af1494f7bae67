//! A number that grows with every restart of a node, whatever the clock does.
//!
//! Peers take the greatest generation of a node as the node and smaller ones as its past. A
//! generation taken from the wall clock alone goes back when the clock does, and the restarted node
//! would be taken for its own past. So the last number is kept in a file as well.
//!
//! # Invariants
//! - With a file, each number is at least [`STRIDE`] greater than the one before.
//! - The file holds the old number or the new one, never half of one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The room between two lives of a process: when the gossip task inside one life has to be started
/// again it takes the next number, at most this many times.
pub const STRIDE: u64 = 1_024;

/// The greatest number of a generation, so that a broken file or clock cannot use them all up.
const GENERATION_MAX: u64 = 1 << 52;

/// Takes the next generation: the wall clock's milliseconds since 1970, or the last number in the
/// file plus [`STRIDE`] if that is greater. The new number is in the file when this returns.
///
/// Without a path the number is the clock's, and a clock that ran back goes unnoticed.
///
/// # Errors
/// If the file cannot be read or replaced, or holds something else than a number. The file is
/// unchanged then.
pub fn next(path: Option<&Path>, wall_millis: u64) -> io::Result<u64> {
    let Some(path) = path else {
        return Ok(wall_millis.min(GENERATION_MAX));
    };
    let after_last = match read(path)? {
        Some(last) => last.saturating_add(STRIDE),
        None => 0,
    };
    let generation = after_last.max(wall_millis);
    if generation > GENERATION_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the generation is out of range"));
    }
    replace(path, generation)?;
    Ok(generation)
}

fn read(path: &Path) -> io::Result<Option<u64>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let number = text.trim().parse();
    number.map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Writes beside the file and renames, so that a crash leaves the old number or the new one.
fn replace(path: &Path, generation: u64) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    writeln!(file, "{generation}")?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // A rename is on the disk once its directory is; where directories cannot be opened, it is
    // as durable as the system makes it.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) {
        directory.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_ran_back_does_not_take_the_generation_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("generation");
        let first = next(Some(&path), 10_000_000).unwrap();
        let second = next(Some(&path), 10_000_000 - 3_600_000).unwrap();
        let third = next(Some(&path), 20_000_000).unwrap();
        assert_eq!(first, 10_000_000);
        assert_eq!(second, 10_000_000 + STRIDE);
        assert_eq!(third, 20_000_000);
    }

    #[test]
    fn a_broken_file_is_an_error_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("generation");
        for broken in ["", "seven", "-1", "18446744073709551615"] {
            fs::write(&path, broken).unwrap();
            assert!(next(Some(&path), 1).is_err(), "{broken:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        }
    }

    #[test]
    fn without_a_file_the_clock_decides() {
        assert_eq!(next(None, 77).unwrap(), 77);
    }
}
