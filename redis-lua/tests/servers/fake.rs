//! A fake.
