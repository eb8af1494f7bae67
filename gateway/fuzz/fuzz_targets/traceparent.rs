//! Looks for bytes that break the promise `traceparent`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::traceparent(bytes));
