//! The only reader of the clock: monotonic time since the process first asked.
//!
//! Every rule takes `now` as an argument; whatever runs in the process takes it from here, so that
//! all parts speak of the same moments.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A process that is later than this is too slow to judge others.
pub const LAG_MAX: Duration = Duration::from_millis(250);

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Time since the process first asked for it. Never runs back.
pub fn now() -> Duration {
    ORIGIN.get_or_init(Instant::now).elapsed()
}

/// The same moment as the runtime counts it, for its deadlines.
pub fn instant() -> Instant {
    Instant::now()
}

/// Whether a timer that was due at `due` has fired so late that this process itself is the slow one:
/// then nothing that it measured speaks against an endpoint.
pub fn is_late(due: Instant) -> bool {
    instant() > due + LAG_MAX
}

/// What the wall clock showed at the moment `at`, in milliseconds since 1970, for people.
pub fn wall_millis_at(at: Duration) -> u64 {
    let passed = u64::try_from(now().saturating_sub(at).as_millis()).unwrap_or(u64::MAX);
    wall_millis().saturating_sub(passed)
}

/// The wall clock in milliseconds since 1970, for names and logs only: nothing is decided by it.
pub fn wall_millis() -> u64 {
    u64::try_from(wall().as_millis()).unwrap_or(u64::MAX)
}

/// The wall clock as time since 1970, to read the dates of others by.
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
