//! Looks for bytes that break the promise `path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::path(bytes));
