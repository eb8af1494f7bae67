//! What a variable of a configuration holds: in the environment of the process, or else in a file of the
//! directory of credentials.
//!
//! A service manager that keeps secrets out of environments, where a crash report or a child may show
//! them, puts each into a file of its own and names the directory: systemd's `LoadCredential=` does so by
//! `CREDENTIALS_DIRECTORY`, and what a container engine mounts below `/run/secrets` is read as well when
//! that variable says so. The file bears the variable's name; a reload reads it again.
//!
//! A file that is there and cannot be read is not a variable that is unset: a default in its place would
//! run a gateway with another secret than was given, and say nothing.
//!
//! Invariants: only a name that can be a variable's is looked for, so that no text leads out of the
//! directory; the line break that editors leave at the end is no part of a value.

use std::env::VarError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::files;

/// What names the directory.
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// Whoever knows what a variable holds, or why that is not known.
pub(crate) type Look<'a> = dyn Fn(&str) -> Result<String, Missing> + 'a;

/// Why nobody knows what a variable holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is not set.
    Unset,
    /// Nor is there a file of its name in this directory.
    NoFile(PathBuf),
    /// The environment or the file has something that is no text, or that may not be read.
    Unreadable {
        /// Continues "the variable …".
        problem: String,
        /// What to do.
        cure: &'static str,
    },
}

/// What the variable `name` holds. May read a file.
///
/// # Errors
/// Nothing is known of it, or what is there cannot be read.
pub(crate) fn variable(name: &str) -> Result<String, Missing> {
    match std::env::var(name) {
        Ok(value) => Ok(value),
        Err(VarError::NotUnicode(_)) => Err(Missing::Unreadable {
            problem: "which is not UTF-8 text".to_owned(),
            cure: "set it to text",
        }),
        Err(VarError::NotPresent) => match std::env::var_os(DIRECTORY) {
            Some(directory) => credential(Path::new(&directory), name),
            None => Err(Missing::Unset),
        },
    }
}

fn credential(directory: &Path, name: &str) -> Result<String, Missing> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if name.is_empty() || !is_name || !directory.is_absolute() {
        return Err(Missing::Unset);
    }
    let path = directory.join(name);
    let unreadable = |why: &str, cure| Missing::Unreadable {
        problem: format!("whose file {} cannot be read ({why})", path.display()),
        cure,
    };
    let bytes = files::read(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Missing::NoFile(directory.to_owned()),
        ErrorKind::PermissionDenied => {
            unreadable("permission denied", "give this process's user the right to read it")
        }
        ErrorKind::FileTooLarge => unreadable("too long", "keep the value alone in it"),
        _ => unreadable(&error.to_string(), "put a plain file there"),
    })?;
    let text =
        String::from_utf8(bytes).map_err(|_| unreadable("not UTF-8 text", "save it as UTF-8"))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_a_file_by_the_variable_s_name_without_its_last_line_break() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("TOKEN"), "of the operators\r\n").unwrap();
        let of = |name: &str| credential(directory.path(), name);
        assert_eq!(of("TOKEN").as_deref(), Ok("of the operators"));
        assert_eq!(of("OTHER"), Err(Missing::NoFile(directory.path().to_owned())));
        assert_eq!(of(""), Err(Missing::Unset));
        // Nobody has to make the directory for a gateway without secrets.
        let none = directory.path().join("none");
        assert_eq!(credential(&none, "TOKEN"), Err(Missing::NoFile(none.clone())));
    }

    #[test]
    fn what_is_there_and_cannot_be_read_is_not_unset() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("BINARY"), [0xff, 0xfe]).unwrap();
        std::fs::write(path("LONG"), vec![b'x'; 2 << 20]).unwrap();
        std::fs::create_dir(path("DIRECTORY")).unwrap();
        std::os::unix::fs::symlink(path("LOOP"), path("LOOP")).unwrap();
        for name in ["BINARY", "LONG", "DIRECTORY", "LOOP"] {
            match credential(directory.path(), name) {
                Err(Missing::Unreadable { problem, cure }) => {
                    let names_it = problem.contains(&path(name).display().to_string());
                    assert!(names_it && !cure.is_empty(), "{problem}; {cure}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("TOKEN"), "outside").unwrap();
        let inside = outside.path().join("credentials");
        std::fs::create_dir(&inside).unwrap();
        let absolute = outside.path().join("TOKEN").display().to_string();
        for name in ["../TOKEN", "./../TOKEN", "..", ".", absolute.as_str()] {
            assert_eq!(credential(&inside, name), Err(Missing::Unset), "{name}");
        }
        assert_eq!(
            credential(Path::new("src"), "TOKEN"),
            Err(Missing::Unset),
            "of a directory that is named in full"
        );
    }

    #[test]
    fn the_environment_comes_first() {
        assert_eq!(variable("CARGO_PKG_NAME").ok(), std::env::var("CARGO_PKG_NAME").ok());
        assert!(variable("QUORUMGATE_TEST_UNSET").is_err());
    }
}
