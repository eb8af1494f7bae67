//! Who can sign what.
