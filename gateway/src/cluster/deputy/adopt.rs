//! What becomes of this node's word in the council when its endpoints are others.
//!
//! An endpoint that is gone is retired, a new one enrolled; one that stays is held to what was decided
//! and ordered about it. At another address it is a machine of which this node knows nothing, so what
//! the fleet has decided about its name holds on here too, until the fleet's probe says otherwise, and
//! a canary slot that this node held for the other machine is handed on.

use std::sync::Arc;
use std::time::Duration;

use quorum::CanaryWord;

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
            if council.is_open(key) {
                endpoint.hold(now);
            }
            if let Some(slot) = lock(&self.lent).remove(key) {
                council.canaried(now, key, slot.fence, CanaryWord::Idle);
            }
        }
    }
}
