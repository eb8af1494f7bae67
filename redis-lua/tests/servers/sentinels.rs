//! A primary.
