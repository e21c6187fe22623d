//! The extension `adapters.engine._native`: convert, call, convert back; nothing else.
//!
//! `engine.rs` binds the pure engine, `broker.rs` the embedded broker, `batch.rs` the one value both share:
//! telemetry messages on their way from a socket to the rules without becoming Python objects.

mod batch;
#[cfg(feature = "broker")]
mod broker;
mod engine;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    batch::register(module)?;
    engine::register(module)?;
    #[cfg(feature = "broker")]
    broker::register(module)?;
    Ok(())
}
