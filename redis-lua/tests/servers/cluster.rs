//! A cluster of six.
