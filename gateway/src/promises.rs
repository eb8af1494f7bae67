//! What the rooms promise of any bytes at all, as functions that panic where a promise is broken.
//!
//! Fuzzers look for bytes that break one (`gateway/fuzz`), and a test runs all that they have found so
//! far. A promise stands in the room that makes it, where it sees what is private there, so that nothing
//! is shown to the rest of the gateway for its sake; what another package's public face promises stands
//! here. All of it is compiled for tests and fuzzers only.
//!
//! Invariants: a promise is a function of its bytes alone; each has a corpus (`fuzz/corpus/NAME`) and a
//! fuzzer (`fuzz/fuzz_targets/NAME.rs`), and there is none of either without a promise.

mod breaker;
mod faces;
pub(crate) mod http1;

/// Lists all promises once, each with what it says and who makes it.
macro_rules! promises {
    ($($(#[doc = $says:literal])+ $name:ident: $($part:ident)::+;)+) => {
        $($(#[doc = $says])+ pub fn $name(bytes: &[u8]) { $($part)::+(bytes); })+

        /// All promises by their names.
        pub const ALL: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name)),+];
    };
}

promises! {
    /// However a client's bytes are cut, the guard says the same of them, and what it lets through two
    /// other readers take for the same requests with the same bodies.
    guard: crate::server::guard_promise;
    /// Whatever a client sends, what goes on to an endpoint is, for three readers, one request for one of
    /// the client's, with its body, and with no field that is not meant to go along.
    forward: crate::server::forward_promise;
    /// A JSON body that is admitted is one, asks for what another parser reads in it, and differs in the
    /// model's name alone when it goes on.
    json: crate::proxy::json_promise;
    /// A form that is admitted has the same parts for a generous reader, and differs in the model's name
    /// alone when it goes on.
    form: crate::proxy::form_promise;
    /// However a stream is cut, the same events are read of it, and they are those of the standard.
    sse: crate::proxy::sse_promise;
    /// What is taken for a whole answer, or for an error, is JSON, and the usage read of it is sane.
    answer: crate::proxy::answer_promise;
    /// However an upstream asks to be left alone, it is for an hour at most, and as long as it says.
    pause: crate::upstream::pause_promise;
    /// The context of a trace that is taken is passed on as it is.
    traceparent: crate::trace::context_promise;
    /// A configuration that is accepted amounts to one that is accepted and amounts to the same; a refusal
    /// is one line.
    config: crate::config::config_promise;
    /// A value that is read is written as one that reads the same.
    values: crate::config::values_promise;
    /// What is made of another gateway's configuration is one that we accept, without its secrets.
    imports: faces::imports;
    /// A snapshot that is read can be written, reads the same again, and makes a breaker.
    snapshot: crate::snapshot::promise;
    /// A line of an access log that is read tells of a moment that can be, and no line is lost.
    log: crate::replay::promise;
    /// A path of the admin API that is taken climbs nowhere, and a query says what is known, once.
    path: crate::admin::path_promise;
    /// A breaker keeps what its tests promise of random schedules in any schedule.
    breaker: breaker::schedules;
    /// Votes come to the same in any order and however often told; a majority opens, and no minority.
    votes: faces::votes;
    /// A record, seal or push that is read can be written, and reads the same again; pushes are laid over
    /// each other in any order to the same end.
    records: gossip::promises::records;
    /// A frame that is let in does chitchat's own decoder no harm.
    frames: gossip::promises::frames;
    /// An answer of Redis is read strictly or not at all.
    redis: redis_lua::promises::answers;
}

#[cfg(test)]
mod tests;
