//! Which bytes may stand where.
//!
//! Invariant: each set but that of a query is no larger than RFC 9110, RFC 9112 or RFC 3986 has it.

/// Not of the set.
pub(super) const NONE: u8 = 0;
/// Of the set.
const SIGN: u8 = 1;
/// A sign of a token that some readers take for `-`.
pub(super) const UNDERSCORE: u8 = 2;

/// The bytes of a token (RFC 9110, section 5.6.2): of a method, and of the name of a field.
static TOKEN: [u8; 256] = of(b"!#$%&'*+-.^`|~", UNDERSCORE);

/// The bytes of a path (RFC 3986, section 3.3), and brackets, which some clients write.
static PATH: [u8; 256] = of(b"-.~!$&'()*+,;=:@/%[]", SIGN);

/// The bytes of a query: whatever can be seen and no browser escapes there (RFC 3986, section 3.4, has
/// fewer; WHATWG's URL, "query percent-encode set"). No fragment: it is not for a server.
static QUERY: [u8; 256] = of(b"-.~!$&'()*+,;=:@/%[]?|{}^\\`", SIGN);

/// The bytes of a name or an IPv4 address in `Host`. What RFC 3986 allows beyond them no name of a
/// server has, and a comma or an escape is read in two ways.
static HOST: [u8; 256] = of(b"-.~", SIGN);

/// A set of letters, digits, these bytes, and `_` as what it is in it.
#[expect(clippy::indexing_slicing, reason = "it is evaluated when this is compiled")]
const fn of(others: &[u8], underscore: u8) -> [u8; 256] {
    let mut signs = [NONE; 256];
    let mut byte = 0;
    while byte < 128 {
        if (byte as u8).is_ascii_alphanumeric() {
            signs[byte] = SIGN;
        }
        byte += 1;
    }
    let mut other = 0;
    while other < others.len() {
        signs[others[other] as usize] = SIGN;
        other += 1;
    }
    signs[b'_' as usize] = underscore;
    signs
}

fn class(signs: &[u8; 256], byte: u8) -> u8 {
    signs.get(usize::from(byte)).copied().unwrap_or(NONE)
}

/// How many bytes of a token `bytes` begin with, and whether one of them is `_`.
pub(super) fn token(bytes: &[u8]) -> (usize, bool) {
    let mut seen = NONE;
    for (at, byte) in bytes.iter().enumerate() {
        let class = class(&TOKEN, *byte);
        if class == NONE {
            return (at, seen & UNDERSCORE != 0);
        }
        seen |= class;
    }
    (bytes.len(), seen & UNDERSCORE != 0)
}

/// Whether `bytes` can be a path with its query.
pub(super) fn is_target(bytes: &[u8]) -> bool {
    let Some(at) = bytes.iter().position(|byte| class(&PATH, *byte) == NONE) else { return true };
    let query = bytes.get(at..).and_then(|rest| rest.strip_prefix(b"?"));
    query.is_some_and(|query| query.iter().all(|byte| class(&QUERY, *byte) != NONE))
}

/// Whether a byte can stand in the value of a field: no control character but the tab. Whatever is beyond
/// ASCII is opaque.
pub(super) fn is_in_value(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

/// Where the first byte is that cannot stand in the value of a field, and so in no part of a line but its
/// end.
pub(super) fn control(bytes: &[u8]) -> Option<usize> {
    /// One in each byte of a word.
    const ONES: u64 = u64::MAX / 255;
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        let Some(eight) = rest.first_chunk::<8>() else {
            return rest.iter().position(|byte| !is_in_value(*byte)).map(|found| at + found);
        };
        // The highest bit of a byte is set if it is below a space, or is 0x7f; beyond the lowest such
        // byte it may be set for others, too (Warren, Hacker's Delight, section 6-1).
        let word = u64::from_le_bytes(*eight);
        let low = word.wrapping_sub(ONES * 0x20) & !word;
        let last = word ^ (ONES * 0x7f);
        let found = (low | (last.wrapping_sub(ONES) & !last)) & (ONES * 0x80);
        if found == 0 {
            at += eight.len();
            continue;
        }
        at += (found.trailing_zeros() / 8) as usize;
        if bytes.get(at) != Some(&b'\t') {
            return Some(at);
        }
        at += 1;
    }
}

/// Whether `bytes` can name a host, with or without a port: a name, an IPv4 address, or an IPv6 address
/// in brackets.
pub(super) fn is_host(bytes: &[u8]) -> bool {
    let (is_named, rest) = match bytes.strip_prefix(b"[") {
        Some(inner) => {
            let length = inner.iter().take_while(|byte| is_ipv6(**byte)).count();
            let rest = inner.get(length..).unwrap_or_default();
            match rest.strip_prefix(b"]") {
                Some(rest) => (length > 0, rest),
                None => return false,
            }
        }
        None => {
            let length = bytes.iter().take_while(|byte| class(&HOST, **byte) != NONE).count();
            (length > 0, bytes.get(length..).unwrap_or_default())
        }
    };
    is_named && (rest.is_empty() || rest.strip_prefix(b":").is_some_and(is_port))
}

fn is_ipv6(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b':' || byte == b'.'
}

/// A port, or none behind its colon (RFC 3986, section 3.2.3).
fn is_port(bytes: &[u8]) -> bool {
    bytes.len() <= 5 && bytes.iter().all(u8::is_ascii_digit)
}

/// A list without the spaces and tabs around it.
pub(super) fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}
