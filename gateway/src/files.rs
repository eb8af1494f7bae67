//! Reads small files that a configuration names: certificates and keys.
//!
//! Invariants: a file that is no regular one is not opened, since a pipe would never end; no more than
//! a bounded part of any file is read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Longest file that is read; a chain of certificates takes a few KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// All that the file at `path` holds, at most [`FILE_BYTES_MAX`]. Blocks.
///
/// # Errors
/// It is not there, not readable, no regular file, or longer.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that fits from one that does not.
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_read_whole_and_what_is_longer_or_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (length, is_read) in [(0, true), (FILE_BYTES_MAX, true), (FILE_BYTES_MAX + 1, false)] {
            std::fs::write(&path, vec![b'x'; usize::try_from(length).unwrap()]).unwrap();
            assert_eq!(read(&path).ok().map(|all| all.len() as u64), is_read.then_some(length));
        }
        assert!(read(directory.path()).is_err());
        // It would never end.
        assert!(read(Path::new("/dev/zero")).is_err());
    }
}
