//! Looks for bytes that break the promise `guard`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::guard(bytes));
