//! `events`: what happens in the fleet, a line each, for as long as somebody reads.
//!
//! Whoever follows wants to miss nothing, so a connection that breaks is made again and goes on
//! after the last event that was seen; what can no longer be told comes as an event of its own.
//!
//! Invariants: an answer that is silent beyond three heartbeats is taken for dead; the pause between
//! two attempts is bounded, and so is a line; it ends by Ctrl-C or with its reader.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::client::{Client, Following};
use super::failure::{Failure, UNAVAILABLE};
use super::text::{moment, number, plain, word};
use super::{Output, is_read};

/// The API sends a comment every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// Between two attempts to follow again, the shortest and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest line of a stream, in bytes; an event of the API is far shorter.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Follows the events after `since`, or from here on.
pub(super) async fn follow(
    client: &Client,
    since: Option<&str>,
    no_follow: bool,
    output: Output,
) -> Result<(), Failure> {
    tokio::select! {
        ended = follow_on(client, since, no_follow, output) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// How one connection ended.
enum End {
    /// Whoever reads has read enough.
    Read,
    /// All that was to be told is told.
    Told,
    /// It broke.
    Broken,
}

async fn follow_on(
    client: &Client,
    since: Option<&str>,
    no_follow: bool,
    output: Output,
) -> Result<(), Failure> {
    let since = since.or(no_follow.then_some("0"));
    let path = path(since, no_follow);
    let mut last: Option<String> = None;
    let mut following = client.follow(&path, None).await?;
    loop {
        match tell(&mut following, &mut last, output).await? {
            End::Read => return Ok(()),
            End::Told if no_follow => return Ok(()),
            End::Broken if no_follow => {
                let address = client.address();
                return Err(Failure::unavailable(format!("{address}: cut off; try again")));
            }
            End::Told | End::Broken => {}
        }
        // An id in the path would win over the header, and tell everything again.
        let path = if last.is_some() { "events" } else { &path };
        following = again(client, path, last.as_deref()).await?;
    }
}

/// Follows again after a connection that broke; a gateway that is away may come back.
async fn again(client: &Client, path: &str, last: Option<&str>) -> Result<Following, Failure> {
    let mut pause = PAUSE;
    let mut is_told = false;
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
        match client.follow(path, last).await {
            Ok(following) => return Ok(following),
            Err(failure) if failure.code == UNAVAILABLE => {
                if !is_told {
                    eprintln!("quorumgate: {}; trying again", plain(&failure.message));
                }
                is_told = true;
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn path(since: Option<&str>, no_follow: bool) -> String {
    let mut parts = Vec::new();
    if let Some(since) = since {
        parts.push(format!("since={}", super::name::in_path(since)));
    }
    if no_follow {
        parts.push("until=now".to_owned());
    }
    if parts.is_empty() { "events".to_owned() } else { format!("events?{}", parts.join("&")) }
}

/// Tells what arrives until it ends, and keeps the id of the last event.
async fn tell(
    following: &mut Following,
    last: &mut Option<String>,
    output: Output,
) -> Result<End, Failure> {
    let mut reader = Reader::default();
    loop {
        let frame = match timeout(SILENCE, following.body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(End::Told),
            Ok(Some(Err(_))) | Err(_) => return Ok(End::Broken),
        };
        let Ok(data) = frame.into_data() else { continue };
        for event in reader.read(&data) {
            if let Some(id) = event.id {
                *last = Some(id);
            }
            // A place alone, told before anything happens.
            if event.data.is_empty() {
                continue;
            }
            if !is_read(&line(&event.kind, &event.data, output))? {
                return Ok(End::Read);
            }
        }
    }
}

/// One event as a line with its end.
fn line(kind: &str, data: &str, output: Output) -> String {
    let value: Value = match (output, serde_json::from_str(data)) {
        (Output::Json, _) | (Output::Text, Err(_)) => return format!("{}\n", plain(data)),
        (Output::Text, Ok(value)) => value,
    };
    let when = number(&value, "/unix_ms").map_or_else(|| "-".to_owned(), moment);
    format!(
        "{when}  {:<8}  {}  {}  {}\n",
        plain(kind),
        word(&value, "/endpoint"),
        word(&value, "/node"),
        word(&value, "/what")
    )
}

/// One server-sent event, or only a place among them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    id: Option<String>,
    kind: String,
    data: String,
}

/// Takes a stream of events apart, wherever it is cut into pieces.
#[derive(Default)]
struct Reader {
    rest: Vec<u8>,
    event: Event,
}

impl Reader {
    /// The events that `bytes` complete.
    fn read(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            // A line beyond the bound is no event of ours; its rest is dropped.
            if self.rest.len() + piece.len() <= LINE_BYTES_MAX {
                self.rest.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.rest);
                let line = String::from_utf8_lossy(&line);
                events.extend(self.line(line.trim_end_matches(['\r', '\n'])));
            }
        }
        events
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (!event.data.is_empty() || event.id.is_some()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event.kind),
            "data" if self.event.data.len() + value.len() <= LINE_BYTES_MAX => {
                self.event.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": heartbeat\n\nid: 7-1\r\nevent: flip\ndata: {\"a\":1}\n\nid: 7-2\n\
                          event: vote\ndata: x\n\n";

    #[test]
    fn events_are_read_wherever_the_stream_is_cut() {
        let mut whole = Reader::default();
        let wanted = whole.read(STREAM.as_bytes());
        assert_eq!(wanted.len(), 2);
        assert_eq!(wanted[0].id.as_deref(), Some("7-1"));
        assert_eq!((wanted[0].kind.as_str(), wanted[0].data.as_str()), ("flip", "{\"a\":1}"));
        for cut in 0..STREAM.len() {
            let (head, tail) = STREAM.as_bytes().split_at(cut);
            let mut reader = Reader::default();
            let mut events = reader.read(head);
            events.extend(reader.read(tail));
            assert_eq!(events, wanted, "cut at {cut}");
        }
    }

    #[test]
    fn a_place_without_an_event_is_kept_too() {
        let places =
            Reader::default().read(b": what happens follows\nid: 7-12\n\n: still here\n\n");
        let place = Event { id: Some("7-12".to_owned()), ..Event::default() };
        assert_eq!(places, [place]);
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let mut reader = Reader::default();
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..64 {
            assert!(reader.read(&piece).is_empty());
        }
        assert!(reader.rest.len() <= LINE_BYTES_MAX);
    }

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        let data =
            "{\"unix_ms\":0,\"endpoint\":\"m/b\",\"node\":\"gw-1\",\"what\":\"a\\nb\\u001b[2J\"}";
        let wanted = "01-01 00:00:00  flip      m/b  gw-1  a b [2J\n";
        assert_eq!(line("flip", data, Output::Text), wanted);
        assert_eq!(line("flip", "no\u{1b}json", Output::Text), "no json\n");
    }

    #[test]
    fn what_is_asked_for_stands_in_the_path() {
        assert_eq!(path(None, false), "events");
        assert_eq!(path(Some("7-1"), false), "events?since=7-1");
        assert_eq!(path(Some("0"), true), "events?since=0&until=now");
        assert_eq!(path(Some("a&b"), false), "events?since=a%26b");
    }
}
