//! Throw-away Python environments below the target directory, with pinned packages in them.
//!
//! A checker of others is used at one version, so that the same sources are judged alike everywhere. An
//! environment is kept until its pins or the Python change; python3 with venv and its package index are
//! needed.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// What helps where Python cannot be run.
pub(crate) const CURE: &str = "install python3 with venv";

/// Environments are looked at and made one at a time: two tests may ask for the same.
static MAKING: Mutex<()> = Mutex::new(());

/// The environment `name` with the packages that `pins` names, in the words of a requirements file.
pub(crate) fn environment(name: &str, pins: &str) -> PathBuf {
    let _turn = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let which = "import sys; print(sys.version, sys.executable)";
    let made_of = run("python3", Command::new("python3").args(["-c", which])) + pins;
    let stamp = directory.join("made-of");
    if fs::read_to_string(&stamp).is_ok_and(|known| known == made_of) {
        return directory;
    }
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let listed = directory.join("requirements.txt");
    fs::write(&listed, pins).unwrap();
    run("venv", Command::new("python3").args(["-m", "venv"]).arg(&directory));
    let mut install = Command::new(directory.join("bin/python"));
    run("pip install", install.args(["-m", "pip", "install", "--quiet", "-r"]).arg(listed));
    fs::write(stamp, made_of).unwrap();
    directory
}

/// Runs a command to its end; what it printed.
pub(crate) fn run(what: &str, command: &mut Command) -> String {
    let output = command.output();
    let Ok(output) = output else { panic!("{what}: {output:?}; {CURE}") };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}
