//! Looks for bytes that break the promise `forward`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::forward(bytes));
