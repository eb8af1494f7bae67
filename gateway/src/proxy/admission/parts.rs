//! The parts of a `multipart/form-data` body, found without copying it.
//!
//! Two readers of one form may find two sets of fields in it: where a line ends, whether the boundary
//! counts in the middle of a line, what a backslash means. An engine that found another model than the
//! one that was allowed here would be lent to somebody. So only what every reader takes alike is taken
//! (RFC 2046 and RFC 7578 without their liberties), and the rest is refused.
//!
//! Invariants: parts are in the order of the body and do not overlap; a boundary at the beginning of a
//! line is a delimiter or a refusal; each byte is looked at a bounded number of times.

use std::ops::Range;

use memchr::memmem::{self, Finder};

/// Most parts of a form.
pub(super) const PARTS_MAX: usize = 256;
/// Longest head of a part, in bytes.
const HEAD_BYTES_MAX: usize = 4 * 1024;
/// Longest name of a field, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Longest boundary (RFC 2046, 5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;
/// Most parameters of a header field.
const PARAMETERS_MAX: usize = 8;

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// The name of the field.
    pub(super) name: &'a str,
    /// Whether it is a file, or encoded so that its bytes are not its value.
    pub(super) is_opaque: bool,
    /// Where its content stands in the body.
    pub(super) content: Range<usize>,
}

/// The boundary that a content type names; `None`: it names none, or not clearly.
pub(super) fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let start = content_type.iter().position(|byte| *byte == b';')?;
    let mut found = None;
    for (name, value) in parameters(content_type.get(start..)?)? {
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return None;
        }
    }
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    found.filter(|boundary| {
        (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
            && boundary.iter().all(is_safe)
            && !boundary.ends_with(b" ")
    })
}

/// The parts of `body`.
///
/// # Errors
/// What is wrong with it, as the rest of a sentence.
pub(super) fn parts<'a>(body: &'a [u8], boundary: &[u8]) -> Result<Vec<Part<'a>>, &'static str> {
    let mark = [b"--".as_slice(), boundary].concat();
    let finder = Finder::new(&mark);
    let mut parts = Vec::new();
    if !body.starts_with(&mark) {
        return Err("does not begin with its boundary");
    }
    let mut at = mark.len();
    loop {
        let rest = body.get(at..).unwrap_or_default();
        if let Some(rest) = rest.strip_prefix(b"--") {
            let is_end = rest.is_empty() || rest == b"\r\n";
            return if is_end { Ok(parts) } else { Err("goes on behind its end") };
        }
        if parts.len() == PARTS_MAX {
            return Err("has more than 256 parts");
        }
        let rest = rest.strip_prefix(b"\r\n").ok_or("has a line that only begins as a boundary")?;
        let window = rest.get(..HEAD_BYTES_MAX).unwrap_or(rest);
        let head =
            memmem::find(window, b"\r\n\r\n").ok_or("has a part without a head, or too long")?;
        let (name, is_opaque) = disposition(rest.get(..head).unwrap_or_default())
            .ok_or("has a part whose head is not clear")?;
        let start = at + 2 + head + 4;
        let end = delimiter(body, start, &finder)?;
        parts.push(Part { name, is_opaque, content: start..end });
        at = end + 2 + mark.len();
    }
}

/// Where the line end of the next delimiter stands, at `start` or later.
fn delimiter(body: &[u8], start: usize, mark: &Finder<'_>) -> Result<usize, &'static str> {
    let content = body.get(start..).unwrap_or_default();
    for found in mark.find_iter(content) {
        let before = content.get(..found).unwrap_or_default();
        if before.ends_with(b"\r\n") {
            return Ok(start + found - 2);
        }
        // Some readers take the end of a line for one by half of it.
        if before.is_empty() || before.ends_with(b"\n") || before.ends_with(b"\r") {
            return Err("has a boundary behind half an end of a line");
        }
    }
    Err("does not end with its boundary")
}

/// The name of a part, and whether its bytes are not plainly its value.
fn disposition(head: &[u8]) -> Option<(&str, bool)> {
    let (mut found, mut is_encoded) = (None, false);
    for line in lines(head)? {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        if name.is_empty() || !name.iter().all(is_token) {
            return None;
        }
        let value = value.strip_prefix(b":")?.trim_ascii();
        if name.eq_ignore_ascii_case(b"content-disposition") {
            if found.replace(field(value)?).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
            is_encoded = true;
        }
    }
    let (name, is_file) = found?;
    Some((name, is_file || is_encoded))
}

/// The lines of a head, which end by CR and LF together, and nowhere by one of them.
fn lines(head: &[u8]) -> Option<Vec<&[u8]>> {
    let mut lines = Vec::new();
    let mut rest = head;
    while let Some(end) = memmem::find(rest, b"\r\n") {
        lines.push(rest.get(..end)?);
        rest = rest.get(end + 2..)?;
    }
    lines.push(rest);
    let is_whole = |line: &&[u8]| !line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    lines.iter().all(is_whole).then_some(lines)
}

/// The name in `form-data; name=…`, and whether there is a file's name too.
fn field(value: &[u8]) -> Option<(&str, bool)> {
    let kind = value.split(|byte| *byte == b';').next()?;
    if !kind.trim_ascii().eq_ignore_ascii_case(b"form-data") {
        return None;
    }
    let (mut found, mut is_file) = (None, false);
    for (name, value) in parameters(value.get(kind.len()..)?)? {
        if name.eq_ignore_ascii_case(b"name") {
            if found.replace(value).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case(b"filename") || name.eq_ignore_ascii_case(b"filename*")
        {
            is_file = true;
        } else if name.len() >= 4 && name.get(..4)?.eq_ignore_ascii_case(b"name") {
            // `name*`, `name*0` and their like, which RFC 7578 forbids and some readers honour.
            return None;
        }
    }
    // Escapes are undone by some readers and not by others.
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && !b"%\\".contains(byte);
    let name = found.filter(|name| name.len() <= NAME_BYTES_MAX && name.iter().all(is_plain))?;
    Some((std::str::from_utf8(name).ok()?, is_file))
}

/// The parameters of a header field from their first semicolon on; `None`: not clear.
fn parameters(mut rest: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut parameters = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(parameters);
        }
        if parameters.len() == PARAMETERS_MAX {
            return None;
        }
        rest = rest.strip_prefix(b";")?.trim_ascii_start();
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, value) = rest.split_at(equals);
        if name.is_empty() || !name.iter().all(is_token) {
            return None;
        }
        let value = value.strip_prefix(b"=")?;
        let (value, behind) = match value.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = quoted.iter().position(|byte| *byte == b'"')?;
                let (value, behind) = quoted.split_at(end);
                // To one reader an escaped quote goes on, to another it ends.
                if value.ends_with(b"\\") {
                    return None;
                }
                (value, behind.strip_prefix(b"\"")?)
            }
            None => {
                let end = value.iter().position(|byte| !is_token(byte)).unwrap_or(value.len());
                value.split_at(end)
            }
        };
        parameters.push((name, value));
        rest = behind;
    }
}

/// Whether a byte can be part of a token (RFC 9110, 5.6.2).
fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

#[cfg(test)]
mod tests;
