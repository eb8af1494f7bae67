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
    // Most bodies come in one piece, which then is passed on without a copy.
    let mut first = Bytes::new();
    let mut whole: Option<BytesMut> = None;
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
        let bytes = whole.as_ref().map_or(first.len(), BytesMut::len);
        if bytes + data.len() > bytes_max {
            return Err(too_large());
        }
        if bytes == 0 {
            first = data;
        } else {
            whole.get_or_insert_with(|| BytesMut::from(&*first)).extend_from_slice(&data);
        }
    }
    Ok(whole.map_or(first, BytesMut::freeze))
}
