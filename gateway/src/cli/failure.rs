//! How a command ends when it does not succeed: a line that says what to do, and an exit code.
//!
//! The codes are those of `sysexits.h`, so that a script can tell a slip of the pen from a gateway
//! that is not there, and both from one that refuses.

use gateway::people::chain;

/// The command or the configuration is wrong (EX_USAGE).
pub(super) const WRONG_USAGE: u8 = 64;
/// The admin API refuses: there is no such thing, or it cannot be done as things stand (EX_DATAERR).
pub(super) const REFUSED: u8 = 65;
/// Something needed is not there, a port or a gateway for example (EX_UNAVAILABLE).
pub(super) const UNAVAILABLE: u8 = 69;
/// The demo's story did not go as told (EX_SOFTWARE).
pub(super) const STORY_FAILED: u8 = 70;
/// The token is missing, wrong, or for looking only (EX_NOPERM).
pub(super) const NOT_ALLOWED: u8 = 77;
/// A second SIGINT ended a drain at once: 128 and its number.
pub(super) const INTERRUPTED: u8 = 130;
/// A second SIGTERM ended a drain at once: 128 and its number.
pub(super) const TERMINATED: u8 = 143;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Failure {
    /// The exit code.
    pub(super) code: u8,
    /// What, where, and what to do; it becomes one line.
    pub(super) message: String,
    /// The word that the admin API refuses with; empty where it was not asked.
    pub(super) word: String,
}

impl Failure {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), word: String::new() }
    }

    /// The same with the admin API's word for it.
    pub(super) fn word(self, word: &str) -> Self {
        Self { word: word.to_owned(), ..self }
    }

    /// The command or the configuration is wrong.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(WRONG_USAGE, message)
    }

    /// The admin API refuses.
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self::new(REFUSED, message)
    }

    /// Something needed is not there.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(UNAVAILABLE, message)
    }

    /// Something needed is not there: an error with its causes, and what to do about it.
    pub(super) fn cured(error: &dyn std::error::Error, cure: &str) -> Self {
        let joint = if cure.is_empty() { "" } else { "; " };
        Self::unavailable(format!("{}{joint}{cure}", chain(error)))
    }

    /// The token does not allow it.
    pub(super) fn not_allowed(message: impl Into<String>) -> Self {
        Self::new(NOT_ALLOWED, message)
    }

    /// A second signal ended a drain at once.
    pub(super) fn hurried(code: u8) -> Self {
        Self::new(code, "a second signal: whatever was not finished was cut")
    }

    /// The demo's story did not go as told.
    pub(super) fn story(message: impl Into<String>) -> Self {
        Self::new(STORY_FAILED, message)
    }
}
