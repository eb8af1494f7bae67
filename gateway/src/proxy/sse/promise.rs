//! What the reader of streams promises of any bytes: the events of the standard, however they are cut.

use super::{Plain, Reader, plain};
use crate::proxy::route::Dialect;
use crate::proxy::usage::Usage;

const DIALECTS: [Dialect; 5] =
    [Dialect::Chat, Dialect::Completions, Dialect::Responses, Dialect::Messages, Dialect::Opaque];
/// What a name of an event is cut to.
const NAME_BYTES_MAX: usize = super::reader::NAME_BYTES_MAX;
/// No usage is more, and no sum of two.
const TOKENS_MAX: u64 = 2_000_000_000;

/// An event: its name, its data, what it means in each dialect, and the place behind it.
type Told = (Vec<u8>, Option<Vec<u8>>, String, usize);

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Told> {
    let (mut reader, mut all, mut begin) = (Reader::default(), Vec::new(), 0);
    for piece in pieces {
        reader.read(piece, |event, place| {
            assert!((1..=piece.len()).contains(&place), "{place} of {}", piece.len());
            let meaning = DIALECTS.map(|dialect| event.read(dialect));
            for (_, usage, _) in &meaning {
                is_sane(*usage);
            }
            let (name, data) = (event.name.to_vec(), event.data.map(<[u8]>::to_vec));
            all.push((name, data, format!("{meaning:?}"), begin + place));
        });
        begin += piece.len();
    }
    all
}

fn is_sane(usage: Usage) {
    assert!(usage.total().is_none_or(|total| total <= TOKENS_MAX), "{usage:?}");
}

/// The first byte says in what pieces the others come.
pub(crate) fn stream(bytes: &[u8]) {
    let Some((size, stream)) = bytes.split_first() else { return };
    let size = usize::from(*size).max(1);
    let whole = read([stream]);
    let told: Vec<_> = whole.iter().map(|(name, data, ..)| (name.clone(), data.clone())).collect();
    assert_eq!(told, standard(stream));
    // A line's end that comes in two pieces ends with the first of them.
    let apart = |all: Vec<Told>| -> Vec<_> {
        all.into_iter().map(|(name, data, meaning, _)| (name, data, meaning)).collect()
    };
    let expected = apart(whole);
    assert_eq!(apart(read(stream.chunks(size))), expected, "in pieces of {size}");
    assert_eq!(apart(read(stream.chunks(1))), expected, "byte by byte");
    let (first, second) = stream.split_at(size.min(stream.len()));
    assert_eq!(apart(read([first, second])), expected, "cut at {size}");
}

/// The events of a stream by the letter of the standard (WHATWG, HTML, 9.2.6), but that one without data
/// is told as well.
fn standard(stream: &[u8]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let (mut all, mut name, mut data) = (Vec::new(), Vec::new(), None::<Vec<u8>>);
    let mut rest = stream;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        let (line, behind) = rest.split_at(end);
        rest = behind.strip_prefix(b"\r\n").unwrap_or(behind.get(1..).unwrap_or_default());
        if line.is_empty() {
            all.push((std::mem::take(&mut name), data.take()));
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => name = value.get(..NAME_BYTES_MAX).unwrap_or(value).to_vec(),
            b"data" => {
                data = Some(match data.take() {
                    Some(before) => [&before, &b"\n"[..], value].concat(),
                    None => value.to_vec(),
                });
            }
            _ => {}
        }
    }
    all
}

/// A whole answer: whatever is taken for one is JSON, and what it reports is sane.
pub(crate) fn answer(bytes: &[u8]) {
    for dialect in DIALECTS {
        let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
        match plain(bytes, dialect) {
            Plain::Good(usage) => {
                is_sane(usage);
                assert!(is_json(), "{dialect:?}: what is no JSON is taken for an answer");
            }
            Plain::Error(status) => {
                assert!(status.is_none_or(|status| (100..=999).contains(&status)), "{status:?}");
                assert!(is_json(), "{dialect:?}: what is no JSON is taken for an error");
            }
            Plain::Malformed => {}
        }
    }
    is_sane(Usage::at_the_end(bytes));
}
