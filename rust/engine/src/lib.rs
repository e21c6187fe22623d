//! The pure engine: telemetry parsing, rule conditions, grant windows and limits, and signatures.
//!
//! Each part has a readable twin in Python (`domain/<part>/reference.py`) that defines it; this crate must equal it and only
//! be faster. It does no I/O, reads no clock and knows no Python.

#![forbid(unsafe_code)]

pub mod engine;
pub mod json;
pub mod layout;
pub mod limit;
pub mod message;
pub mod names;
pub mod number;
pub mod outcome;
pub mod packing;
pub mod rules;
pub mod scan;
pub mod scratch;
pub mod signing;
pub mod tally;
pub mod timers;
pub mod window;

mod armed;
mod device;
mod evaluate;
mod fast;
mod fleet;
mod ingest;
mod punctuation;
mod shape;
mod slab;
mod special;
