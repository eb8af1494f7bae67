//! The words a setting is written in: variables, durations, sizes, counts, names.
//!
//! These functions see one value at a time and know nothing of files; they say what is wrong with
//! a value without repeating it, because only the caller knows whether it may be shown.
//!
//! Invariants: no function here panics on any text; a refusal never contains the value; what
//! `duration_text` and `escape` write, `duration` and `expand` read back.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::MASK;
use super::form::Form;
use super::given::{Look, Missing};

/// Longest value of one setting after expansion, in bytes.
const VALUE_BYTES_MAX: usize = 4_096;
/// Longest piece of a value that an error repeats, in characters.
const SHOWN_CHARACTERS_MAX: usize = 64;

/// Why a value is refused and what to do; the key and the value are added by whoever knows them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Continues "the value …".
    pub(super) problem: String,
    /// What to do.
    pub(super) cure: String,
    /// What is taken instead, for the schema.
    pub(super) form: Form,
}

impl Refusal {
    pub(super) fn new(problem: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { problem: problem.into(), cure: cure.into(), form: Form::Text }
    }

    /// The same of a value that must have this form.
    pub(super) fn of(self, form: Form) -> Self {
        Self { form, ..self }
    }
}

/// Puts the values of `${NAME}` and `${NAME:-default}` in place; `$${` stands for a plain `${`.
///
/// # Errors
/// A variable is unset or empty, a reference is malformed, or the result is empty, too long or holds
/// a control character.
pub(super) fn expand(raw: &str, env: &Look<'_>) -> Result<String, Refusal> {
    let mut value = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(plain) = before.strip_suffix('$') {
            value.push_str(plain);
            value.push_str("${");
            rest = reference.get(2..).unwrap_or_default();
            continue;
        }
        value.push_str(before);
        let Some((inside, after)) = reference.get(2..).and_then(|tail| tail.split_once('}')) else {
            return Err(malformed());
        };
        value.push_str(&look_up(inside, env)?);
        rest = after;
    }
    value.push_str(rest);
    if value.is_empty() {
        return Err(Refusal::new("is empty", "give it a value or remove the key"));
    }
    if value.chars().any(char::is_control) {
        return Err(Refusal::new(
            "holds a line break or control character",
            "write it on a single line",
        ));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(Refusal::new(format!("is longer than {VALUE_BYTES_MAX} bytes"), "shorten it"));
    }
    Ok(value)
}

/// Writes `value` so that `expand` gives it back unchanged.
pub(super) fn escape(value: &str) -> String {
    value.replace("${", "$${")
}

fn malformed() -> Refusal {
    Refusal::new(
        "has a \"${\" that begins no variable",
        "write ${NAME} or ${NAME:-default}, or $${ for the two characters themselves",
    )
}

fn look_up(inside: &str, env: &Look<'_>) -> Result<String, Refusal> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_name = name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    let is_nested = default.is_some_and(|default| default.contains("${"));
    if !starts_well || !is_name || is_nested {
        return Err(malformed());
    }
    let refuse = |problem: &str, cure: String| {
        Err(Refusal::new(format!("uses the variable {name}, {problem}"), cure))
    };
    let value = match (env(name), default) {
        // A default is for what nobody has given, not for what was given and cannot be read.
        (Err(Missing::Unreadable { problem, cure }), _) => {
            return refuse(&problem, cure.to_owned());
        }
        (Ok(value), _) if !value.is_empty() => value,
        (_, Some(default)) => return Ok(default.to_owned()),
        (Ok(_), None) => return refuse("which is empty", format!("set {name} or remove the key")),
        (Err(Missing::Unset), None) => {
            return refuse("which is not set", format!("set {name} or write ${{{name}:-default}}"));
        }
        (Err(Missing::NoFile(directory)), None) => {
            let directory = directory.display();
            return refuse(
                &format!("which is not set and is no file in {directory}"),
                format!(
                    "set {name}, put its value into {directory}/{name}, or write ${{{name}:-default}}"
                ),
            );
        }
    };
    if value.chars().any(char::is_control) {
        return Err(Refusal::new(
            format!("uses the variable {name}, which holds a line break or control character"),
            format!("set {name} to a single line, without a line break at its end"),
        ));
    }
    Ok(value)
}

/// Puts `text` on one line: control characters become spaces.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|one| if is_breaking(one) { ' ' } else { one }).collect()
}

/// Quotes `text` for an error: on one line, cut to a readable length, and without what may be a secret:
/// what stands before an `@` or behind a `?` or `#`, where addresses carry passwords and keys, and whatever
/// looks like a key.
pub(super) fn shown(text: &str) -> String {
    let mut line = match one_line(text).rsplit_once('@') {
        Some((_, after)) => format!("{MASK}@{after}"),
        None => one_line(text),
    };
    if line.contains("://")
        && let Some(end) = line.find(['?', '#'])
    {
        line.truncate(end + 1);
        line.push_str(MASK);
    }
    if let Some(start) = line.find(KEY_BEGINS) {
        line.truncate(start);
        line.push_str(MASK);
    }
    match line.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("\"{}…\"", line.get(..end).unwrap_or_default()),
        None => format!("\"{line}\""),
    }
}

/// Whether a terminal or a log reader may take `one` for the end of a line.
fn is_breaking(one: char) -> bool {
    one.is_control() || one == '\u{2028}' || one == '\u{2029}'
}

/// How the keys of most providers begin.
pub(super) const KEY_BEGINS: &str = "sk-";

/// Milliseconds in each unit, the largest first, as they may follow each other.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads `45s`, `250ms`, `10m`, `1h` or `1m30s` within `range`.
///
/// # Errors
/// Anything else, or a value out of `range`.
pub(super) fn duration(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, Refusal> {
    let form = || Form::Duration(range.clone());
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare {
        return Err(Refusal::new("has no unit", "write 10s").of(form()));
    }
    let value = milliseconds(text)
        .map(Duration::from_millis)
        .ok_or_else(|| Refusal::new("is not a duration", "write 10s (or 250ms, 5m, 1m30s, 1h)"))
        .map_err(|refusal| refusal.of(form()))?;
    if range.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (duration_text(*range.start()), duration_text(*range.end()));
    Err(Refusal::new("is out of range", format!("use {least} to {most}")).of(form()))
}

fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    let mut units = UNITS.iter();
    if text.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|one: char| !one.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|one: char| !one.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at(letters);
        // Consuming the iterator keeps the units in order and each to one use.
        let (_, factor) = units.find(|(name, _)| *name == unit)?;
        let part = number.parse::<u64>().ok()?.checked_mul(*factor)?;
        total = total.checked_add(part)?;
        rest = after;
    }
    Some(total)
}

/// Writes a duration as `duration` reads it; anything below a millisecond is dropped.
pub(super) fn duration_text(value: Duration) -> String {
    let mut rest = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (name, factor) in UNITS {
        if rest >= factor {
            text.push_str(&format!("{}{name}", rest / factor));
            rest %= factor;
        }
    }
    text
}

/// Reads `10MiB`, `64KiB`, `1GiB` or plain bytes within `range`.
///
/// # Errors
/// Anything else, or a value out of `range`.
pub(super) fn size(text: &str, range: RangeInclusive<u64>) -> Result<u64, Refusal> {
    let digits = text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let value = number
        .parse::<u64>()
        .ok()
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| Refusal::new("is not a size", "write 10MiB (or 64KiB, or plain bytes)"))
        .map_err(|refusal| refusal.of(Form::Size(range.clone())))?;
    if range.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (size_text(*range.start()), size_text(*range.end()));
    Err(Refusal::new("is out of range", format!("use {least} to {most}")).of(Form::Size(range)))
}

/// Writes a size as `size` reads it, in the largest unit that loses nothing.
pub(super) fn size_text(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// Reads a whole number within `range`.
///
/// # Errors
/// Anything else, or a value out of `range`.
pub(super) fn whole<T>(text: &str, range: RangeInclusive<T>) -> Result<T, Refusal>
where
    T: FromStr + PartialOrd + Display,
{
    let (least, most) = (range.start(), range.end());
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let problem = if is_number { "is out of range" } else { "is not a whole number" };
    text.parse::<T>()
        .ok()
        .filter(|value| is_number && range.contains(value))
        .ok_or_else(|| Refusal::new(problem, format!("use {least} to {most}")))
        .map_err(|refusal| refusal.of(Form::whole(&range)))
}

/// Reads a number that may have a fraction.
///
/// # Errors
/// Anything else, infinities and not-a-number included.
pub(super) fn fraction(text: &str) -> Result<f64, Refusal> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
    text.parse::<f64>()
        .ok()
        .filter(|value| is_plain && value.is_finite())
        .ok_or_else(|| Refusal::new("is not a number", "write it like 0.5").of(Form::Fraction))
}

/// Reads `true` or `false`.
///
/// # Errors
/// Anything else.
pub(super) fn truth(text: &str) -> Result<bool, Refusal> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Refusal::new("is neither true nor false", "write one of them").of(Form::Truth)),
    }
}

/// Takes a name of 1 to `most` characters, each a letter, a digit or one of `marks`.
///
/// # Errors
/// The name is too long or holds another character.
pub(super) fn name(text: &str, most: usize, marks: &str) -> Result<String, Refusal> {
    let is_allowed = |one: char| one.is_ascii_alphanumeric() || marks.contains(one);
    if !text.is_empty() && text.len() <= most && text.chars().all(is_allowed) {
        return Ok(text.to_owned());
    }
    let cure = format!("use 1 to {most} letters, digits and {marks}");
    let form = Form::Name { most, marks: marks.to_owned() };
    Err(Refusal::new("is not a valid name", cure).of(form))
}

/// Takes a value that can be shown as a credential in a header.
///
/// # Errors
/// It holds a space or anything but visible ASCII.
pub(super) fn credential(text: &str) -> Result<String, Refusal> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        "holds a space or a character outside ASCII",
        "check how the secret was copied",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: RangeInclusive<Duration> = Duration::ZERO..=Duration::MAX;

    #[test]
    fn a_duration_is_a_number_and_its_unit() {
        let read = |text| duration(text, ANY).map(|value| value.as_millis());
        assert_eq!(read("250ms"), Ok(250));
        assert_eq!(read("45s"), Ok(45_000));
        assert_eq!(read("10m"), Ok(600_000));
        assert_eq!(read("1h"), Ok(3_600_000));
        assert_eq!(read("1m30s"), Ok(90_000));
        assert_eq!(read("1h1ms"), Ok(3_600_001));
        assert_eq!(read("0s"), Ok(0));
    }

    #[test]
    fn anything_else_is_no_duration() {
        for text in [
            "",
            "10",
            "0",
            "-1s",
            "+1s",
            "1e99h",
            "10 secs",
            "10 s",
            "1.5s",
            "s",
            "10S",
            "1s1m",
            "1s1s",
            "1d",
            "10us",
            "99999999999999999999h",
            "18446744073709551615h",
            "1h ",
            " 1h",
            "١s",
            "1µs",
            "10s10",
        ] {
            assert!(duration(text, ANY).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_written_duration_reads_back() {
        for milliseconds in [0, 1, 999, 1_000, 1_001, 59_999, 60_000, 90_000, 3_600_001] {
            let value = Duration::from_millis(milliseconds);
            assert_eq!(duration(&duration_text(value), ANY), Ok(value));
        }
    }

    #[test]
    fn a_size_reads_back_and_nothing_else_is_one() {
        for bytes in [0, 1, 1_023, 1_024, 65_536, 10 << 20, (10 << 20) + 1, 3 << 30] {
            assert_eq!(size(&size_text(bytes), 0..=u64::MAX), Ok(bytes));
        }
        for text in ["", "MiB", "10MB", "10 MiB", "10mib", "-1", "1.5MiB", "1e3", "17179869184GiB"]
        {
            assert!(size(text, 0..=u64::MAX).is_err(), "{text:?}");
        }
    }

    #[test]
    fn variables_are_put_in_place_once() {
        let env = |name: &str| match name {
            "HOST" => Ok("${PORT}".to_owned()),
            "PORT" => Ok("80".to_owned()),
            _ => Err(Missing::Unset),
        };
        let read = |raw: &str| expand(raw, &env).unwrap();
        assert_eq!(read("${PORT}"), "80");
        assert_eq!(read("a${PORT}b${PORT}"), "a80b80");
        // What a variable holds is a value, not another text to expand.
        assert_eq!(read("${HOST}"), "${PORT}");
        assert_eq!(read("${NONE:-x-y}"), "x-y");
        assert_eq!(read("a${NONE:-}b"), "ab");
        assert_eq!(read("$PORT $${PORT} $$"), "$PORT ${PORT} $$");
        for value in ["${", "$${", "$$${a}", "a${PORT}", "$", "x$"] {
            assert_eq!(read(&escape(value)), value);
        }
    }

    #[test]
    fn a_default_stands_for_what_is_missing_and_not_for_what_cannot_be_read() {
        let unreadable = || Missing::Unreadable { problem: "whose file /s/A".into(), cure: "mend" };
        let refusal = expand("${A:-x}", &|_| Err(unreadable())).unwrap_err();
        assert_eq!(refusal.problem, "uses the variable A, whose file /s/A");
        let no_file = || Missing::NoFile("/run/secrets".into());
        assert_eq!(expand("${A:-x}", &|_| Err(no_file())).unwrap(), "x");
        let refusal = expand("${A}", &|_| Err(no_file())).unwrap_err();
        assert!(refusal.problem.ends_with("no file in /run/secrets"), "{refusal:?}");
        assert!(refusal.cure.contains("into /run/secrets/A"), "{refusal:?}");
    }

    #[test]
    fn a_malformed_reference_is_refused() {
        for raw in ["${", "${}", "${A", "${1}", "${A B}", "${A:-${B}}", "${:-x}", "", "${N:-}"] {
            assert!(expand(raw, &|_| Err(Missing::Unset)).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn what_is_shown_is_short_and_one_line() {
        assert_eq!(shown("a\nb\u{2028}c"), "\"a b c\"");
        assert_eq!(shown("http://user:pass@a"), "\"***@a\"");
        assert_eq!(shown(&"é".repeat(100)).chars().count(), 67);
    }
}
