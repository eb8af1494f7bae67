//! Looks for bytes that break the promise `values`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::values(bytes));
