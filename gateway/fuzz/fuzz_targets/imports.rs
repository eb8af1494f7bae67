//! Looks for bytes that break the promise `imports`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::imports(bytes));
