//! Looks for bytes that break the promise `records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::records(bytes));
