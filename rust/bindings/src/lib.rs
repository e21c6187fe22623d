//! The extension `adapters.engine._native`: converts arguments, calls a crate, converts results; nothing else.
//!
//! `engine` binds the pure engine, `broker` the embedded broker, `courier` the webhook courier, `simulator` the simulated fleet.
//! `batch` is the value that broker and engine share: telemetry messages on their way from a socket to the rules, without Python objects.
//! `event_chain` binds the hash chain of the event log.

mod arguments;
mod batch;
mod broker;
mod courier;
mod engine;
mod event_chain;
mod simulator;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::batch::{PyBatchResult, RawTelemetryBatch};
    #[pymodule_export]
    use crate::broker::{PyBroker, PyInboundBatch, set_broker_time};
    #[pymodule_export]
    use crate::courier::PyCourier;
    #[pymodule_export]
    use crate::engine::{PyAggregator, PyEngine, PyGrantWindow, PyWebhookSigner, allowance, source_digest, unpack_readings};
    #[pymodule_export]
    use crate::event_chain::chain_events;
    #[pymodule_export]
    use crate::simulator::PyFleetSimulation;
}
