//! The data plane over real sockets, in one process: gateways and raw upstreams that a test starts for itself.
//!
//! Why one binary: each is linked with the whole gateway, vocabularies of 70 MB among it, and a machine that
//! tests has little disk. A file is a room of its own all the same: none knows of another's gateways.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop loudly")]

mod abort;
mod budget;
mod choice;
mod circuit;
mod cors;
mod dialects;
mod drain;
mod failover;
mod fallback;
mod fidelity;
mod flood;
mod heartbeat;
mod http2;
mod isolation;
mod limits;
mod metrics;
mod outcomes;
mod partings;
mod proxy;
mod stalls;
mod streaming;
mod tenants;
mod tls;
mod traces;
mod usage;

#[path = "../local/mod.rs"]
mod local;
#[path = "../raw/mod.rs"]
mod raw;
