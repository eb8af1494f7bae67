//! What an answer shows at its end where nothing but the end of its connection tells that it is one.
//!
//! HTTP/1.0 ends its answers so, and HTTP/1.1 may; one that was cut short looks like a whole one. So it
//! must show its end itself, as far as its form has one. Of bytes whose form is not known nobody can
//! tell: they are taken for whole, for to refuse them would be to refuse every server of that kind.

/// What an answer has to show at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Proof {
    /// Nothing: its framing tells, or nothing could.
    Nothing,
    /// The end of a value in JSON.
    Json,
    /// The end of an event. Those of the known dialects have to show more in any case.
    Event,
}

impl Proof {
    /// Whether it is shown by an answer with these last bytes, of which those of `tail` stand behind its
    /// last whole event.
    pub(super) fn is_shown(self, last: &[u8], tail: &[u8], is_torn: bool) -> bool {
        match self {
            Self::Nothing => true,
            Self::Json => matches!(last.trim_ascii_end().last(), Some(b'}' | b']')),
            // The other half of the last line end may have come behind it.
            Self::Event => !is_torn && tail.trim_ascii().is_empty(),
        }
    }
}
