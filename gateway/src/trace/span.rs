//! One thing that took time, as a trace tells it.

/// Longest text of an attribute, in bytes: whatever it is, it is no prompt.
const TEXT_BYTES_MAX: usize = 128;

/// Which side of a call it is, by the numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request that came.
    Server = 2,
    /// A request that went out.
    Client = 3,
}

/// What an attribute holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
}

/// One thing that took time.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Nanoseconds since 1970.
    pub(super) began: u64,
    pub(super) ended: u64,
    /// As many as this program has names for.
    pub(super) attributes: Vec<(&'static str, Value)>,
    pub(super) is_error: bool,
}

impl Span {
    /// Adds a text, unless it is empty.
    pub(super) fn text(&mut self, key: &'static str, value: &str) {
        if value.is_empty() {
            return;
        }
        let ends = value.char_indices().map(|(at, one)| at + one.len_utf8());
        let end = ends.take_while(|end| *end <= TEXT_BYTES_MAX).last().unwrap_or(0);
        let value = value.get(..end).unwrap_or_default().to_owned();
        self.attributes.push((key, Value::Text(value)));
    }

    /// Adds a number, unless there is none.
    pub(super) fn number(&mut self, key: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.attributes.push((key, Value::Number(value)));
        }
    }
}
