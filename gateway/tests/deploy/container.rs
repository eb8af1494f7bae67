//! The image's file tree run as an engine would run it, without an engine.
//!
//! A command changes into the tree, which is mounted read-only with its volumes, as user 65532 without any
//! right, and becomes the binary; there is no /proc inside. To be used where mounts are the test's own, see
//! `netns/apart.rs`.
//!
//! Invariant: the user is another in the kernel's eyes where the test is root; where it is only root of a
//! namespace of its own, which has no second user, a namespace inside maps the number.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::BINARY;
use crate::{python, repository};

/// Who a gateway is in its image.
pub(crate) const USER: u32 = 65_532;

/// Arguments: the tree, then for each volume ro or rw, where it is, and where it goes; --, the command.
const ENTER: &str = r#"
set -eu
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
while [ "$1" != -- ]; do
  mount --bind "$2" "$root$3"
  if [ "$1" = ro ]; then mount -o remount,bind,ro "$root$3"; fi
  shift 3
done
shift
if setpriv --reuid 65532 --regid 65532 --clear-groups true 2>/dev/null; then
  exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups= "$root" "$@"
fi
exec setpriv --no-new-privs unshare --user --map-user=65532 --map-group=65532 --root="$root" "$@"
"#;

/// The tree, and what is mounted into it.
pub(crate) struct Container<'a> {
    tree: &'a Path,
    volumes: Vec<[String; 3]>,
    variables: Vec<(String, String)>,
}

impl<'a> Container<'a> {
    pub(crate) fn new(tree: &'a Path) -> Self {
        Self { tree, volumes: Vec::new(), variables: Vec::new() }
    }

    /// Mounts `from` at `to`; it must be in the tree, or in what is mounted already.
    pub(crate) fn mount(mut self, from: &Path, to: &str, is_writable: bool) -> Self {
        let mode = if is_writable { "rw" } else { "ro" };
        self.volumes.push([mode.to_owned(), from.display().to_string(), to.to_owned()]);
        self
    }

    /// Gives it a variable; there are no others.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A command that becomes the binary with these arguments; `by` becomes what it is given.
    pub(crate) fn command(&self, mut by: Command, arguments: &[&str]) -> Command {
        by.args(["--mount", "sh", "-c", ENTER, "enter"]).arg(self.tree);
        by.args(self.volumes.iter().flatten()).arg("--").arg("/usr/bin/quorumgate").args(arguments);
        by.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        by.envs(self.variables.iter().map(|(name, value)| (name, value)));
        by
    }
}

/// Lays out the tree with the binary of this test, below `directory`.
pub(crate) fn assemble(directory: &Path) -> PathBuf {
    let tree = directory.join("tree");
    let mut script = Command::new("sh");
    script.arg(repository("deploy/image/assemble.sh")).arg(&tree).arg(BINARY);
    python::run("assemble.sh", &mut script);
    tree
}

/// A directory that an engine would make for a volume: it belongs to whom the image's one does.
pub(crate) fn volume(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir(&path).unwrap();
    // Who is not root has no other user to give it to, and runs the binary as itself.
    let _ = chown(&path, Some(USER), Some(USER));
    fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
    path
}

/// A directory with these files, which everybody may read.
pub(crate) fn readable(directory: &Path, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    for (file, text) in files {
        fs::write(path.join(file), text).unwrap();
        fs::set_permissions(path.join(file), Permissions::from_mode(0o644)).unwrap();
    }
    path
}
