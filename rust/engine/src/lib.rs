//! The pure engine: parses telemetry, evaluates rules, grant windows and rate limits, signs webhooks, hashes the event
//! log.
//!
//! Each part has a readable twin in Python (`domain/<part>/reference_*.py`) that defines it; this crate must equal it and only
//! be faster. It does no I/O, reads no clock and knows no Python. Read `engine`, `ingest` and `device_record_layout` first.

#![forbid(unsafe_code)]

pub mod batch_result;
pub mod bucket_aggregator;
pub mod canonical_json;
pub mod checkpoint;
pub mod compiled_rules;
pub mod device_partition_hash;
pub mod engine;
pub mod event_chain;
pub mod grant_rate_limit;
pub mod grant_window;
pub mod hex;
mod partition_checkpoint_and_drop;
pub mod payload_parser;
pub mod reading_packing;
pub mod telemetry_message_framing;
pub mod webhook_signing;

mod clock_shift;
mod device_record;
mod device_record_layout;
mod device_table;
mod device_table_index;
mod fast_json;
mod fast_path;
mod ingest;
mod json_number;
mod json_parser;
mod json_punctuation;
mod latest_value_queries;
mod latest_values_hidden_from_rules;
mod metric_interner;
mod metric_json_key_pattern;
mod number_row_packer;
mod rule_evaluation;
mod rule_evaluation_steps;
mod rule_installation;
mod timed_rule_evaluation;
mod timer_queue;
mod unknown_metric_names;
