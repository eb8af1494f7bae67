//! How this node stands with the ledger: whether it decides, since when, and what does meanwhile.
//!
//! It is written by the one task that speaks with the ledger and read by whoever tells of it. No
//! request looks here: what one has to know of it stands in the fleet ([`Fleet::bar`]).
//!
//! [`Fleet::bar`]: crate::fleet::Fleet::bar

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorum::EndpointKey;
use redis_lua::error::Trouble;

use super::lock;
use crate::config::{OnUnavailable, Redis, RedisMode};
use crate::people::for_people;

/// What has been so for less is said without its time.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Whether the ledger decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It does.
    Up,
    /// It answers again, and is being read before it does.
    Returning,
    /// It does not answer well; why, in one word.
    Away(&'static str),
}

impl Link {
    /// The word of the admin API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Returning => "returning",
            Self::Away(_) => "away",
        }
    }

    /// Why it does not answer well.
    pub fn trouble(self) -> Option<&'static str> {
        match self {
            Self::Up | Self::Returning => None,
            Self::Away(trouble) => Some(trouble),
        }
    }
}

/// Why the ledger does not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Redis itself does not answer well.
    Server {
        /// The server's address; empty: of none in particular.
        server: String,
        /// What was tried there, in a word or two; empty: nothing yet.
        step: &'static str,
        /// What became of it.
        trouble: Trouble,
    },
    /// Redis answers, and yet this endpoint's entry cannot be used.
    Entry {
        /// The endpoint.
        endpoint: EndpointKey,
        /// What was tried, by its script.
        deed: &'static str,
        /// What became of it.
        trouble: Trouble,
    },
}

impl Cause {
    /// What went wrong.
    pub fn trouble(&self) -> Trouble {
        match self {
            Self::Server { trouble, .. } | Self::Entry { trouble, .. } => *trouble,
        }
    }

    /// The server that it lies with.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Server { server, .. } => {
                Some(server.as_str()).filter(|server| !server.is_empty())
            }
            Self::Entry { .. } => None,
        }
    }

    /// The endpoint whose entry it lies with.
    pub fn endpoint(&self) -> Option<&EndpointKey> {
        match self {
            Self::Server { .. } => None,
            Self::Entry { endpoint, .. } => Some(endpoint),
        }
    }

    /// What was tried with that entry.
    pub fn deed(&self) -> Option<&'static str> {
        match self {
            Self::Server { .. } => None,
            Self::Entry { deed, .. } => Some(deed),
        }
    }

    /// What was tried: of an entry, or at a server.
    pub fn step(&self) -> Option<&'static str> {
        let step = match self {
            Self::Server { step, .. } => step,
            Self::Entry { deed, .. } => deed,
        };
        Some(*step).filter(|step| !step.is_empty())
    }
}

/// A part of a sentence, without a full stop.
impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trouble = self.trouble();
        match self {
            Self::Entry { endpoint, deed, .. } => {
                write!(out, "the entry of {endpoint} cannot be used ({deed}: {})", told(trouble))
            }
            Self::Server { server, .. } if server.is_empty() && trouble == Trouble::Away => {
                out.write_str("Redis is away")
            }
            Self::Server { server, step, .. } => {
                let place = [server.as_str(), step].into_iter().filter(|part| !part.is_empty());
                let place = place.collect::<Vec<_>>().join(" ");
                let colon = if place.is_empty() { "" } else { ": " };
                write!(out, "Redis is away ({place}{colon}{})", told(trouble))
            }
        }
    }
}

/// The trouble in the fewest words that say what to do.
fn told(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::Wrong(what) | Trouble::Tls(what) => what,
        Trouble::Away => "no connection",
        Trouble::Timeout | Trouble::Busy | Trouble::Refused(_) => trouble.kind(),
    }
}

/// What is known of the ledger.
pub struct Reach {
    mode: &'static str,
    meanwhile: OnUnavailable,
    /// Held for a few instructions, never over an await.
    state: Mutex<State>,
    conflicts: AtomicU64,
}

#[derive(Clone)]
struct State {
    link: Link,
    since: Duration,
    /// Why it does not decide, as far as that is known.
    cause: Option<Cause>,
    /// Whether requests are refused.
    is_barred: bool,
    /// For how long something else has decided, up to `since`.
    fallback: Duration,
}

/// How it stood at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// What kind of Redis it is.
    pub mode: &'static str,
    /// Whether it decides.
    pub link: Link,
    /// For how long that has been so.
    pub lasting: Duration,
    /// Why it does not decide, as far as that is known.
    pub cause: Option<Cause>,
    /// Whether every request for a model is refused.
    pub is_barred: bool,
    /// What decides while it does not.
    pub meanwhile: OnUnavailable,
    /// For how long something else has decided, all together.
    pub fallback: Duration,
    /// Calls that met something newer than their caller knew.
    pub conflicts: u64,
}

impl Reach {
    /// Of a Redis that was not asked yet.
    pub fn new(now: Duration, redis: &Redis) -> Self {
        let mode = match redis.mode {
            RedisMode::Standalone => "standalone",
            RedisMode::Sentinel { .. } => "sentinel",
            RedisMode::Cluster => "cluster",
        };
        let state = State {
            link: Link::Away("away"),
            since: now,
            cause: None,
            is_barred: redis.on_unavailable == OnUnavailable::FailClosed,
            fallback: Duration::ZERO,
        };
        let (state, conflicts) = (Mutex::new(state), AtomicU64::new(0));
        Self { mode, meanwhile: redis.on_unavailable, state, conflicts }
    }

    /// What decides while the ledger does not.
    pub fn meanwhile(&self) -> OnUnavailable {
        self.meanwhile
    }

    /// Notes that it decides from `now` on, or is being read to that end.
    pub fn turn(&self, now: Duration, link: Link) {
        let mut state = lock(&self.state);
        become_so(&mut state, now, link);
        if link == Link::Up {
            (state.cause, state.is_barred) = (None, false);
        }
    }

    /// Notes that it does not decide from `now` on, and why. Where requests are refused meanwhile, they
    /// are if `is_all`: nothing of it can be used.
    pub fn lose(&self, now: Duration, cause: Cause, is_all: bool) {
        let mut state = lock(&self.state);
        become_so(&mut state, now, Link::Away(cause.trouble().kind()));
        state.is_barred = is_all && self.meanwhile == OnUnavailable::FailClosed;
        state.cause = Some(cause);
    }

    /// Notes what stands in the way of its being read.
    pub fn hamper(&self, cause: Option<Cause>) {
        lock(&self.state).cause = cause;
    }

    /// Counts a call that met something newer than this node knew.
    pub fn conflicted(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// How it stands at `now`.
    pub fn look(&self, now: Duration) -> Reached {
        let state = lock(&self.state).clone();
        Reached {
            mode: self.mode,
            link: state.link,
            lasting: now.saturating_sub(state.since),
            fallback: state.fallback + fallen(&state, now),
            cause: state.cause,
            is_barred: state.is_barred,
            meanwhile: self.meanwhile,
            conflicts: self.conflicts.load(Ordering::Relaxed),
        }
    }
}

/// Another trouble alone is no other state.
fn become_so(state: &mut State, now: Duration, link: Link) {
    if state.link.as_str() != link.as_str() {
        state.fallback += fallen(state, now);
        state.since = now;
    }
    state.link = link;
}

/// For how long something else has decided since the last change.
fn fallen(state: &State, now: Duration) -> Duration {
    match state.link {
        Link::Up => Duration::ZERO,
        Link::Returning | Link::Away(_) => now.saturating_sub(state.since),
    }
}

impl Reached {
    /// What decides, were it not for the ledger: one entry that cannot be used is no reason to refuse.
    fn instead(&self) -> OnUnavailable {
        match self.meanwhile {
            OnUnavailable::FailClosed if !self.is_barred => OnUnavailable::Local,
            other => other,
        }
    }

    /// The word for what decides while the ledger does not; `None`: it does.
    pub fn fallback(&self) -> Option<&'static str> {
        let word = match self.instead() {
            OnUnavailable::Gossip => "gossip",
            OnUnavailable::Local => "local",
            OnUnavailable::FailClosed => "fail_closed",
        };
        (self.link != Link::Up).then_some(word)
    }

    /// Why it does not decide, in one word.
    pub fn trouble(&self) -> Option<&'static str> {
        let cause = self.cause.as_ref().filter(|_| self.link != Link::Up);
        self.link.trouble().or_else(|| cause.map(|cause| cause.trouble().kind()))
    }

    /// Whether every request for a model is refused.
    pub fn refuses(&self) -> bool {
        self.is_barred
    }

    /// Whether gossip's majority decides, or the ledger with as many votes; else each node is alone.
    pub fn is_together(&self) -> bool {
        self.link == Link::Up || self.meanwhile == OnUnavailable::Gossip
    }

    /// How it stands, in one sentence without a full stop.
    pub fn sentence(&self) -> String {
        let meanwhile = match self.instead() {
            OnUnavailable::Gossip => "by the gossip majority meanwhile",
            OnUnavailable::Local => "each node goes by its own breaker meanwhile",
            OnUnavailable::FailClosed => "requests for a model are refused (503) meanwhile",
        };
        let lasting = if self.lasting < AT_ONCE {
            String::new()
        } else {
            format!(" for {}", for_people(self.lasting))
        };
        let cause = self.cause.as_ref();
        match self.link {
            Link::Up => "the fleet decides through Redis".to_owned(),
            Link::Returning => {
                let because = match cause {
                    Some(Cause::Entry { .. }) => cause.map(|cause| format!(", {cause}")),
                    Some(Cause::Server { .. }) | None => None,
                };
                let because = because.unwrap_or_default();
                format!("Redis is back and is being read{lasting}{because}: {meanwhile}")
            }
            Link::Away(_) => {
                let why = cause.map_or_else(|| "Redis is away".to_owned(), Cause::to_string);
                format!("{why}{lasting}: {meanwhile}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn server(server: &str, step: &'static str, trouble: Trouble) -> Cause {
        Cause::Server { server: server.to_owned(), step, trouble }
    }

    fn reach(on_unavailable: OnUnavailable) -> Reach {
        let redis = Redis {
            urls: vec!["redis://a:6379".to_owned()],
            mode: RedisMode::Standalone,
            prefix: "quorumgate".to_owned(),
            timeout: Duration::from_millis(100),
            username: None,
            password: None,
            sentinel_password: None,
            tls: None,
            on_unavailable,
        };
        Reach::new(at(0), &redis)
    }

    #[test]
    fn only_the_time_in_which_something_else_decides_is_counted() {
        let reach = reach(OnUnavailable::Gossip);
        reach.turn(at(2), Link::Returning);
        reach.turn(at(3), Link::Up);
        assert_eq!(reach.look(at(100)).fallback, at(3));
        reach.lose(at(100), server("", "", Trouble::Timeout), true);
        reach.lose(at(104), server("", "", Trouble::Refused("LOADING")), true);
        assert_eq!(
            reach.look(at(100)).sentence(),
            "Redis is away (LOADING): by the gossip majority meanwhile"
        );
        let looked = reach.look(at(112));
        assert_eq!((looked.lasting, looked.fallback), (at(12), at(15)));
        assert_eq!(looked.link.trouble(), Some("LOADING"));
        assert_eq!(
            looked.sentence(),
            "Redis is away (LOADING) for 12 s: by the gossip majority meanwhile"
        );
    }

    #[test]
    fn what_decides_meanwhile_is_said() {
        for (meanwhile, word, refuses, is_together) in [
            (OnUnavailable::Gossip, "gossip", false, true),
            (OnUnavailable::Local, "local", false, false),
            (OnUnavailable::FailClosed, "fail_closed", true, false),
        ] {
            let reach = reach(meanwhile);
            let away = reach.look(at(1));
            assert!(away.sentence().starts_with("Redis is away for 1 s: "), "{}", away.sentence());
            assert_eq!(
                (away.fallback(), away.refuses(), away.is_together()),
                (Some(word), refuses, is_together)
            );
            reach.turn(at(1), Link::Up);
            let up = reach.look(at(1));
            assert_eq!((up.fallback(), up.refuses(), up.is_together()), (None, false, true));
            assert_eq!(up.sentence(), "the fleet decides through Redis");
        }
    }
    #[test]
    fn a_sentence_names_the_server_the_step_and_what_became_of_it() {
        let away = |cause| {
            let reach = reach(OnUnavailable::Local);
            reach.lose(at(0), cause, true);
            reach.look(at(12)).sentence()
        };
        let meanwhile = "for 12 s: each node goes by its own breaker meanwhile";
        for (cause, wanted) in [
            (server("", "", Trouble::Away), "Redis is away".to_owned()),
            (
                server("a:1", "connect", Trouble::Away),
                "Redis is away (a:1 connect: no connection)".to_owned(),
            ),
            (
                server("a:1", "TLS", Trouble::Tls("its certificate has expired")),
                "Redis is away (a:1 TLS: its certificate has expired)".to_owned(),
            ),
            (
                server("", "SENTINEL", Trouble::Refused("NOAUTH")),
                "Redis is away (SENTINEL: NOAUTH)".to_owned(),
            ),
        ] {
            assert_eq!(away(cause), format!("{wanted} {meanwhile}"));
        }
    }

    #[test]
    fn one_entry_that_cannot_be_used_refuses_nobody_and_is_named() {
        let reach = reach(OnUnavailable::FailClosed);
        assert!(reach.look(at(0)).refuses(), "nothing is known yet");
        let (endpoint, trouble) = (EndpointKey::new("m/b"), Trouble::Refused("WRONGTYPE"));
        let cause = Cause::Entry { endpoint, deed: "read", trouble };
        reach.lose(at(0), cause.clone(), false);
        let reached = reach.look(at(2));
        assert_eq!((reached.refuses(), reached.fallback()), (false, Some("local")));
        assert_eq!(
            reached.sentence(),
            "the entry of m/b cannot be used (read: WRONGTYPE) for 2 s: each node goes by its own breaker \
             meanwhile"
        );
        reach.lose(at(2), cause, true);
        let reached = reach.look(at(2));
        assert_eq!((reached.refuses(), reached.fallback()), (true, Some("fail_closed")));
    }

    #[test]
    fn that_it_is_being_read_for_long_is_said_with_what_stands_in_the_way() {
        let reach = reach(OnUnavailable::Gossip);
        reach.turn(at(1), Link::Returning);
        let (endpoint, trouble) = (EndpointKey::new("m/b"), Trouble::Timeout);
        reach.hamper(Some(Cause::Entry { endpoint, deed: "read", trouble }));
        assert_eq!(
            reach.look(at(6)).sentence(),
            "Redis is back and is being read for 5 s, the entry of m/b cannot be used (read: timeout): by \
             the gossip majority meanwhile"
        );
    }
}
