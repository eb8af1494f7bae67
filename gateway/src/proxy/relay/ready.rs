//! What is ready for the client: as it came if it is one piece, copied together if it is several.
//!
//! One piece costs no copy; many small ones that came together cost one write and not one each.

use bytes::{Bytes, BytesMut};

/// Pieces are copied together up to this many bytes; a longer one goes alone.
pub(super) const TOGETHER_BYTES_MAX: usize = 16 * 1024;

/// Bytes for the client, in their order. Its bound is the caller's: nothing more is read while there
/// is enough.
#[derive(Debug, Default)]
pub(super) enum Ready {
    /// Nothing.
    #[default]
    Nothing,
    /// One piece.
    One(Bytes),
    /// Several, copied together.
    Several(BytesMut),
}

impl Ready {
    /// Adds bytes at the end.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        *self = match std::mem::take(self) {
            Self::Nothing => Self::One(bytes),
            Self::One(first) => {
                let together = first.len() + bytes.len();
                let mut several = BytesMut::with_capacity(together.max(TOGETHER_BYTES_MAX / 4));
                several.extend_from_slice(&first);
                several.extend_from_slice(&bytes);
                Self::Several(several)
            }
            Self::Several(mut several) => {
                several.extend_from_slice(&bytes);
                Self::Several(several)
            }
        };
    }

    /// Whether there is so much that it should go before more is read.
    pub(super) fn is_enough(&self) -> bool {
        self.bytes().len() >= TOGETHER_BYTES_MAX
    }

    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Whether it ends so.
    pub(super) fn ends_with(&self, end: &[u8]) -> bool {
        self.bytes().ends_with(end)
    }

    /// Takes all of it.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::One(bytes) => Some(bytes),
            Self::Several(bytes) => Some(bytes.freeze()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::One(bytes) => bytes,
            Self::Several(bytes) => bytes,
        }
    }
}
