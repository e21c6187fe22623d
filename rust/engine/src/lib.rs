//! The pure engine: parses telemetry, evaluates rules, grant windows and rate limits, signs webhooks, hashes the event
//! log.
//!
//! Each part has a readable twin in Python (`domain/<part>/reference_*.py`) that defines it; this crate must equal it and only
//! be faster. It does no I/O, reads no clock and knows no Python. Read `engine`, `ingest` and `device_record` first.

#![forbid(unsafe_code)]

mod absence;
pub mod batch_result;
pub mod bucket_aggregator;
pub mod compiled_rules;
pub mod engine;
pub mod event_chain;
pub mod grants;
pub mod partitions;
pub mod payload_parser;
pub mod reading_packing;
pub mod webhook_signing;

mod checkpoint;
mod device_record;
mod device_table;
mod fast_json;
mod fast_path;
mod ingest;
mod json;
mod json_number;
mod metrics;
mod rule_installation;
mod rules;
mod timer_queue;
