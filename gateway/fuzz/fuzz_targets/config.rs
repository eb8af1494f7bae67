//! Looks for bytes that break the promise `config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::config(bytes));
