//! `GET events`: from where a follower wants to be told.

use hyper::StatusCode;
use hyper::header::HeaderMap;

use super::route::Asked;
use super::{Admin, Reply};
use crate::events::{Feed, Since, TooMany};

/// Follows the events from `since`, or from where the header of a reconnection says.
pub(super) fn events(admin: &Admin, asked: &Asked<'_>) -> Reply {
    let since = match asked.query.get("since").map(Since::parse) {
        Some(Some(since)) => since,
        Some(None) => {
            let message = "since must be the id of an event, or 0 for all that is kept.";
            return Reply::invalid_query(message);
        }
        None => last_seen(asked.headers).unwrap_or(Since::Now),
    };
    let is_until_now = asked.query.get("until").is_some();
    match admin.events.follow(since, is_until_now) {
        Ok(follower) => Reply::Feed(Box::new(Feed::new(follower))),
        Err(error @ TooMany) => Reply::error(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_followers",
            format!("{error}; close one of them, or read with until=now once there is room."),
        ),
    }
}

/// The place that `Last-Event-ID` names. One that cannot be read is taken for one of another life of the
/// node: whoever reconnects by itself would not understand a refusal.
fn last_seen(headers: &HeaderMap) -> Option<Since> {
    let value = headers.get("last-event-id")?;
    let since = value.to_str().ok().and_then(Since::parse);
    Some(since.unwrap_or(Since::After { boot: 0, seq: 0 }))
}
