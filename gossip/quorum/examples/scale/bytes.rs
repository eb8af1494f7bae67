//! How many bytes words take on the wire, by the layout of the gossip crate's records.
//!
//! A record is bincode (numbers of variable length), sealed with its writer's signature, written as
//! base64 into a value of the carrier, which adds a key, a version and a status.

use quorum::{Stage, Statement};

/// A format byte, a sequence number, the kind.
const RECORD: usize = 1 + 3 + 1;
/// An ECDSA P-256 signature as DER, its scheme and two lengths.
const SEAL: usize = 72 + 3 + 3;
/// The key's letter and length, the carrier's version, status and lengths.
const PAIR: usize = 4 + 8 + 1 + 4;
/// A digest has a name, a generation, an address, a heartbeat and two versions; the carrier was
/// measured to send 16 KB/s per node at fifty members, 320 bytes for each member a second.
const DIGEST_A_SECOND: usize = 320;
/// A pulse is raised every two seconds, and every node learns of each about twice.
const PULSES_A_SECOND: f64 = 0.5 * 2.0;

/// The bytes of one statement.
pub(crate) fn of(statement: &Statement) -> usize {
    let name = statement.subject().len();
    let body = match statement {
        // Incident, basis, state, reason, four numbers of evidence, age.
        Statement::Vote(_, vote) => 1 + 1 + 1 + 1 + vote.reason.len() + 4 * 2 + 3,
        // Incident, failures, level, stage with its time, steward, age, held.
        Statement::Step(_, step) => {
            let stage = match &step.stage {
                Stage::Waiting { .. } | Stage::Probing { .. } => 3,
                Stage::Canary { holder, .. } => holder.as_str().len() + 6,
                Stage::Closed => 0,
            };
            5 + stage + 1 + step.steward.as_str().len() + 3 + 1
        }
        Statement::Override(_, order) => 5 + order.reason.len() + order.author.as_str().len(),
        Statement::Member(_, order) => 2 + 9 + order.reason.len(),
        Statement::Window(_, window) => 3 * 2 + 1 + 3 * window.slow.len() + 3 + 1,
    };
    pair(name, 1 + name + body)
}

/// The bytes of a record of `body` bytes under a key that holds a name of `name` bytes.
fn pair(name: usize, body: usize) -> usize {
    (RECORD + body + SEAL).div_ceil(3) * 4 + name + PAIR
}

/// What a node sends and gets in a second to learn who knows what.
pub(crate) fn digests(members: usize) -> usize {
    DIGEST_A_SECOND * members
}

/// What a node gets in a second of the others' pulses.
pub(crate) fn pulses(members: usize) -> usize {
    (pair(0, 4) as f64 * members as f64 * PULSES_A_SECOND) as usize
}
