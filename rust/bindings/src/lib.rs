//! The extension `adapters.engine._native`: converts arguments, calls a crate, converts results; nothing else.
//!
//! `engine` binds the pure engine, `broker` the embedded broker, `courier` the webhook courier, `simulator` the simulated fleet.
//! `raw_telemetry_batch` is the value that broker and engine share: telemetry messages on their way from a socket to the rules, without
//! Python objects.

mod arguments;
mod broker;
mod courier;
mod engine;
mod raw_telemetry_batch;
mod simulator;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::broker::{PyBroker, PyInboundBatch};
    #[pymodule_export]
    use crate::courier::PyCourier;
    #[pymodule_export]
    use crate::engine::{
        PyAggregator, PyBatchResult, PyEngine, PyGrantWindow, PyWebhookSigner, allowance, chain_events, source_digest,
        unpack_readings,
    };
    #[pymodule_export]
    use crate::raw_telemetry_batch::RawTelemetryBatch;
    #[pymodule_export]
    use crate::simulator::PyFleetSimulation;
}
