//! A value that nobody gets to see, whatever is printed around it.
//!
//! Invariants: only `expose` gives the value out; every way to print it prints the mask.

use std::fmt;

use super::MASK;

/// A value that is compared or sent but never shown: `Debug` and `Display` print `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `value` from being shown.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Gives the value to the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether this is only the mask of a secret, as in a shown configuration.
    pub(super) fn is_mask(&self) -> bool {
        self.0 == MASK
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(MASK)
    }
}
