//! What becomes of this node's word in the council when its endpoints are others.
//!
//! An endpoint that is gone is retired, a new one enrolled; one that stays is held to what was decided
//! and ordered about it. At another address it is a machine of which this node knows nothing, so what
//! the fleet has decided about its name holds on here too, until the fleet's probe says otherwise, and
//! a canary slot that this node held for the other machine is handed on.

use std::sync::Arc;
use std::time::Duration;

use super::{Deputy, enrolment};
use crate::cluster::lock;
use crate::fleet::Heir;

impl Deputy {
    /// Speaks for the endpoints of `heir` from `now` on, and enforces what is new about them.
    pub fn adopt(&self, now: Duration, heir: &Heir) {
        let _turn = lock(&self.turn);
        heir.enforce(now);
        let fleet = &heir.fleet;
        let before = self.fleet.swap(Arc::clone(fleet));
        let mut council = self.council();
        for (_, endpoint) in before.endpoints() {
            if fleet.endpoint(&endpoint.key).is_none() {
                endpoint.retire();
                lock(&self.lent).remove(&endpoint.key);
                council.retire(&endpoint.key);
            }
        }
        for (pool, endpoint) in fleet.endpoints() {
            let key = &endpoint.key;
            council.enrol(key.clone(), enrolment(pool, endpoint));
            let is_other = before.endpoint(key).is_some_and(|(_, old)| !endpoint.goes_on_from(old));
            if !is_other {
                continue;
            }
            // An order may have come while the endpoint was made.
            if let Some((_, old)) = before.endpoint(key) {
                endpoint.force(old.forced());
                old.retire();
            }
            if council.is_open(key) {
                endpoint.hold(now);
            }
            if let Some(slot) = lock(&self.lent).remove(key) {
                council.hand_back(now, key, slot.fence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use breaker::{Cause, Errand, Outcome, State};
    use quorum::{
        Basis, Card, EndpointKey, Evidence, Heard, Member, NodeId, Standing, Statement, Vote,
        VoteState,
    };

    use super::*;
    use crate::cluster::council_rule;
    use crate::config;
    use crate::fleet::{Endpoint, Fleet};
    use crate::metrics::Meters;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn pools(endpoints: &[(&str, &str)]) -> Vec<config::Pool> {
        let row = |(name, address): &(&str, &str)| {
            format!("{{ name: {name}, address: \"http://{address}\" }}")
        };
        let rows = endpoints.iter().map(row).collect::<Vec<_>>().join(", ");
        let text = format!(
            "circuit_breaker: {{ failure_threshold: 1, open: {{ base: 60s, max: 60s }} }}
models: [ {{ name: m, endpoints: [ {rows} ] }} ]
"
        );
        config::parse(&text, "test.yaml", &|_| None).unwrap().pools
    }

    /// Another member, which votes against `m/a`.
    fn other(pulse: u64) -> Member {
        let (basis, state, age) = (Basis::FirstHand, VoteState::Stands, at(1));
        let (reason, evidence) = ("faults".to_owned(), Evidence::default());
        let vote = Vote { incident: 1, basis, state, reason, evidence, age };
        let statement = Statement::Vote(EndpointKey::new("m/a"), vote);
        let (version, config_hash) = (String::new(), String::new());
        let standing = Standing::Serving;
        Member {
            id: NodeId::new("gw-2"),
            generation: 1,
            address: String::new(),
            is_live: true,
            card: Some(Card { version, config_hash, standing, is_suspect: false }),
            pulse,
            heard: vec![Heard { seq: 1, statement }],
        }
    }

    /// One of two nodes, whose fleet has `m/a` out, at `at(3)`.
    fn convicted() -> Deputy {
        let sink: crate::fleet::Sink = Arc::new(|_| {});
        let fleet = Fleet::new(&pools(&[("a", "a"), ("b", "b")]), &Meters::new(), &sink);
        let deputy = Deputy::new(NodeId::new("gw"), council_rule(None), Arc::new(fleet), at(0));
        deputy.round(at(1), &[other(1)]);
        let a = endpoint(&deputy, "m/a").unwrap();
        let fault = Outcome::Fault { weight: 1.0, cause: Cause::Refused };
        let admitted = a.admit(at(1), Errand::Request { prompt_tokens: 1 }).unwrap();
        admitted.settle(at(1), fault);
        deputy.round(at(2), &[other(2)]);
        deputy.round(at(3), &[other(3)]);
        assert!(deputy.council().is_open(&a.key) && a.is_held());
        deputy
    }

    fn endpoint(deputy: &Deputy, key: &str) -> Option<Arc<Endpoint>> {
        let fleet = deputy.fleet();
        fleet.endpoint(&EndpointKey::new(key)).map(|(_, endpoint)| Arc::clone(endpoint))
    }

    fn take(deputy: &Deputy, now: Duration, endpoints: &[(&str, &str)]) {
        let sink: crate::fleet::Sink = Arc::new(|_| {});
        deputy.adopt(now, &deputy.fleet().heir(&pools(endpoints), &Meters::new(), &sink));
    }

    #[test]
    fn what_the_fleet_has_decided_about_a_name_holds_at_another_address() {
        let deputy = convicted();
        take(&deputy, at(4), &[("a", "elsewhere"), ("b", "b")]);
        let a = endpoint(&deputy, "m/a").unwrap();
        assert!(a.is_held() && a.local_opening().is_none(), "it holds no opinion of its own");
        assert_eq!(a.view(at(4)).state, State::Closed);
        deputy.round(at(5), &[other(4)]);
        assert!(a.is_held(), "a round later too");
    }

    #[test]
    fn an_order_that_changes_while_an_address_does_is_neither_lost_nor_sticks() {
        use quorum::Forced;
        let deputy = convicted();
        let sink: crate::fleet::Sink = Arc::new(|_| {});
        let orders = [Forced::Open, Forced::Auto];
        for (time, (address, forced)) in (4..).zip(["x", "y"].into_iter().zip(orders)) {
            let pools = pools(&[("a", address), ("b", "b")]);
            let heir = deputy.fleet().heir(&pools, &Meters::new(), &sink);
            endpoint(&deputy, "m/a").unwrap().force(forced);
            deputy.adopt(at(time), &heir);
            assert_eq!(endpoint(&deputy, "m/a").unwrap().forced(), forced);
        }
    }

    #[test]
    fn who_is_gone_is_forgotten_and_who_comes_back_begins_anew() {
        let deputy = convicted();
        let a = EndpointKey::new("m/a");
        take(&deputy, at(4), &[("b", "b")]);
        assert!(endpoint(&deputy, "m/a").is_none() && !deputy.council().is_open(&a));
        deputy.round(at(5), &[]);
        take(&deputy, at(6), &[("a", "a"), ("b", "b"), ("c", "c")]);
        deputy.round(at(7), &[]);
        for key in ["m/a", "m/b", "m/c"] {
            let one = endpoint(&deputy, key).unwrap();
            assert!(!one.is_held() && !deputy.council().is_open(&one.key), "{key}");
            assert!(deputy.council().endpoint(at(7), &one.key).is_some(), "{key} is enrolled");
        }
    }
}
