//! The answers of `GET /healthz` and `GET /readyz`: is this process alive, should it get clients?

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Note, millis};
use crate::cluster::{Link, Reached};
use crate::people::for_people;

/// Whether the process is alive. Only a loop that has stopped says no: a restart would help then, and
/// against nothing else.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Health {
    /// `ok`, or `stuck`.
    pub(crate) status: &'static str,
    /// How long ago the loop that follows the fleet last went round; null once it has ended in good
    /// order.
    pub(crate) last_round_ms: Option<u64>,
}

/// Whether this node should get clients, and what is to be known.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Readiness {
    /// Whether it should.
    pub(crate) ready: bool,
    /// What is to be known, the reasons not to be ready first; codes only where no token is shown.
    pub(crate) reasons: Vec<Note>,
    /// Whether it is going.
    pub(crate) draining: bool,
    /// Whether it has gone so far that no client is left, nor can come.
    pub(crate) drained: bool,
    /// Whether it suspects itself.
    pub(crate) suspect: bool,
    /// Where another process uses its name; null as well where no token is shown.
    pub(crate) name_used_at: Option<String>,
    /// How long it only watches, after a start or a pause.
    pub(crate) observing_ms: u64,
    /// Whether enough members are live for any verdict of the fleet.
    pub(crate) cluster_can_decide: bool,
}

/// What readiness is judged by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    /// It is going.
    pub(crate) is_draining: bool,
    /// No client is left, nor can come.
    pub(crate) has_drained: bool,
    /// It suspects itself.
    pub(crate) is_suspect: bool,
    /// Whether that makes it unready, as configured.
    pub(crate) suspect_unready: bool,
    /// How long it only watches.
    pub(crate) observing: Duration,
    /// Where another process uses its name.
    pub(crate) name_used_at: Option<String>,
    /// Why the configuration that was last offered was refused.
    pub(crate) config_error: Option<String>,
    /// The pools of which every endpoint is out.
    pub(crate) pools_out: Vec<String>,
    /// How many pools there are.
    pub(crate) pools: usize,
    /// Whether enough members are live for any verdict of the fleet.
    pub(crate) can_decide: bool,
    /// How it stands with the ledger in which the fleet decides; `None`: there is none.
    pub(crate) reached: Option<Reached>,
}

/// A loop that has not gone round for this long is stuck: it is due ten times a second, and the longest
/// pause that a machine under load was seen to make is a few seconds.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// What strangers are told in place of every sentence.
const ASK: &str = "ask with a token for what this is about";

/// Most pools that are named in a reason.
const NAMED_MAX: usize = 5;

impl Health {
    /// `since` is how long ago the loop last went round; `None`: it has ended in good order.
    pub(crate) fn new(since: Option<Duration>) -> Self {
        let is_stuck = since.is_some_and(|since| since > STUCK_AFTER);
        let status = if is_stuck { "stuck" } else { "ok" };
        Self { status, last_round_ms: since.map(millis) }
    }

    /// Whether a restart would help.
    pub(crate) fn is_stuck(&self) -> bool {
        self.status == "stuck"
    }
}

impl Readiness {
    pub(crate) fn new(condition: &Condition) -> Self {
        Self {
            ready: condition.is_ready(),
            reasons: condition.reasons(),
            draining: condition.is_draining,
            drained: condition.has_drained,
            suspect: condition.is_suspect,
            name_used_at: condition.name_used_at.clone(),
            observing_ms: millis(condition.observing),
            cluster_can_decide: condition.can_decide,
        }
    }

    /// The same without what only operators need to know: names, addresses and settings.
    pub(crate) fn for_strangers(self) -> Self {
        let codes = self.reasons.into_iter().map(|reason| Note::new(reason.code, ASK));
        Self { reasons: codes.collect(), name_used_at: None, ..self }
    }
}

impl Condition {
    /// A node that refuses whatever it is asked is no place for a client, while others may be.
    fn is_ready(&self) -> bool {
        let refuses = self.reached.as_ref().is_some_and(|reached| reached.refuses());
        !(self.is_draining || refuses || self.is_suspect && self.suspect_unready)
    }

    fn ledger(&self) -> Option<Note> {
        let reached = self.reached.as_ref().filter(|reached| reached.link != Link::Up)?;
        let ready = if reached.refuses() { "" } else { "; ready" };
        Some(Note::new("redis_away", format!("{}{ready}", reached.sentence())))
    }

    fn reasons(&self) -> Vec<Note> {
        let suspect = if self.suspect_unready {
            "it suspects itself: it sees most endpoints fail, and nobody else does; look at its network"
        } else {
            "it suspects itself and abstains, ready all the same: look at its network"
        };
        let observing = || {
            let left = for_people(self.observing);
            format!("it has just started or was paused: it votes and leads in {left}; ready")
        };
        let name = |address: &String| {
            format!("another process uses this node's name at {address}: rename one; ready")
        };
        let config = |message: &String| {
            format!("the new configuration is refused, the old one is served: {message}")
        };
        let reasons = [
            self.is_draining.then(|| Note::new("draining", "it is going: send clients elsewhere")),
            self.ledger(),
            self.is_suspect.then(|| Note::new("suspect", suspect)),
            (!self.observing.is_zero()).then(|| Note::new("observing", observing())),
            self.name_used_at.as_ref().map(|address| Note::new("duplicate_name", name(address))),
            self.config_error.as_ref().map(|message| Note::new("config_error", config(message))),
            self.all_out(),
        ];
        reasons.into_iter().flatten().collect()
    }

    fn all_out(&self) -> Option<Note> {
        let count = self.pools_out.len();
        if count == 0 {
            return None;
        }
        let named: Vec<&str> = self.pools_out.iter().map(String::as_str).take(NAMED_MAX).collect();
        let more = if count > NAMED_MAX { ", …" } else { "" };
        let (named, pools) = (named.join(", "), self.pools);
        let message = format!(
            "every endpoint is out on this node in {count} of {pools} pools ({named}{more}); ready"
        );
        Some(Note::new("all_out", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(readiness: &Readiness) -> Vec<&str> {
        readiness.reasons.iter().map(|reason| reason.code).collect()
    }

    #[test]
    fn who_is_draining_is_not_ready_and_says_so_first() {
        let told = Readiness::new(&Condition {
            is_draining: true,
            observing: Duration::from_secs(3),
            ..Condition::default()
        });
        assert!(!told.ready);
        assert_eq!(codes(&told), ["draining", "observing"]);
    }

    #[test]
    fn a_suspect_is_ready_unless_the_configuration_says_otherwise() {
        let condition = Condition { is_suspect: true, ..Condition::default() };
        let told = Readiness::new(&condition);
        assert!(told.ready && codes(&told) == ["suspect"]);
        assert!(told.reasons[0].message.contains("ready all the same"), "{told:?}");
        let told = Readiness::new(&Condition { suspect_unready: true, ..condition });
        assert!(!told.ready && told.reasons[0].message.contains("look at its network"));
    }

    #[test]
    fn what_others_see_as_well_leaves_a_node_ready() {
        let told = Readiness::new(&Condition {
            observing: Duration::from_millis(3_200),
            name_used_at: Some("10.0.0.7:7946".to_owned()),
            config_error: Some("line 3: no such key".to_owned()),
            pools_out: (1..=7).map(|n| format!("pool-{n}")).collect(),
            pools: 9,
            ..Condition::default()
        });
        assert!(told.ready);
        assert_eq!(codes(&told), ["observing", "duplicate_name", "config_error", "all_out"]);
        assert!(told.reasons[0].message.contains("in 3.2 s"), "{told:?}");
        let out = &told.reasons[3].message;
        assert!(out.contains("7 of 9 pools") && out.contains("pool-5, …"), "{out}");
        // What the others have out it does not know.
        assert!(out.contains("out on this node") && out.ends_with("; ready"), "{out}");
    }

    #[test]
    fn a_stranger_is_told_the_codes_and_nothing_of_what_lies_inside() {
        let condition = Condition {
            is_draining: true,
            name_used_at: Some("10.0.0.7:7946".to_owned()),
            config_error: Some("gw.yaml, line 3: secret-pool has no endpoints".to_owned()),
            pools_out: vec!["secret-pool".to_owned()],
            pools: 1,
            ..Condition::default()
        };
        let (whole, told) = (Readiness::new(&condition), Readiness::new(&condition));
        let told = told.for_strangers();
        assert_eq!((codes(&told), told.ready), (codes(&whole), whole.ready));
        let text = serde_json::to_string(&told).unwrap();
        for inner in ["secret-pool", "gw.yaml", "10.0.0.7"] {
            assert!(!text.contains(inner), "{inner}: {text}");
        }
    }

    #[test]
    fn only_a_loop_that_stands_still_is_stuck() {
        assert!(!Health::new(Some(Duration::from_secs(30))).is_stuck());
        assert!(Health::new(Some(Duration::from_secs(31))).is_stuck());
        assert!(!Health::new(None).is_stuck(), "it has ended in good order");
    }
}
