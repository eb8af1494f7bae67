//! What this crate promises of any answer of a server, as functions that panic where a promise is broken.
//!
//! Fuzzers look for such answers (`gateway/fuzz`), and the gateway's tests run all that they have found
//! so far. It is compiled for them only.

use quorum::ledger::NUMBER_MAX;

use crate::ledger::{is_name, reply};
use crate::roll;

/// An answer, whatever a script or somebody else has put into it, is read strictly or not at all: what
/// is read has names that are names and numbers that Lua can hold.
pub fn answers(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    if let Ok(reply) = reply(&value) {
        let entry = &reply.answer.entry;
        let floor = [entry.floor.version, entry.floor.epoch, entry.floor.lead];
        assert!(floor.iter().all(|number| *number <= NUMBER_MAX), "{entry:?}");
        let stewards = entry.step.iter().map(|step| step.steward.as_str());
        let authors = entry.order.iter().map(|order| order.author.as_str());
        let holders = entry.lead.iter().map(|lead| lead.holder.as_str());
        assert!(stewards.chain(authors).chain(holders).all(is_name), "{entry:?}");
    }
    roll::promise(value);
}
