//! What a variable of a configuration holds: in the environment of the process, or else in a file of the
//! directory of credentials.
//!
//! A service manager that keeps secrets out of environments, where a crash report or a child may show
//! them, puts each into a file of its own and names the directory: systemd's `LoadCredential=` does so by
//! `CREDENTIALS_DIRECTORY`, and what a container engine mounts below `/run/secrets` is read as well when
//! that variable says so. The file bears the variable's name; a reload reads it again.
//!
//! Invariants: only a name that can be a variable's is looked for, so that no text leads out of the
//! directory; the line break that editors leave at the end is no part of a value.

use std::path::{Path, PathBuf};

use crate::files;

/// What names the directory.
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// What the variable `name` holds; `None`: nothing does. May read a file.
pub(crate) fn variable(name: &str) -> Option<String> {
    let directory = || std::env::var_os(DIRECTORY).map(PathBuf::from);
    std::env::var(name).ok().or_else(|| credential(&directory()?, name))
}

fn credential(directory: &Path, name: &str) -> Option<String> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if name.is_empty() || !is_name || !directory.is_absolute() {
        return None;
    }
    let text = String::from_utf8(files::read(&directory.join(name)).ok()?).ok()?;
    Some(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_a_file_by_the_variable_s_name_without_its_last_line_break() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("TOKEN"), "of the operators\r\n").unwrap();
        std::fs::write(directory.path().join("BINARY"), [0xff, 0xfe]).unwrap();
        let of = |name: &str| credential(directory.path(), name);
        assert_eq!(of("TOKEN").as_deref(), Some("of the operators"));
        assert_eq!([of("BINARY"), of("OTHER"), of("")], [None, None, None]);
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("TOKEN"), "outside").unwrap();
        let inside = outside.path().join("credentials");
        std::fs::create_dir(&inside).unwrap();
        let absolute = outside.path().join("TOKEN").display().to_string();
        for name in ["../TOKEN", "./../TOKEN", "..", ".", absolute.as_str()] {
            assert_eq!(credential(&inside, name), None, "{name}");
        }
        assert_eq!(
            credential(Path::new("src"), "TOKEN"),
            None,
            "of a directory that is named in full"
        );
    }

    #[test]
    fn the_environment_comes_first() {
        assert_eq!(variable("CARGO_PKG_NAME"), std::env::var("CARGO_PKG_NAME").ok());
        assert_eq!(variable("QUORUMGATE_TEST_UNSET"), None);
    }
}
