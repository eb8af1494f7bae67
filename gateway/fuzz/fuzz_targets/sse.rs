//! Looks for bytes that break the promise `sse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::sse(bytes));
