//! Looks for bytes that break the promise `answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::promises::answer(bytes));
