//! The extension `adapters.engine._native`: converts arguments, calls a crate, converts results; nothing else.
//!
//! `engine` binds the pure engine, `broker` the embedded broker, `courier` the webhook courier, `simulator` the simulated fleet.
//! `batch` is the value that broker and engine share: telemetry messages on their way from a socket to the rules, without Python
//! objects.

#[cfg(feature = "broker")]
mod broker;
#[cfg(feature = "broker")]
mod courier;
mod engine;
mod message_batch;
#[cfg(feature = "simulator")]
mod simulator;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    message_batch::register(module)?;
    engine::register(module)?;
    #[cfg(feature = "broker")]
    broker::register(module)?;
    #[cfg(feature = "broker")]
    courier::register(module)?;
    #[cfg(feature = "simulator")]
    simulator::register(module)?;
    Ok(())
}
