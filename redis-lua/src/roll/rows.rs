//! The roll as Redis holds it: its keys, and what its scripts answer.
//!
//! # Invariants
//! - Whatever stands in Redis was written by somebody: a row is read strictly, and one that cannot be
//!   read is left out and counted.
//! - All keys of the roll are in one slot.

use std::sync::Arc;

use quorum::NodeId;
use redis::Value;

use super::{ADDRESS_BYTES_MAX, SAID_BYTES_MAX};
use crate::error::Trouble;
use crate::keys::Keys;
use crate::ledger::is_name;
use crate::script::Script;

/// Writes a member's own row.
pub(super) static BEAT: Script = Script::new("roll_beat", include_str!("../../lua/roll_beat.lua"));

/// Reads what has changed.
pub(super) static READ: Script = Script::new("roll_read", include_str!("../../lua/roll_read.lua"));

/// Whole numbers are exact in Lua up to here.
pub(super) const NUMBER_MAX: u64 = (1 << 53) - 1;

/// No number has more digits.
const DIGITS_MAX: usize = 16;

/// What became of a beat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Beaten {
    /// It is written.
    Done {
        /// The mark of what this member says.
        mark: u64,
        /// Whether nobody could have known this life to be alive.
        is_new: bool,
    },
    /// What this member has said is to be sent whole.
    Whole,
    /// A later life has the row.
    Younger {
        /// Whether it is alive.
        is_alive: bool,
        /// What it gives as its address.
        address: String,
        /// Its generation.
        generation: u64,
    },
    /// There are as many members as there may be.
    Full,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: NodeId,
    pub(super) generation: u64,
    pub(super) nonce: u64,
    /// The number of the change that what it says came with.
    pub(super) mark: u64,
    pub(super) pulse: u64,
    pub(super) address: String,
    /// What it says; `None`: what it said by `mark` is known to the reader.
    pub(super) said: Option<Arc<[u8]>>,
    pub(super) is_alive: bool,
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The server's moment, in milliseconds.
    pub(super) at_ms: u64,
    /// The number of the last change in it.
    pub(super) change: u64,
    /// Whether there is more to be read.
    pub(super) has_more: bool,
    /// Whether it begins with the first of all rows.
    pub(super) is_from_start: bool,
    /// Whose lease has ended.
    pub(super) over: Vec<NodeId>,
    pub(super) rows: Vec<Row>,
    /// Rows that cannot be read.
    pub(super) ignored: u64,
}

/// The keys of the roll of a fleet.
pub(super) fn of_fleet(prefix: &str, cluster_id: &str) -> Vec<String> {
    let keys = Keys::new(prefix);
    let tag = format!("fleet/{cluster_id}");
    ["members", "said", "leases", "changes"].map(|part| keys.tagged(&tag, part)).into()
}

/// Reads the answer to a beat.
///
/// # Errors
/// If it is none.
pub(super) fn beaten(value: Value) -> Result<Beaten, Trouble> {
    let parts = list(value)?;
    let mut parts = parts.into_iter();
    let mut next = || parts.next().ok_or(Trouble::Wrong("a beat's answer is cut"));
    match bytes(next()?)?.as_slice() {
        b"done" => Ok(Beaten::Done { mark: number(&bytes(next()?)?)?, is_new: flag(&next()?)? }),
        b"whole" => Ok(Beaten::Whole),
        b"younger" => {
            let is_alive = flag(&next()?)?;
            let address = address(bytes(next()?)?).unwrap_or_default();
            let generation = number(&bytes(next()?)?)?;
            Ok(Beaten::Younger { is_alive, address, generation })
        }
        b"full" => Ok(Beaten::Full),
        _ => Err(Trouble::Wrong("a beat's answer is none")),
    }
}

/// Reads what has changed. Rows that cannot be read are left out.
///
/// # Errors
/// If it is no answer of the script.
pub(super) fn page(value: Value) -> Result<Page, Trouble> {
    let parts: [Value; 6] =
        list(value)?.try_into().map_err(|_| Trouble::Wrong("a page of the roll is cut"))?;
    let [at_ms, change, has_more, is_from_start, over, rows] = parts;
    let mut page = Page {
        at_ms: number(&bytes(at_ms)?)?,
        change: number(&bytes(change)?)?,
        has_more: flag(&has_more)?,
        is_from_start: flag(&is_from_start)?,
        ..Page::default()
    };
    for one in list(over)? {
        match name(one) {
            Some(id) => page.over.push(id),
            None => page.ignored += 1,
        }
    }
    let mut rows = list(rows)?.into_iter();
    while let Some(first) = rows.next() {
        let mut next = || rows.next().ok_or(Trouble::Wrong("a row of the roll is cut"));
        let (text, said, is_alive) = (next()?, next()?, flag(&next()?)?);
        match row(first, text, said, is_alive) {
            Some(row) => page.rows.push(row),
            None => page.ignored += 1,
        }
    }
    Ok(page)
}

/// Reads one row; `None`: it is none that we wrote.
fn row(id: Value, text: Value, said: Value, is_alive: bool) -> Option<Row> {
    let id = name(id)?;
    let text = String::from_utf8(bytes(text).ok()?).ok()?;
    let mut words = text.split(' ');
    if words.next() != Some("1") {
        return None;
    }
    let mut next = || number(words.next()?.as_bytes()).ok();
    let (generation, nonce, mark, pulse) = (next()?, next()?, next()?, next()?);
    let address = address(words.next()?.into())?;
    let said = match said {
        Value::Nil => None,
        said => Some(bytes(said).ok().filter(|said| said.len() <= SAID_BYTES_MAX)?.into()),
    };
    let is_whole = words.next().is_none() && generation > 0;
    is_whole.then_some(Row { id, generation, nonce, mark, pulse, address, said, is_alive })
}

fn list(value: Value) -> Result<Vec<Value>, Trouble> {
    match value {
        Value::Array(parts) => Ok(parts),
        _ => Err(Trouble::Wrong("no list where one should be")),
    }
}

fn bytes(value: Value) -> Result<Vec<u8>, Trouble> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(Trouble::Wrong("no text where some should be")),
    }
}

fn flag(value: &Value) -> Result<bool, Trouble> {
    match value {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(Trouble::Wrong("no yes or no where one should be")),
    }
}

/// A whole number without a sign, of no more digits than Lua knows exactly.
fn number(text: &[u8]) -> Result<u64, Trouble> {
    let wrong = Trouble::Wrong("no whole number where one should be");
    let is_plain = (1..=DIGITS_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_plain).ok_or(wrong)?;
    text.parse().ok().filter(|number| *number <= NUMBER_MAX).ok_or(wrong)
}

fn name(value: Value) -> Option<NodeId> {
    let text = String::from_utf8(bytes(value).ok()?).ok()?;
    // A member whose name the ledger cannot keep could never be heard there.
    is_name(&text).then(|| NodeId::new(&text))
}

fn address(text: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(text).ok()?;
    is_address(&text).then_some(text)
}

/// Whether it may be an address, which is one word of a row.
pub(super) fn is_address(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:[]-".contains(&byte);
    text.len() <= ADDRESS_BYTES_MAX && text.bytes().all(is_plain)
}

#[cfg(any(test, feature = "fuzzing"))]
/// Whatever the answer is, what is read of it is within the bounds of a row, and no row is lost
/// uncounted.
pub(crate) fn promise(value: Value) {
    if let Ok(Beaten::Younger { address, generation, .. }) = beaten(value.clone()) {
        assert!(is_address(&address) && generation <= NUMBER_MAX);
    }
    let parts = list(value.clone()).unwrap_or_default();
    let Ok(page) = page(value) else { return };
    let given = |part: Option<&Value>, each: usize| match part {
        Some(Value::Array(items)) => items.len() / each,
        _ => 0,
    };
    let given = given(parts.get(4), 1) as u64 + given(parts.get(5), 4) as u64;
    assert_eq!((page.over.len() + page.rows.len()) as u64 + page.ignored, given);
    for row in &page.rows {
        let numbers = [row.generation, row.nonce, row.mark, row.pulse];
        assert!(numbers.iter().all(|number| *number <= NUMBER_MAX) && row.generation > 0);
        assert!(is_name(row.id.as_str()) && is_address(&row.address));
        assert!(row.said.as_ref().is_none_or(|said| said.len() <= SAID_BYTES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn answer(over: Vec<Value>, rows: Vec<Value>) -> Value {
        let list = Value::Array;
        let flags = [Value::Int(0), Value::Int(1)];
        let [more, start] = flags;
        list(vec![text("1700"), text("12"), more, start, list(over), list(rows)])
    }

    #[test]
    fn every_key_has_the_tag_of_its_fleet() {
        let keys = of_fleet("quorumgate", "a{b} c%");
        assert_eq!(keys[0], "quorumgate{fleet/a%7Bb%7D%20c%25}:members");
        let slot = crate::slot::of(keys[0].as_bytes());
        assert!(keys.iter().all(|key| crate::slot::of(key.as_bytes()) == slot));
    }

    #[test]
    fn a_row_is_read() {
        let rows = vec![text("gw-1"), text("1 7 3 9 2 10.0.0.1:8080"), text("said"), Value::Int(1)];
        let page = page(answer(vec![text("gw-2")], rows)).unwrap();
        assert_eq!((page.at_ms, page.change, page.has_more), (1_700, 12, false));
        assert!(page.is_from_start);
        assert_eq!(page.over, [NodeId::new("gw-2")]);
        let row = &page.rows[0];
        assert_eq!((row.generation, row.nonce, row.mark, row.pulse), (7, 3, 9, 2));
        assert_eq!(
            (row.address.as_str(), row.said.as_deref()),
            ("10.0.0.1:8080", Some(&b"said"[..]))
        );
    }

    #[test]
    fn a_row_that_we_did_not_write_is_left_out() {
        for unfit in [
            "",
            "1",
            "2 7 3 9 2 a",
            "1 7 3 9 2",
            "1 0 3 9 2 a",
            "1 7 3 9 2 a b",
            "1 -7 3 9 2 a",
            "1 7 3 9 2 a;b",
            "1 9007199254740992 3 9 2 a",
            "1 99999999999999999999 3 9 2 a",
            "1 7 3 9 1e3 a",
            "return redis.call('FLUSHALL')",
        ] {
            let rows = vec![
                text("gw-1"),
                text(unfit),
                Value::Nil,
                Value::Int(1),
                text("gw-2"),
                text("1 7 3 9 2 a"),
                Value::Nil,
                Value::Int(0),
            ];
            let page = page(answer(Vec::new(), rows)).unwrap();
            assert_eq!((page.rows.len(), page.ignored), (1, 1), "{unfit:?}");
        }
        let long = "n".repeat(super::super::NAME_BYTES_MAX + 1);
        for unfit in ["", "a b", "a\n", "gw/1", "gw;1", "gwä", long.as_str()] {
            let rows = vec![text(unfit), text("1 7 3 9 2 a"), Value::Nil, Value::Int(1)];
            assert_eq!(page(answer(vec![text(unfit)], rows)).unwrap().ignored, 2, "{unfit:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for unfit in [Value::Nil, Value::Int(1), text("no"), Value::Array(vec![text("done")])] {
            assert!(page(unfit.clone()).is_err());
            assert!(beaten(unfit).is_err());
        }
        let younger =
            Value::Array(vec![text("younger"), Value::Int(1), text("evil text\n"), text("7")]);
        let (is_alive, address, generation) = (true, String::new(), 7);
        assert_eq!(beaten(younger), Ok(Beaten::Younger { is_alive, address, generation }));
    }
}
