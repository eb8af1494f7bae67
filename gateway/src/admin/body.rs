//! The body of an order.

use serde::de::DeserializeOwned;
use serde_json::{Error, Map, Value};

/// Reads an object. A list is none: its members would be taken for the fields in their order.
///
/// # Errors
/// What it is instead, with line and column.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    if !body.trim_ascii_start().starts_with(b"{") {
        serde_json::from_slice::<Map<String, Value>>(body)?;
    }
    serde_json::from_slice(body)
}
