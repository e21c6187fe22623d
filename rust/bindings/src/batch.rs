//! Telemetry messages as the broker took them and as the engine reads them.
//!
//! A message is (device number, arrival in Unix milliseconds, payload bytes). The broker fills the batch in Rust; an
//! external broker's link builds it from Python tuples. Either way `Engine.ingest` reads it without a Python object a message.

use bytes::{Bytes, BytesMut};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

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
    fn new(messages: &Bound<'_, PyAny>) -> PyResult<Self> {
        let heads: Vec<(u32, i64, Bound<'_, PyBytes>)> = match messages.cast::<PyList>() {
            Ok(list) => list
                .iter()
                .map(|message| triple(&message))
                .collect::<PyResult<_>>()?,
            Err(_) => messages
                .try_iter()?
                .map(|message| triple(&message?))
                .collect::<PyResult<_>>()?,
        };
        // One allocation for all payloads; each message then holds its part of it.
        let mut arena = BytesMut::with_capacity(
            heads
                .iter()
                .map(|(_, _, payload)| payload.as_bytes().len())
                .sum(),
        );
        for (_, _, payload) in &heads {
            arena.extend_from_slice(payload.as_bytes());
        }
        let arena = arena.freeze();
        let mut begin = 0;
        let cut = heads.into_iter().map(|(device, arrived_ms, payload)| {
            let end = begin + payload.as_bytes().len();
            let payload = arena.slice(begin..end);
            begin = end;
            Message {
                device,
                arrived_ms,
                payload,
            }
        });
        Ok(Self {
            messages: cut.collect(),
        })
    }

    fn __len__(&self) -> usize {
        self.messages.len()
    }

    /// The messages as Python sees them: `(device number, arrival ms, payload)`.
    fn messages<'py>(&self, py: Python<'py>) -> Vec<(u32, i64, Bound<'py, PyBytes>)> {
        let tuple = |message: &Message| {
            (
                message.device,
                message.arrived_ms,
                PyBytes::new(py, &message.payload),
            )
        };
        self.messages.iter().map(tuple).collect()
    }
}

fn triple<'py>(message: &Bound<'py, PyAny>) -> PyResult<(u32, i64, Bound<'py, PyBytes>)> {
    let Ok(tuple) = message.cast::<PyTuple>() else {
        return message.extract();
    };
    if tuple.len() != 3 {
        return message.extract();
    }
    let payload = tuple.get_item(2)?.cast_into::<PyBytes>()?;
    Ok((
        tuple.get_item(0)?.extract()?,
        tuple.get_item(1)?.extract()?,
        payload,
    ))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TelemetryBatch>()
}
