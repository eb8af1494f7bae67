//! `limits`, of a caller, of a model or of an endpoint: the same three figures everywhere.
//!
//! A limit of nothing would be a way to switch something off that nobody finds again, and a section
//! without a figure looks like a limit and is none. Both are refused.
//!
//! Invariants: a figure that is set admits at least one.

use std::ops::RangeInclusive;

use crate::config::Limits;
use crate::config::error::ConfigError;
use crate::config::file::{Given, LimitsSection};
use crate::config::scalar::whole;
use crate::config::section::Section;

/// More requests in a minute than one node will ever see.
const RPM: RangeInclusive<u64> = 1..=1_000_000_000;
/// A thousand tokens for each of them.
const TPM: RangeInclusive<u64> = 1..=1_000_000_000_000;
/// More than a node has connections.
const CONCURRENCY: RangeInclusive<u32> = 1..=1_000_000;

/// Reads `limits` of `level`; none where it is left out.
///
/// # Errors
/// A figure is out of its range, or there is none.
pub(super) fn limits(
    level: &Section<'_>,
    given: &Given<LimitsSection>,
) -> Result<Limits, ConfigError> {
    let Some(raw) = given.get() else {
        return Ok(Limits::default());
    };
    let section = level.child("limits", given);
    let limits = Limits {
        rpm: section.optional("rpm", &raw.rpm, |text| whole(text, RPM))?,
        tpm: section.optional("tpm", &raw.tpm, |text| whole(text, TPM))?,
        concurrency: section
            .optional("concurrency", &raw.concurrency, |text| whole(text, CONCURRENCY))?,
    };
    if limits == Limits::default() {
        let cure = "name rpm, tpm or concurrency, or remove the section";
        return Err(section.refuse("", None, "it limits nothing", cure));
    }
    Ok(limits)
}
