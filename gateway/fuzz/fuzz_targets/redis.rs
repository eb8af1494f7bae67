//! Looks for bytes that break the promise `redis`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::redis(bytes));
