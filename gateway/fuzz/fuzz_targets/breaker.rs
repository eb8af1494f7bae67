//! Looks for bytes that break the promise `breaker`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::breaker(bytes));
