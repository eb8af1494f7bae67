//! How many files and sockets the process may have open at once.
//!
//! A stream takes two sockets, and the limit that a shell or a service manager gives by default is
//! often 1,024: 500 streams. The limit that counts is the hard one; the soft one beside it stands for
//! programs that cannot cope with high numbers, which this one can.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, and says in the log what it is then. Where it
/// cannot be raised the process goes on with what it has.
pub fn raise() {
    let found = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found });
    let limit = getrlimit(Resource::Nofile).current;
    match raised {
        Ok(()) => tracing::info!(before = found.current, limit, "open files"),
        Err(error) => tracing::warn!(%error, limit, "the limit of open files cannot be raised"),
    }
}
