//! The extension `adapters.engine._native`: convert, call, convert back; nothing else.
//!
//! `engine.rs` binds the pure engine, `broker.rs` the embedded broker, `courier.rs` what posts webhooks, `simulator.rs` the simulated
//! fleet, `batch.rs` the one value engine and broker share: telemetry messages that go from a socket to the rules without becoming
//! Python objects.

mod batch;
#[cfg(feature = "broker")]
mod broker;
#[cfg(feature = "broker")]
mod courier;
mod engine;
#[cfg(feature = "simulator")]
mod simulator;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    batch::register(module)?;
    engine::register(module)?;
    #[cfg(feature = "broker")]
    broker::register(module)?;
    #[cfg(feature = "broker")]
    courier::register(module)?;
    #[cfg(feature = "simulator")]
    simulator::register(module)?;
    Ok(())
}
