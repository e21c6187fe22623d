//! Telemetry messages as the broker took them and as the engine reads them.
//!
//! A message is (device number, arrival in Unix milliseconds, payload bytes). The broker fills the batch in Rust; an
//! external broker's link builds it from Python tuples. Either way `Engine.ingest` reads it without a Python object a message.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// One telemetry message: the device's number, when it arrived (Unix ms), and its bytes.
pub struct Message {
    pub device: u32,
    pub arrived_ms: i64,
    pub payload: Bytes,
}

#[pyclass(module = "adapters.engine._native", frozen)]
pub struct TelemetryBatch {
    pub messages: Vec<Message>,
}

#[pymethods]
impl TelemetryBatch {
    /// From `(device number, arrival ms, payload)` tuples.
    #[new]
    fn new(messages: Vec<(u32, i64, Bound<'_, PyBytes>)>) -> Self {
        let messages = messages
            .into_iter()
            .map(|(device, arrived_ms, payload)| Message {
                device,
                arrived_ms,
                payload: Bytes::copy_from_slice(payload.as_bytes()),
            })
            .collect();
        Self { messages }
    }

    fn __len__(&self) -> usize {
        self.messages.len()
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TelemetryBatch>()
}
