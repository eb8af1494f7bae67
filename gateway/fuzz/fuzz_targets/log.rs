//! Looks for bytes that break the promise `log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::log(bytes));
