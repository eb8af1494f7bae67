//! The gateway: HTTP in, HTTP out, and a fleet that decides together which endpoint is out.
//!
//! Each file's first line is its line in the map; the README has the whole map, the life of a
//! request and the life of an opening. Inside, only [`app`] knows every part, [`fleet`] knows neither
//! the runtime nor HTTP, only [`clock`] reads the clock, only [`config`] knows YAML, and only
//! [`error`] knows the OpenAI error body.

pub mod admin;
pub mod app;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod demo;
pub mod error;
pub mod events;
mod files;
pub mod fleet;
mod fnv;
pub mod handles;
pub mod health;
pub mod history;
pub mod import;
pub mod keep;
pub mod keys;
pub mod limits;
pub mod lines;
pub mod memory;
pub mod metrics;
pub mod mock;
mod page;
pub mod people;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod promises;
pub mod proxy;
mod purse;
pub mod reload;
pub mod replay;
pub mod roll;
pub mod server;
pub mod snapshot;
pub mod supervisor;
pub mod trace;
pub mod upstream;
