//! Looks for bytes that break the promise `form`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::form(bytes));
