//! How a body is read: bounded in size, bounded in its pauses, and mostly without a copy.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::error::ApiError;

/// Reads the body, bounded in size and in the pause between its parts.
///
/// # Errors
/// The refusal to answer with; `None` when the client went away in the middle.
pub(super) async fn read<B>(
    mut body: B,
    bytes_max: usize,
    idle: Duration,
) -> Result<Bytes, Option<ApiError>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let too_large = || Some(ApiError::body_too_large(bytes_max));
    let stated = body.size_hint().lower();
    if stated > bytes_max as u64 {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout(idle, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(None),
            Ok(None) => break,
            Err(_) => {
                let status = hyper::StatusCode::REQUEST_TIMEOUT;
                let message = "The request body stopped arriving.";
                return Err(Some(ApiError::new(status, "request_timeout", message)));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.as_ref().map_or(0, Bytes::len) + rest.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        // Most bodies come in one piece, which then is passed on without a copy.
        match &first {
            None => first = Some(data),
            Some(_) => rest.extend_from_slice(&data),
        }
    }
    let first = first.unwrap_or_default();
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
}
