//! Looks for bytes that break the promise `snapshot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::snapshot(bytes));
