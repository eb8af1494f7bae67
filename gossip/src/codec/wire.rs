//! The structures whose bytes travel, in the order in which bincode writes them.
//!
//! They mirror those of the rule, and stand apart so that the rule's may change without them.
//!
//! # Invariants
//! - Nothing here changes without the format byte, but that fields are appended at the end of a record.

use bincode::{Decode, Encode};

#[derive(Encode, Decode)]
pub(super) struct WirePush {
    pub(super) node_id: String,
    pub(super) generation: u64,
    pub(super) hops: u8,
    pub(super) chain: Vec<Vec<u8>>,
    pub(super) records: Vec<Vec<u8>>,
}

#[derive(Encode, Decode)]
pub(super) struct WireSealed {
    pub(super) record: Vec<u8>,
    pub(super) scheme: u16,
    pub(super) signature: Vec<u8>,
}

#[derive(Encode, Decode)]
pub(super) struct WireRecord {
    pub(super) seq: u64,
    pub(super) body: WireBody,
}

#[derive(Encode, Decode)]
pub(super) enum WireBody {
    Card(WireCard),
    Vote(String, WireVote),
    Step(String, WireStep),
    Override(String, WireOverride),
    Window(String, WireWindow),
    Pulse(u64),
    Certificate(Vec<Vec<u8>>),
}

/// A record of its own format.
#[derive(Encode, Decode)]
pub(super) struct WireAsked {
    pub(super) seq: u64,
    pub(super) member: String,
    pub(super) verb: WireVerb,
    pub(super) generation: u64,
    pub(super) reason: String,
}

#[derive(Encode, Decode)]
pub(super) enum WireVerb {
    Drain,
    Leave,
    Forget,
}

#[derive(Encode, Decode)]
pub(super) struct WireCard {
    pub(super) version: String,
    pub(super) config_hash: String,
    pub(super) standing: WireStanding,
    pub(super) is_suspect: bool,
}

#[derive(Encode, Decode)]
pub(super) enum WireStanding {
    Serving,
    Draining,
    Left,
}

#[derive(Encode, Decode)]
pub(super) struct WireVote {
    pub(super) incident: u64,
    pub(super) basis: WireBasis,
    pub(super) state: WireVoteState,
    pub(super) reason: String,
    pub(super) requests: u32,
    pub(super) faults_milli: u32,
    pub(super) successes: u32,
    pub(super) slow_pieces: u32,
    pub(super) age_millis: u64,
}

#[derive(Encode, Decode)]
pub(super) enum WireBasis {
    FirstHand,
    Seconded,
}

#[derive(Encode, Decode)]
pub(super) enum WireVoteState {
    Stands,
    Withdrawn,
    Abstains,
    Shadow,
}

#[derive(Encode, Decode)]
pub(super) struct WireWindow {
    pub(super) requests: u32,
    pub(super) faults_milli: u32,
    pub(super) successes: u32,
    pub(super) slow_millis: Vec<u64>,
    pub(super) last_success_millis: Option<u64>,
    pub(super) has_small: bool,
}

#[derive(Encode, Decode)]
pub(super) struct WireStep {
    pub(super) incident: u64,
    pub(super) failures: u32,
    pub(super) level: u32,
    pub(super) stage: WireStage,
    pub(super) steward: String,
    pub(super) age_millis: u64,
    pub(super) is_held: bool,
}

#[derive(Encode, Decode)]
pub(super) enum WireStage {
    Waiting { remaining_millis: u64 },
    Probing { remaining_millis: u64 },
    Canary { holder: String, turn: u32, successes: u32, remaining_millis: u64 },
    Closed,
}

#[derive(Encode, Decode)]
pub(super) struct WireOverride {
    pub(super) forced: WireForced,
    pub(super) stamp: u64,
    pub(super) author: String,
    pub(super) remaining_millis: Option<u64>,
    pub(super) reason: String,
}

#[derive(Encode, Decode)]
pub(super) enum WireForced {
    Open,
    Closed,
    Auto,
}
