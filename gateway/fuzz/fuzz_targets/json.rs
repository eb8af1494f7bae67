//! Looks for bytes that break the promise `json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::json(bytes));
