//! The lists of statuses: what a level of the configuration changes about those it inherits.
//!
//! A list replaces the inherited list of its name. A status that it claims leaves the inherited lists of
//! the other classes, so that one line moves a status; two lists of one level that claim it contradict
//! each other. A status of the default lists that no list names goes back to where it stands by
//! default: whoever adds 503 to the capacity list does not want to hear nothing of 429 any more.
//!
//! Invariants: in what is returned a status is in one class at most, and each of the default lists in
//! exactly one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::config::error::ConfigError;
use crate::config::file::{CircuitSection, CodeList, Given};
use crate::config::scalar::whole;
use crate::config::section::Section;
use crate::config::{STATUS_CODES_MAX, StatusClass, StatusCodes};

/// The statuses that may be classified; a success is one by its content.
const CODES: RangeInclusive<u16> = 400..=599;

/// Statuses that this level has put into a list, and into which.
type Claimed = BTreeMap<u16, &'static str>;

/// Puts the lists of `raw` on top of `inherited`.
///
/// # Errors
/// An entry is no such status, stands twice, or stands in the lists of two classes.
pub(super) fn overlay(
    section: &Section<'_>,
    raw: &CircuitSection,
    inherited: &StatusCodes,
) -> Result<StatusCodes, ConfigError> {
    let classes: [(&'static str, &Given<CodeList>, &Vec<u16>); 4] = [
        ("fault_status_codes", &raw.fault_status_codes, &inherited.fault),
        ("neutral_status_codes", &raw.neutral_status_codes, &inherited.neutral),
        ("capacity_status_codes", &raw.capacity_status_codes, &inherited.capacity),
        ("credential_status_codes", &raw.credential_status_codes, &inherited.credential),
    ];
    let mut claimed = Claimed::new();
    let mut written: [Option<Vec<u16>>; 4] = Default::default();
    for (list, (key, given, _)) in written.iter_mut().zip(&classes) {
        *list = read(section, key, given, &mut claimed)?;
    }
    let mut lists = written.into_iter().zip(classes).map(|(written, (_, _, inherited))| {
        let unclaimed = |code: &u16| !claimed.contains_key(code);
        written.unwrap_or_else(|| inherited.iter().copied().filter(unclaimed).collect())
    });
    let mut next = || lists.next().unwrap_or_default();
    let (fault, neutral, mut capacity, mut credential) = (next(), next(), next(), next());
    let named = [&fault, &neutral, &capacity, &credential].into_iter().flatten();
    let named: BTreeSet<u16> = named.copied().collect();
    let table = StatusCodes::default();
    capacity.extend(table.capacity.iter().filter(|code| !named.contains(code)));
    credential.extend(table.credential.iter().filter(|code| !named.contains(code)));
    let pause = read(section, "pause_status_codes", &raw.pause_status_codes, &mut Claimed::new())?;
    let is_pause_written = pause.is_some();
    let pause = pause.unwrap_or_else(|| inherited.pause.clone());
    let codes = StatusCodes { fault, neutral, capacity, credential, pause };
    if is_pause_written {
        pauses_are_faults(section, raw, &codes)?;
    }
    too_many(section, raw, &codes)?;
    Ok(codes)
}

/// Refuses a pause after a status that is no fault: it would never be asked for.
fn pauses_are_faults(
    section: &Section<'_>,
    raw: &CircuitSection,
    codes: &StatusCodes,
) -> Result<(), ConfigError> {
    let entries = raw.pause_status_codes.entries();
    for (index, (code, entry)) in codes.pause.iter().zip(entries).enumerate() {
        let problem = match codes.class(*code) {
            StatusClass::Fault => continue,
            StatusClass::Capacity => format!("{code} is no fault and has its pause already"),
            StatusClass::Credential => format!("{code} is no fault and has a pause of its own"),
            StatusClass::Neutral => format!("{code} is no fault and is passed on as it is"),
        };
        let key = format!("pause_status_codes[{index}]");
        let cure = "remove it, or name it in fault_status_codes";
        return Err(section.refuse(&key, Some(entry.place), &problem, cure));
    }
    Ok(())
}

/// Refuses a list that is too long with the statuses that went back to it.
fn too_many(
    section: &Section<'_>,
    raw: &CircuitSection,
    codes: &StatusCodes,
) -> Result<(), ConfigError> {
    let lists = [
        ("capacity_status_codes", &raw.capacity_status_codes, &codes.capacity),
        ("credential_status_codes", &raw.credential_status_codes, &codes.credential),
    ];
    for (key, given, list) in lists {
        if list.len() > STATUS_CODES_MAX {
            let problem = format!("with those that no list names these are {}", list.len());
            let cure = format!("use at most {STATUS_CODES_MAX}");
            return Err(section.refuse(key, given.place(), &problem, &cure));
        }
    }
    Ok(())
}

/// Reads one list; `None` if it is left out.
fn read(
    section: &Section<'_>,
    key: &'static str,
    given: &Given<CodeList>,
    claimed: &mut Claimed,
) -> Result<Option<Vec<u16>>, ConfigError> {
    if given.get().is_none() {
        return Ok(None);
    }
    let mut codes = Vec::new();
    for (index, entry) in given.entries().iter().enumerate() {
        let code = section.entry(key, index, entry, |text| whole(text, CODES))?;
        if let Some(other) = claimed.insert(code, key) {
            let problem = format!("{code} stands in {other} already");
            let cure = "keep it in the one list that says what it means";
            return Err(section.refuse(
                &format!("{key}[{index}]"),
                Some(entry.place),
                &problem,
                cure,
            ));
        }
        codes.push(code);
    }
    Ok(Some(codes))
}
