//! What follows when a connection could not be accepted: the loop goes on, it does not spin, and it says
//! so in few words.
//!
//! Linux hands to `accept` what has befallen one connection while it waited (accept(2), "Error
//! handling"): the next may be well, and is asked for at once. Where files or memory are wanting, the
//! connection stays in the queue and the next call fails the same way: a pause leaves the thread to those
//! who are being served, until one of them leaves. Nothing that a client or the machine does ends a
//! listener.

use std::io;
use std::time::Duration;

use metrics::Counter;
use rustix::io::Errno;
use tokio::time::Instant;

use crate::clock;
use crate::metrics::Meters;

/// What is wanting is not there at once: 20 looks a second take next to nothing of a core.
const PAUSE: Duration = Duration::from_millis(50);
/// After so many connections in a row that were gone before they were accepted there is a pause as well.
const GONE_MAX: u32 = 64;
/// Of one kind of trouble a line is written so often at most.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Why a connection was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It is gone, or not allowed: the next one may be well.
    Gone,
    /// Files, buffers or memory are wanting.
    Scarce,
    /// It should not be. There is nothing better to do than to try again.
    Strange,
}

impl Trouble {
    fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Self::Scarce,
            Some(
                Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::PERM
                | Errno::PROTO
                | Errno::INTR
                | Errno::AGAIN
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NOPROTOOPT
                | Errno::TIMEDOUT,
            ) => Self::Gone,
            Some(_) | None => Self::Strange,
        }
    }
}

/// One listener's troubles.
pub(crate) struct Troubles {
    /// Whose listener it is.
    who: &'static str,
    gone: Counter,
    scarce: Counter,
    other: Counter,
    /// Connections in a row that were gone.
    gone_in_a_row: u32,
    /// Failures since a line was written.
    untold: u64,
    told_at: Option<Instant>,
}

impl Troubles {
    /// Those of the listener for `who`, counted in `meters`.
    pub(crate) fn new(who: &'static str, meters: &Meters) -> Self {
        let count = |reason| {
            meters.counter("accept_errors_total", &[("listener", who), ("reason", reason)])
        };
        Self {
            who,
            gone: count("gone"),
            scarce: count("scarce"),
            other: count("other"),
            gone_in_a_row: 0,
            untold: 0,
            told_at: None,
        }
    }

    /// A connection was accepted.
    pub(crate) fn over(&mut self) {
        self.gone_in_a_row = 0;
    }

    /// A connection was not accepted. Returns how long to wait before the next one is asked for.
    pub(crate) fn failed(&mut self, error: &io::Error) -> Duration {
        let trouble = Trouble::of(error);
        match trouble {
            Trouble::Gone => self.gone.increment(1),
            Trouble::Scarce => self.scarce.increment(1),
            Trouble::Strange => self.other.increment(1),
        }
        if trouble == Trouble::Gone {
            self.gone_in_a_row += 1;
            if self.gone_in_a_row < GONE_MAX {
                return Duration::ZERO;
            }
            self.gone_in_a_row = 0;
            return PAUSE;
        }
        self.untold += 1;
        let now = clock::instant();
        if self.told_at.is_none_or(|told| now >= told + TOLD_EVERY) {
            let (listener, times) = (self.who, self.untold);
            tracing::warn!(listener, times, %error, "connections wait to be accepted");
            (self.untold, self.told_at) = (0, Some(now));
        }
        PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn troubles() -> Troubles {
        Troubles::new("clients", &Meters::new())
    }

    #[test]
    fn x02_what_befell_one_connection_does_not_hold_up_the_next() {
        let mut troubles = troubles();
        let gone =
            [Errno::CONNABORTED, Errno::CONNRESET, Errno::PERM, Errno::PROTO, Errno::NETDOWN];
        for errno in gone {
            assert_eq!(troubles.failed(&errno.into()), Duration::ZERO, "{errno}");
        }
        // Not even a thousand of them, if others come between.
        for _ in 0..1_000 {
            assert_eq!(troubles.failed(&Errno::CONNABORTED.into()), Duration::ZERO);
            troubles.over();
        }
    }

    #[test]
    fn x02_nothing_makes_the_loop_spin() {
        let mut troubles = troubles();
        let all = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::BADF,
            Errno::INVAL,
            Errno::CONNABORTED,
            Errno::PERM,
        ];
        for errno in all {
            let waited: Duration = (0..640).map(|_| troubles.failed(&errno.into())).sum();
            assert!(waited >= PAUSE * 10, "{errno}: {waited:?}");
        }
        let waited: Duration =
            (0..640).map(|_| troubles.failed(&io::ErrorKind::Other.into())).sum();
        assert_eq!(waited, PAUSE * 640);
    }

    #[test]
    fn x01_files_that_are_wanting_are_waited_for() {
        let mut troubles = troubles();
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(troubles.failed(&errno.into()), PAUSE, "{errno}");
        }
        assert_eq!(troubles.untold, 3, "one line for all of them");
    }
}
