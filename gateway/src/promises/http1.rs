//! Two readers of requests that are not ours: one by the letter of RFC 9112, one as hyper's parser reads.
//!
//! They share nothing with the guard, nor with each other: what all three take for the same requests, no
//! server behind us takes for others. They are simple, and read whole messages only.
//!
//! Invariant: neither passes a byte over; what is left is what is not whole, or not understood.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a reader for tests may stop loudly"
)]

/// One request as a reader has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Its method.
    pub(crate) method: Vec<u8>,
    /// Its target, as it is written.
    pub(crate) target: Vec<u8>,
    /// The bytes of its head.
    pub(crate) head: usize,
    /// Its body without its framing; `None`: it is not all there.
    pub(crate) body: Option<Vec<u8>>,
    /// The bytes of its body, framing included, as far as they are there.
    pub(crate) framed: usize,
}

/// What a body is framed by.
enum Framing {
    Length(usize),
    Chunked,
}

/// All requests that `bytes` begin with, the last one perhaps without the end of its body, and how many
/// bytes are left that are none; `None`: something in them is against the letter.
pub(crate) fn strict(bytes: &[u8]) -> Option<(Vec<Read>, usize)> {
    read_all(bytes, strict_head, strict_chunks)
}

/// The same as hyper's parser, and a generous server behind it, would have it.
pub(crate) fn generous(bytes: &[u8]) -> Option<(Vec<Read>, usize)> {
    read_all(bytes, generous_head, generous_chunks)
}

type Head = (Vec<u8>, Vec<u8>, usize, Framing);
type Chunks = (Option<Vec<u8>>, usize);

fn read_all(
    bytes: &[u8],
    head: fn(&[u8]) -> Result<Option<Head>, ()>,
    chunks: fn(&[u8]) -> Result<Chunks, ()>,
) -> Option<(Vec<Read>, usize)> {
    let (mut all, mut rest) = (Vec::new(), bytes);
    while let Some((method, target, length, framing)) = head(rest).ok()? {
        rest = &rest[length..];
        let (body, framed) = match framing {
            Framing::Length(length) => (rest.get(..length).map(<[u8]>::to_vec), length),
            Framing::Chunked => chunks(rest).ok()?,
        };
        let is_whole = body.is_some();
        let framed = framed.min(rest.len());
        all.push(Read { method, target, head: length, body, framed });
        rest = &rest[framed..];
        if !is_whole {
            break;
        }
    }
    Some((all, rest.len()))
}

/// A line without its end, and what follows; `None`: its end is not there.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

fn is_token(bytes: &[u8]) -> bool {
    let is_sign = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_sign)
}

/// RFC 9112, sections 2 to 6: empty lines before it, a request line of three words, fields.
fn strict_head(bytes: &[u8]) -> Result<Option<Head>, ()> {
    let mut rest = bytes;
    let first = loop {
        let Some((first, behind)) = line(rest) else { return Ok(None) };
        rest = behind;
        if !first.is_empty() {
            break first;
        }
    };
    let words: Vec<&[u8]> = first.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words.as_slice() else { return Err(()) };
    let is_visible = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_graphic);
    if !is_token(method) || target.is_empty() || !is_visible(target) {
        return Err(());
    }
    let is_old = match *version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return Err(()),
    };
    let (mut hosts, mut lengths, mut codings) = (0, Vec::new(), Vec::new());
    loop {
        let Some((field, behind)) = line(rest) else { return Ok(None) };
        rest = behind;
        if field.is_empty() {
            break;
        }
        let (name, value) = strict_field(field).ok_or(())?;
        match name.as_slice() {
            b"host" => hosts += 1,
            b"content-length" => lengths.push(value),
            b"transfer-encoding" => codings.push(value.to_ascii_lowercase()),
            _ => {}
        }
    }
    if hosts > 1 || (hosts == 0 && !is_old) {
        return Err(());
    }
    let framing = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Framing::Length(0),
        ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            let length: u64 = std::str::from_utf8(length).unwrap().parse().map_err(drop)?;
            Framing::Length(usize::try_from(length).map_err(drop)?)
        }
        ([], [coding]) if coding == b"chunked" && !is_old => Framing::Chunked,
        _ => return Err(()),
    };
    Ok(Some((method.to_vec(), target.to_vec(), bytes.len() - rest.len(), framing)))
}

/// A field's name in lower case and its value without the space around it.
fn strict_field(field: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&field[..colon], &field[colon + 1..]);
    let is_plain = value.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f));
    if !is_token(name) || !is_plain {
        return None;
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let begin = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(begin, |last| last + 1);
    Some((name.to_ascii_lowercase(), value[begin..end].to_vec()))
}

/// RFC 9112, section 7.1.
fn strict_chunks(bytes: &[u8]) -> Result<Chunks, ()> {
    let (mut body, mut rest) = (Vec::new(), bytes);
    let cut = Ok((None, bytes.len()));
    loop {
        let Some((size, behind)) = line(rest) else { return cut };
        let digits = size.split(|byte| *byte == b';').next().unwrap_or_default();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(());
        }
        let size = u64::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).map_err(drop)?;
        let size = usize::try_from(size).map_err(drop)?;
        rest = behind;
        if size == 0 {
            break;
        }
        let Some(data) = rest.get(..size) else { return cut };
        body.extend_from_slice(data);
        rest = match &rest[size..] {
            [b'\r', b'\n', behind @ ..] => behind,
            [] | [b'\r'] => return cut,
            _ => return Err(()),
        };
    }
    loop {
        let Some((trailer, behind)) = line(rest) else { return cut };
        rest = behind;
        if trailer.is_empty() {
            return Ok((Some(body), bytes.len() - rest.len()));
        }
        strict_field(trailer).ok_or(())?;
    }
}

/// What `httparse` takes, with the framing that the last word of a generous server would give it.
fn generous_head(bytes: &[u8]) -> Result<Option<Head>, ()> {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes).map_err(drop)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let mut framing = Framing::Length(0);
    for field in request.headers.iter() {
        let value =
            std::str::from_utf8(field.value).unwrap_or_default().trim().to_ascii_lowercase();
        if field.name.eq_ignore_ascii_case("transfer-encoding") && value.ends_with("chunked") {
            framing = Framing::Chunked;
        } else if field.name.eq_ignore_ascii_case("content-length")
            && matches!(framing, Framing::Length(_))
        {
            framing = Framing::Length(value.parse().map_err(drop)?);
        }
    }
    let word = |word: Option<&str>| word.unwrap_or_default().as_bytes().to_vec();
    Ok(Some((word(request.method), word(request.path), length, framing)))
}

/// Sizes as `httparse` reads them; data and trailers by their line ends, be they CR LF or LF.
fn generous_chunks(bytes: &[u8]) -> Result<Chunks, ()> {
    let (mut body, mut at) = (Vec::new(), 0);
    let cut = Ok((None, bytes.len()));
    loop {
        let (length, size) = match httparse::parse_chunk_size(&bytes[at..]).map_err(drop)? {
            httparse::Status::Complete(found) => found,
            httparse::Status::Partial => return cut,
        };
        at += length;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).map_err(drop)?;
        let Some(data) = at.checked_add(size).and_then(|end| bytes.get(at..end)) else {
            return cut;
        };
        body.extend_from_slice(data);
        at += size;
        let Some(end) = bytes[at..].iter().position(|byte| *byte == b'\n') else { return cut };
        at += end + 1;
    }
    loop {
        let Some(end) = bytes[at..].iter().position(|byte| *byte == b'\n') else { return cut };
        let is_last = bytes[at..at + end].trim_ascii_end().is_empty();
        at += end + 1;
        if is_last {
            return Ok((Some(body), at));
        }
    }
}
