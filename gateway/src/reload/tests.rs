//! Files that change, in every way they do, and what becomes of the configuration.
