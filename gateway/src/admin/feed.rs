//! `GET events`: from where a follower wants to be told.

use hyper::StatusCode;
use hyper::header::HeaderMap;

use super::Reply;
use crate::events::{Events, Feed, Since, TooMany};
use std::sync::Arc;

/// Follows the events from `since`, or from where the header of a browser's own reconnection says.
pub(super) fn follow(
    events: &Arc<Events>,
    headers: &HeaderMap,
    since: Option<&str>,
    is_until_now: bool,
) -> Reply {
    let since = match since.map(Since::parse) {
        Some(Some(since)) => since,
        Some(None) => {
            let message = "since must be the id of an event, or 0 for all that is kept.";
            return Reply::error(StatusCode::BAD_REQUEST, "invalid_query", message);
        }
        None => last_seen(headers).unwrap_or(Since::Now),
    };
    match events.follow(since, is_until_now) {
        Ok(follower) => Reply::Feed(Box::new(Feed::new(follower))),
        Err(error @ TooMany) => Reply::error(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_followers",
            format!("{error}; close one of them, or read with until=now."),
        ),
    }
}

/// The place that `Last-Event-ID` names. One that cannot be read is a place that cannot be told from
/// any more: whoever reconnects by itself would not understand a refusal.
fn last_seen(headers: &HeaderMap) -> Option<Since> {
    let value = headers.get("last-event-id")?;
    let since = value.to_str().ok().and_then(Since::parse);
    Some(since.unwrap_or(Since::After { boot: 0, seq: 0 }))
}
