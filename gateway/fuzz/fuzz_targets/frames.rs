//! Looks for bytes that break the promise `frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::frames(bytes));
