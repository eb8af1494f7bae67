//! How a body is read: bounded in size and in time, and mostly without a copy.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::clock;
use crate::error::ApiError;

/// A body must come at least at this pace on average, in bytes a second, once it has come for as long as
/// it may pause.
const PACE_MIN: u64 = 1024;

/// Reads the body, bounded in size, in the pause between its parts, and by [`PACE_MIN`].
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
    B::Error: Error + 'static,
{
    let too_large = || Some(ApiError::body_too_large(bytes_max));
    let stated = body.size_hint().lower();
    if stated > bytes_max as u64 {
        return Err(too_large());
    }
    // Most bodies come in one piece, which then is passed on without a copy.
    let mut first = Bytes::new();
    let mut whole: Option<BytesMut> = None;
    let started = clock::instant();
    loop {
        let bytes = whole.as_ref().map_or(first.len(), BytesMut::len);
        // By then what has come is too little for the time.
        let paced = started + idle.max(Duration::from_millis(bytes as u64 * 1_000 / PACE_MIN));
        let deadline = paced.min(clock::instant() + idle);
        let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(is_broken(&error).then(ApiError::broken_body)),
            Ok(None) => break,
            Err(_) => {
                let status = hyper::StatusCode::REQUEST_TIMEOUT;
                let message = "The request body stopped arriving.";
                return Err(Some(ApiError::new(status, "request_timeout", message)));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
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

/// Whether a body ended since its framing makes no sense, and not since its client left.
fn is_broken(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
            );
        }
        cause = error.source();
    }
    false
}
