//! How this node stands with the ledger: whether it decides, since when, and what does meanwhile.
//!
//! It is written by the one task that speaks with the ledger and read by whoever tells of it. No
//! request looks here: what one has to know of it stands in the fleet ([`Fleet::bar`]).
//!
//! [`Fleet::bar`]: crate::fleet::Fleet::bar

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// What is known of the ledger.
pub struct Reach {
    mode: &'static str,
    meanwhile: OnUnavailable,
    /// Held for a few instructions, never over an await.
    state: Mutex<State>,
    conflicts: AtomicU64,
}

#[derive(Clone, Copy)]
struct State {
    link: Link,
    since: Duration,
    /// For how long something else has decided, up to `since`.
    fallback: Duration,
}

/// How it stood at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// What kind of Redis it is.
    pub mode: &'static str,
    /// Whether it decides.
    pub link: Link,
    /// For how long that has been so.
    pub lasting: Duration,
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
        let state = State { link: Link::Away("away"), since: now, fallback: Duration::ZERO };
        let (state, conflicts) = (Mutex::new(state), AtomicU64::new(0));
        Self { mode, meanwhile: redis.on_unavailable, state, conflicts }
    }

    /// What decides while the ledger does not.
    pub fn meanwhile(&self) -> OnUnavailable {
        self.meanwhile
    }

    /// Notes that it is so from `now` on. Returns whether that is another state; another trouble alone
    /// is none.
    pub fn turn(&self, now: Duration, link: Link) -> bool {
        let mut state = lock(&self.state);
        let is_other = state.link.as_str() != link.as_str();
        if is_other {
            let fallen = fallen(&state, now);
            state.fallback += fallen;
            state.since = now;
        }
        state.link = link;
        is_other
    }

    /// Counts a call that met something newer than this node knew.
    pub fn conflicted(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// How it stands at `now`.
    pub fn look(&self, now: Duration) -> Reached {
        let state = *lock(&self.state);
        Reached {
            mode: self.mode,
            link: state.link,
            lasting: now.saturating_sub(state.since),
            meanwhile: self.meanwhile,
            fallback: state.fallback + fallen(&state, now),
            conflicts: self.conflicts.load(Ordering::Relaxed),
        }
    }
}

/// For how long something else has decided since the last change.
fn fallen(state: &State, now: Duration) -> Duration {
    match state.link {
        Link::Up => Duration::ZERO,
        Link::Returning | Link::Away(_) => now.saturating_sub(state.since),
    }
}

impl Reached {
    /// The word for what decides while the ledger does not; `None`: it does.
    pub fn fallback(&self) -> Option<&'static str> {
        let word = match self.meanwhile {
            OnUnavailable::Gossip => "gossip",
            OnUnavailable::Local => "local",
            OnUnavailable::FailClosed => "fail_closed",
        };
        (self.link != Link::Up).then_some(word)
    }

    /// Whether every request for a model is refused.
    pub fn refuses(&self) -> bool {
        self.link != Link::Up && self.meanwhile == OnUnavailable::FailClosed
    }

    /// Whether gossip's majority decides, or the ledger with as many votes; else each node is alone.
    pub fn is_together(&self) -> bool {
        self.link == Link::Up || self.meanwhile == OnUnavailable::Gossip
    }

    /// How it stands, in one sentence without a full stop.
    pub fn sentence(&self) -> String {
        let meanwhile = match self.meanwhile {
            OnUnavailable::Gossip => "by the gossip majority meanwhile",
            OnUnavailable::Local => "each node goes by its own breaker meanwhile",
            OnUnavailable::FailClosed => "requests for a model are refused (503) meanwhile",
        };
        match self.link {
            Link::Up => "the fleet decides through Redis".to_owned(),
            Link::Returning => format!("Redis is back and is being read: {meanwhile}"),
            Link::Away(trouble) => {
                // There is no connection, which is what the word says.
                let trouble = match trouble {
                    "away" => String::new(),
                    trouble => format!(" ({trouble})"),
                };
                let lasting = if self.lasting < AT_ONCE {
                    String::new()
                } else {
                    format!(" for {}", for_people(self.lasting))
                };
                format!("Redis is away{trouble}{lasting}: {meanwhile}")
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
        assert!(reach.turn(at(2), Link::Returning));
        assert!(reach.turn(at(3), Link::Up));
        assert_eq!(reach.look(at(100)).fallback, at(3));
        assert!(reach.turn(at(100), Link::Away("timeout")));
        assert!(!reach.turn(at(104), Link::Away("LOADING")), "that is no other state");
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
}
