//! `top`: members and endpoints in a table that renews itself, in any terminal and over any line.
//!
//! `frame` decides what stands on the screen, `screen` alone speaks to the terminal. A gateway that
//! stops answering leaves the last picture standing, with a line that says how old it is.
//!
//! Invariants: the terminal is given back as it was found, however it ends; a terminal of any size
//! can be drawn on; at most one look is under way.

mod frame;
mod screen;

use std::io::{IsTerminal, stdin, stdout};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::time::Duration;

use gateway::clock;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::frame::Frame;
use self::screen::{Key, Screen};
use super::client::Client;
use super::failure::Failure;
use super::table::WIDTH;
use super::text::{harmless, period, plain};
use super::{Output, say};

/// Between two looks: more often is load, more seldom is not live.
const EVERY: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(60);

/// What one look has seen.
struct Picture {
    cluster: Value,
    members: Value,
    endpoints: Value,
}

/// Reads the time between two looks.
///
/// # Errors
/// It is none, or out of bounds.
pub(super) fn interval(text: &str) -> Result<Duration, Failure> {
    let refuse = |why: &str| Failure::usage(format!("--every {}: {why}", plain(text)));
    let every = gateway::config::parse_duration(text).map_err(|why| refuse(&why))?;
    if EVERY.contains(&every) { Ok(every) } else { Err(refuse("use 200ms to 60s")) }
}

/// Shows the fleet until `q`, or once where the output is no terminal.
///
/// # Errors
/// The first look fails, or the token does not allow it.
pub(super) async fn run(client: &Client, every: Duration, output: Output) -> Result<(), Failure> {
    let first = look(client).await?;
    if output == Output::Json {
        let Picture { cluster, members, endpoints } = first;
        let document = json!({ "cluster": cluster, "members": members, "endpoints": endpoints });
        return say(&format!("{}\n", harmless(&document.to_string())));
    }
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        let frame = Frame { picture: &first, problem: None, scroll: 0, is_live: false };
        let lines = frame.lines(WIDTH, usize::MAX);
        return say(&lines.iter().map(|line| format!("{}\n", line.text)).collect::<String>());
    }
    let screen = Screen::open().map_err(|error| Failure::unavailable(error.to_string()))?;
    live(client, every, first, screen).await
}

async fn look(client: &Client) -> Result<Picture, Failure> {
    Ok(Picture {
        cluster: client.get("cluster").await?.value,
        members: client.get("members").await?.value,
        endpoints: client.get("endpoints").await?.value,
    })
}

/// What may interrupt the wait for the next look.
struct Signals {
    resized: Signal,
    terminated: Signal,
    hung_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            resized: signal(SignalKind::window_change())?,
            terminated: signal(SignalKind::terminate())?,
            hung_up: signal(SignalKind::hangup())?,
        })
    }
}

async fn live(
    client: &Client,
    every: Duration,
    first: Picture,
    mut screen: Screen,
) -> Result<(), Failure> {
    type Look<'a> = Pin<Box<dyn Future<Output = Result<Picture, Failure>> + 'a>>;
    let after = |pause: Duration| -> Look<'_> {
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            look(client).await
        })
    };
    let mut signals = Signals::new().map_err(|error| Failure::unavailable(error.to_string()))?;
    let mut picture = first;
    let mut seen_at = clock::now();
    let mut failure: Option<String> = None;
    let mut scroll: usize = 0;
    let mut next = after(every);
    loop {
        let problem = failure.as_ref().map(|why| {
            let age = clock::now().saturating_sub(seen_at);
            let age = period(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            format!("seen {age} ago; {why}")
        });
        let frame = Frame { picture: &picture, problem, scroll, is_live: true };
        let (width, height) = screen.size();
        if screen.draw(&frame.lines(width, height)).is_err() {
            return Ok(());
        }
        tokio::select! {
            key = screen.key() => match key {
                None | Some(Key::Quit) => return Ok(()),
                Some(Key::Down) => scroll = scroll.saturating_add(1).min(frame.scroll_max()),
                Some(Key::Up) => scroll = scroll.saturating_sub(1),
                Some(Key::Other) => {}
            },
            _ = signals.resized.recv() => {}
            _ = signals.terminated.recv() => return Ok(()),
            _ = signals.hung_up.recv() => return Ok(()),
            seen = &mut next => {
                match seen {
                    Ok(seen) => (picture, seen_at, failure) = (seen, clock::now(), None),
                    Err(error) => failure = Some(error.message),
                }
                next = after(every);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_its_bounds() {
        assert_eq!(interval("200ms").unwrap(), Duration::from_millis(200));
        assert_eq!(interval("1m").unwrap(), Duration::from_secs(60));
        for text in ["199ms", "61s", "1", ""] {
            assert_eq!(interval(text).unwrap_err().code, 64, "{text}");
        }
    }

    #[test]
    fn any_terminal_can_be_drawn_on() {
        let rows: Vec<Value> =
            (0..50).map(|n| json!({ "endpoint": format!("m/{n}"), "verdict": "out: …" })).collect();
        let picture = Picture {
            cluster: Value::Null,
            members: json!({ "members": [{ "id": "gw-1", "self": true, "state": "live" }] }),
            endpoints: json!({ "endpoints": rows }),
        };
        for problem in [None, Some("gone".to_owned())] {
            let sizes = [0, 1, 2, 3, 4, 5, 6, 7, 10, 20, 24, 79, 80, 81, 500];
            let sizes = sizes.iter().flat_map(|width| sizes.map(|height| (*width, height)));
            for (width, height) in sizes {
                let scroll = height * 7 % 60;
                let problem = problem.clone();
                let frame = Frame { picture: &picture, problem, scroll, is_live: true };
                let lines = frame.lines(width, height);
                assert!(lines.len() <= height);
                assert!(lines.iter().all(|line| line.text.chars().count() <= width));
            }
        }
    }

    #[test]
    fn what_is_out_comes_first() {
        let row = |name: &str, is_in: bool| json!({ "endpoint": name, "in_rotation": is_in });
        let endpoints = json!({ "endpoints": [row("m/a", true), row("m/b", false)] });
        let (cluster, members) = (Value::Null, Value::Null);
        let picture = Picture { cluster, members, endpoints };
        let frame = Frame { picture: &picture, problem: None, scroll: 0, is_live: false };
        let lines = frame.lines(80, usize::MAX);
        let at = |name| lines.iter().position(|line| line.text.starts_with(name)).unwrap();
        assert!(at("m/b") < at("m/a"));
        assert_eq!(lines[at("m/b")].style, frame::Style::Bad);
    }
}
