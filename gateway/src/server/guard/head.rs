//! A request's head, line by line.
//!
//! Whoever holds a head that is not whole shows it again with more of it; what was read of it is not
//! read again.
//!
//! Invariants: a violation is known from the bytes up to it, and the first is told, so that it does not
//! depend on how much of the head is there: what can be said of a line without its end is said of it first
//! when its end is there, too.

use memchr::memchr;

use super::signs;
use super::{FIELDS_MAX, HEAD_BYTES_MAX, Violation};

/// Longest target, in bytes.
const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Longest method that is looked at, in bytes.
const METHOD_BYTES_MAX: usize = 32;
/// The version with the space before it.
const VERSION_BYTES: usize = 9;
/// Longest first line.
const LINE_BYTES_MAX: usize = METHOD_BYTES_MAX + 1 + TARGET_BYTES_MAX + VERSION_BYTES;
/// Empty lines before a head; some old clients send one behind a body (RFC 9112, section 2.2).
const EMPTY_LINES_MAX: u8 = 2;
/// Longest host with its port, in bytes: a name of DNS and five digits.
const HOST_BYTES_MAX: usize = 255 + 6;
/// No body is longer, in bytes; what is reads as a number, but there is none who could send it.
const LENGTH_MAX: u64 = 1 << 62;

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes, or none.
    Length(u64),
    Chunked,
}

/// What was read of a head.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Where the first line begins that was not read.
    at: usize,
    /// Up to here there is no end of that line.
    looked: usize,
    empty_lines: u8,
    has_request_line: bool,
    /// Whether a byte of the request line has come.
    has_begun: bool,
    is_old: bool,
    fields: usize,
    has_host: bool,
    is_chunked: bool,
    length: Option<u64>,
    /// Whether a field has `_` in its name.
    pub(super) has_underscores: bool,
}

impl Head {
    /// Reads on in `bytes`, which begin where the head does. Returns its length once it is whole.
    ///
    /// # Errors
    /// The first violation of it.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, Violation> {
        let view = bytes.get(..HEAD_BYTES_MAX).unwrap_or(bytes);
        loop {
            let unread = view.get(self.looked..).unwrap_or_default();
            let found = signs::control(unread);
            let end = self.looked + found.unwrap_or(unread.len());
            let line = view.get(self.at..end).unwrap_or_default();
            self.beginning(line)?;
            match view.get(end..).unwrap_or_default() {
                [b'\r', b'\n', ..] => {
                    (self.at, self.looked) = (end + 2, end + 2);
                    if self.line(line)? {
                        self.whole()?;
                        return Ok(Some(end + 2));
                    }
                }
                [] | [b'\r'] if view.len() < HEAD_BYTES_MAX => {
                    self.looked = end;
                    return Ok(None);
                }
                [] | [b'\r'] => return Err(Violation::HeadTooLarge),
                [b'\n', ..] => return Err(Violation::LineEnd),
                [_, ..] => return Err(self.control(line)),
            }
        }
    }

    /// What it means that a control character follows this part of a line.
    fn control(&self, line: &[u8]) -> Violation {
        match line.split_at_checked(signs::token(line).0) {
            _ if !self.has_request_line => Violation::RequestLine,
            Some(([_, ..], [b':', ..])) => Violation::FieldValue,
            Some(_) | None => Violation::FieldName,
        }
    }

    /// How the body is framed that follows the whole head.
    pub(super) fn framing(&self) -> Framing {
        match self.length {
            _ if self.is_chunked => Framing::Chunked,
            length => Framing::Length(length.unwrap_or(0)),
        }
    }

    /// Whether more than empty lines has come.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// What can be said of the request line before its end has come, which may be never.
    fn beginning(&mut self, line: &[u8]) -> Result<(), Violation> {
        if self.has_request_line || line.is_empty() {
            return Ok(());
        }
        self.has_begun = true;
        let (length, _) = signs::token(line.get(..=METHOD_BYTES_MAX).unwrap_or(line));
        if length == 0
            || length > METHOD_BYTES_MAX
            || line.get(length).is_some_and(|byte| *byte != b' ')
        {
            return Err(Violation::RequestLine);
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(Violation::TargetTooLong);
        }
        Ok(())
    }

    /// Reads one line. Returns whether it was the last.
    fn line(&mut self, line: &[u8]) -> Result<bool, Violation> {
        if self.has_request_line {
            if line.is_empty() {
                return Ok(true);
            }
            self.field(line)?;
            return Ok(false);
        }
        if line.is_empty() {
            self.empty_lines += 1;
            return if self.empty_lines > EMPTY_LINES_MAX {
                Err(Violation::RequestLine)
            } else {
                Ok(false)
            };
        }
        self.request_line(line)?;
        self.has_request_line = true;
        Ok(false)
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), Violation> {
        let (method, rest) = apart(line).ok_or(Violation::RequestLine)?;
        let (target, version) = apart(rest).ok_or(Violation::RequestLine)?;
        match version {
            b"HTTP/1.1" => {}
            b"HTTP/1.0" => self.is_old = true,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(Violation::Version);
            }
            _ => return Err(Violation::RequestLine),
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Violation::TargetTooLong);
        }
        if matches!(method, b"CONNECT" | b"TRACE") || (method, target) == (b"OPTIONS", b"*") {
            return Err(Violation::Method);
        }
        if is_target(target) { Ok(()) } else { Err(Violation::Target) }
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Violation> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err(Violation::HeadTooLarge);
        }
        let (length, has_underscores) = signs::token(line);
        let (name, rest) = line.split_at_checked(length).unwrap_or_default();
        let value = match rest {
            [b':', value @ ..] if length > 0 => value,
            _ => return Err(Violation::FieldName),
        };
        self.has_underscores |= has_underscores;
        match length {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(signs::trimmed(value)),
            6 if name.eq_ignore_ascii_case(b"expect") => self.expect(signs::trimmed(value)),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.length(signs::trimmed(value))
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.coding(signs::trimmed(value))
            }
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Violation> {
        let is_first = !std::mem::replace(&mut self.has_host, true);
        if is_first && value.len() <= HOST_BYTES_MAX && signs::is_host(value) {
            Ok(())
        } else {
            Err(Violation::Host)
        }
    }

    /// One length, in digits. A list of equal ones could be taken for one (RFC 9112, section 6.3), but
    /// whoever writes it has been through something that does not know its own framing.
    fn length(&mut self, value: &[u8]) -> Result<(), Violation> {
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) || self.length.is_some() {
            return Err(Violation::ContentLength);
        }
        let length = value.iter().try_fold(0_u64, |length, digit| {
            length.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        });
        let length = length.ok_or(Violation::ContentLength)?;
        if length > LENGTH_MAX {
            return Err(Violation::BodyTooLarge);
        }
        self.length = Some(length);
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), Violation> {
        let is_first = !std::mem::replace(&mut self.is_chunked, true);
        if is_first && value.eq_ignore_ascii_case(b"chunked") {
            Ok(())
        } else {
            Err(Violation::TransferEncoding)
        }
    }

    /// Of a client of HTTP/1.0 it means nothing (RFC 9110, section 10.1.1).
    fn expect(&self, value: &[u8]) -> Result<(), Violation> {
        if self.is_old || value.eq_ignore_ascii_case(b"100-continue") {
            Ok(())
        } else {
            Err(Violation::Expectation)
        }
    }

    /// What can be said of the whole only.
    fn whole(&self) -> Result<(), Violation> {
        if self.is_chunked && (self.is_old || self.length.is_some()) {
            return Err(Violation::TransferEncoding);
        }
        if self.has_host || self.is_old { Ok(()) } else { Err(Violation::Host) }
    }
}

/// What stands before the first space, and behind it.
fn apart(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(b' ', line)?;
    Some((line.get(..at)?, line.get(at + 1..)?))
}

/// A path with its query, or the same behind an authority, which then is a host.
fn is_target(target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return signs::is_target(target);
    }
    let behind = |scheme: &[u8]| {
        let (begins, rest) = target.split_at_checked(scheme.len())?;
        begins.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let Some(rest) = behind(b"http://").or_else(|| behind(b"https://")) else { return false };
    let length = rest.iter().take_while(|byte| !matches!(byte, b'/' | b'?')).count();
    let (authority, path) = rest.split_at_checked(length).unwrap_or_default();
    authority.len() <= HOST_BYTES_MAX && signs::is_host(authority) && signs::is_target(path)
}
