//! Finds the events in a stream of bytes, at any split, by the WHATWG rules.
//!
//! The reader only looks: the bytes are passed on as they came. It says where events end, so that a
//! stream can be cut between events, and shows each event's name and data. An event whose lines lie
//! whole in what was read is shown where it lies; only what is torn is copied.
//!
//! Invariants: what it keeps between two reads is bounded by [`DATA_BYTES_MAX`], [`LAST_BYTES_MAX`] and a
//! name.

use memchr::memchr2;

/// Data of an event beyond this is not looked at; an ordinary event has a few hundred bytes.
const DATA_BYTES_MAX: usize = 128 * 1024;
/// Longest name of an event; those in use have at most about fifty bytes.
pub(super) const NAME_BYTES_MAX: usize = 128;
/// The last bytes of an event whose data is longer than what is looked at: there stands what it took.
const LAST_BYTES_MAX: usize = 2 * 1024;
/// A buffer that one long event has made larger than this is given back.
const KEPT_BYTES_MAX: usize = 8 * 1024;

/// One event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    /// What its field `event` says; empty without one.
    pub(super) name: &'a [u8],
    /// Its data, cut at a bound; `None` without any.
    pub(super) data: Option<&'a [u8]>,
    /// The last bytes of what was cut off.
    pub(super) last: &'a [u8],
}

/// Reads events.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last bytes of what had no room.
    last: Vec<u8>,
    /// A line was read; only the first may begin with a byte order mark.
    has_begun: bool,
    /// The last byte was `\r`: a `\n` that follows belongs to the same line end.
    after_return: bool,
}

/// What a line is for.
enum Field<'a> {
    Name(&'a [u8]),
    Data(&'a [u8]),
    Other,
}

impl Reader {
    /// Reads `bytes` and calls `found` with each event that ends there and the place just behind it.
    pub(crate) fn read(&mut self, bytes: &[u8], mut found: impl FnMut(Event<'_>, usize)) {
        let mut at = 0;
        if let Some(first) = bytes.first() {
            at = usize::from(self.after_return && *first == b'\n');
            self.after_return = false;
        }
        // The data of the running event as long as it lies in one piece.
        let mut piece: Option<&[u8]> = None;
        while let Some(length) = memchr2(b'\n', b'\r', bytes.get(at..).unwrap_or_default()) {
            let line = bytes.get(at..at + length).unwrap_or_default();
            let is_return = bytes.get(at + length) == Some(&b'\r');
            at += length + 1;
            if is_return {
                self.after_return = at == bytes.len();
                at += usize::from(bytes.get(at) == Some(&b'\n'));
            }
            if self.line.is_empty() {
                let line = self.without_mark(line);
                if line.is_empty() {
                    self.end_event(piece.take(), at, &mut found);
                } else {
                    self.take_line(line, &mut piece);
                }
            } else if self.end_torn_line(line, &mut piece) {
                self.end_event(piece.take(), at, &mut found);
            }
        }
        if let Some(data) = piece {
            self.append(data);
        }
        let bytes_max = self.line_bytes_max();
        let cut = extend_up_to(&mut self.line, bytes.get(at..).unwrap_or_default(), bytes_max);
        keep_last(&mut self.last, cut);
    }

    /// How much of a torn line is kept: what its event's data leaves, and in any case enough to tell
    /// that there is a line, and what for.
    fn line_bytes_max(&self) -> usize {
        DATA_BYTES_MAX.saturating_sub(self.data.len()).max(NAME_BYTES_MAX)
    }

    #[cfg(test)]
    /// Whether the stream stands between two events.
    pub(crate) fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.has_data
    }

    fn without_mark<'a>(&mut self, line: &'a [u8]) -> &'a [u8] {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if is_first { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line }
    }

    /// Takes a line that lies whole in what was read.
    fn take_line<'a>(&mut self, line: &'a [u8], piece: &mut Option<&'a [u8]>) {
        match field(line) {
            Field::Name(name) => self.take_name(name),
            Field::Data(data) if piece.is_none() && !self.has_data => *piece = Some(data),
            Field::Data(data) => {
                if let Some(first) = piece.take() {
                    self.append(first);
                }
                self.append(data);
            }
            Field::Other => {}
        }
    }

    /// Takes a line that began in an earlier read and ends with `rest`. Returns whether it is empty, as
    /// a first one with nothing but a byte order mark is.
    fn end_torn_line(&mut self, rest: &[u8], piece: &mut Option<&[u8]>) -> bool {
        let mut torn = std::mem::take(&mut self.line);
        let cut = extend_up_to(&mut torn, rest, self.line_bytes_max());
        keep_last(&mut self.last, cut);
        if let Some(data) = piece.take() {
            self.append(data);
        }
        let whole = self.without_mark(&torn);
        let is_empty = whole.is_empty();
        match field(whole) {
            Field::Name(name) => self.take_name(name),
            Field::Data(data) => self.append(data),
            Field::Other => {}
        }
        // The buffer is kept for the next line.
        torn.clear();
        torn.shrink_to(KEPT_BYTES_MAX);
        self.line = torn;
        is_empty
    }

    fn take_name(&mut self, name: &[u8]) {
        self.name.clear();
        let _ = extend_up_to(&mut self.name, name, NAME_BYTES_MAX);
    }

    fn append(&mut self, data: &[u8]) {
        if self.has_data {
            let _ = extend_up_to(&mut self.data, b"\n", DATA_BYTES_MAX);
        }
        self.has_data = true;
        let cut = extend_up_to(&mut self.data, data, DATA_BYTES_MAX);
        keep_last(&mut self.last, cut);
    }

    fn end_event(
        &mut self,
        piece: Option<&[u8]>,
        at: usize,
        found: &mut impl FnMut(Event<'_>, usize),
    ) {
        let data = piece.or(self.has_data.then_some(&self.data));
        found(Event { name: &self.name, data, last: &self.last }, at);
        self.has_data = false;
        self.last.clear();
        self.name.clear();
        self.data.clear();
        self.data.shrink_to(KEPT_BYTES_MAX);
    }
}

fn field(line: &[u8]) -> Field<'_> {
    if let Some(data) = line.strip_prefix(b"data").and_then(value) {
        return Field::Data(data);
    }
    line.strip_prefix(b"event").and_then(value).map_or(Field::Other, Field::Name)
}

/// The value behind a field's name; `None` if the name goes on.
fn value(rest: &[u8]) -> Option<&[u8]> {
    match rest.split_first() {
        None => Some(rest),
        Some((b':', value)) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        Some(_) => None,
    }
}

/// Adds as much as there is room for. Returns the rest.
fn extend_up_to<'a>(buffer: &mut Vec<u8>, bytes: &'a [u8], bytes_max: usize) -> &'a [u8] {
    let room = bytes_max.saturating_sub(buffer.len()).min(bytes.len());
    let (taken, rest) = bytes.split_at_checked(room).unwrap_or_default();
    buffer.extend_from_slice(taken);
    rest
}

/// Adds to what is kept of the last bytes.
fn keep_last(last: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let newest = bytes.len().saturating_sub(LAST_BYTES_MAX);
    let newest = bytes.get(newest..).unwrap_or_default();
    let surplus = (last.len() + newest.len()).saturating_sub(LAST_BYTES_MAX);
    last.drain(..surplus.min(last.len()));
    last.extend_from_slice(newest);
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        "\u{feff}data: 1\r\n\r\n",
        ": ping\n\n",
        "data:\u{4f60}\n\n",
        "id: 7\nevent: x\rdata: {\rdata: }\r\r",
        "event:y\nevent: z\ndata\n\n",
        "database: no\nretry: 3\n\n",
        "data: [DONE]\n\n",
    );

    fn kept(reader: &Reader) -> usize {
        let buffers = [&reader.line, &reader.data, &reader.name, &reader.last];
        buffers.into_iter().map(Vec::capacity).sum()
    }

    type Told = (String, Option<String>);

    fn read(parts: &[&[u8]]) -> Vec<Told> {
        let mut reader = Reader::default();
        let mut events = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for part in parts {
            reader.read(part, |event, _| events.push((text(event.name), event.data.map(text))));
        }
        assert!(reader.is_between_events());
        events
    }

    #[test]
    fn s07_s08_every_split_and_every_line_end_reads_the_same() {
        let bytes = STREAM.as_bytes();
        let whole = read(&[bytes]);
        let told = |name: &str, data: Option<&str>| (name.to_owned(), data.map(str::to_owned));
        assert_eq!(
            whole,
            [
                told("", Some("1")),
                told("", None),
                told("", Some("\u{4f60}")),
                told("x", Some("{\n}")),
                told("z", Some("")),
                told("", None),
                told("", Some("[DONE]")),
            ]
        );
        for at in 0..bytes.len() {
            assert_eq!(read(&[&bytes[..at], &bytes[at..]]), whole, "split at {at}");
            for second in at..bytes.len() {
                let parts = [&bytes[..at], &bytes[at..second], &bytes[second..]];
                assert_eq!(read(&parts), whole, "split at {at} and {second}");
            }
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), whole);
    }

    #[test]
    fn a_first_line_with_a_mark_alone_is_empty_however_it_is_cut() {
        let bytes = b"\xef\xbb\xbf\rdata: 1\n\n";
        let whole = read(&[bytes]);
        assert_eq!(whole.len(), 2);
        for at in 0..bytes.len() {
            assert_eq!(read(&[&bytes[..at], &bytes[at..]]), whole, "split at {at}");
        }
    }

    #[test]
    fn the_place_is_just_behind_the_event() {
        let mut places = Vec::new();
        Reader::default().read(b"data: 1\r\n\r\ndata: 2\n\nda", |_, place| places.push(place));
        assert_eq!(places, [11, 20]);
    }

    #[test]
    fn what_it_keeps_of_an_endless_event_is_bounded() {
        let mut reader = Reader::default();
        let mut events = 0;
        for _ in 0..1_000 {
            reader.read(&[b'x'; 1_000], |_, _| events += 1);
            reader.read(b"\ndata: y\nevent: z", |_, _| events += 1);
            reader.read(&[b'd'; 1_000], |_, _| events += 1);
        }
        reader.read(format!("data: {}", "x".repeat(DATA_BYTES_MAX)).as_bytes(), |_, _| events += 1);
        let bytes = kept(&reader);
        // A buffer has twice as much room as it needs at most.
        assert!(bytes <= 2 * (DATA_BYTES_MAX + 2 * NAME_BYTES_MAX + LAST_BYTES_MAX), "{bytes}");
        reader.read(b"\n\n", |event, _| {
            events += 1;
            assert!(event.data.unwrap().len() <= DATA_BYTES_MAX);
        });
        assert_eq!(events, 1);
        let bytes = kept(&reader);
        assert!(bytes <= 3 * KEPT_BYTES_MAX, "{bytes}");
    }
}
