//! Looks for bytes that break the promise `votes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::votes(bytes));
