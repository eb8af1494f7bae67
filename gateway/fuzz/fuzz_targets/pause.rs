//! Looks for bytes that break the promise `pause`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::pause(bytes));
