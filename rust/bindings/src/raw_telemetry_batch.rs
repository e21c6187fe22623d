//! Telemetry messages between broker and engine.
//!
//! The embedded broker fills the batch in Rust; with an external broker Python builds it from tuples. `Engine.ingest` reads it without a
//! Python object per message.

use bytes::{Bytes, BytesMut};
use latchboard_broker::RawTelemetryMessage;
use latchboard_engine::telemetry_message_framing;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

#[pyclass(module = "adapters.engine._native", frozen)]
pub struct RawTelemetryBatch {
    pub messages: Vec<RawTelemetryMessage>,
}

#[pymethods]
impl RawTelemetryBatch {
    /// From `(device number, arrival ms, payload)` tuples.
    #[new]
    fn new(messages: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tuples: Vec<(u32, i64, Bound<'_, PyBytes>)> = match messages.cast::<PyList>() {
            Ok(list) => list.iter().map(|message| message_tuple(&message)).collect::<PyResult<_>>()?,
            Err(_) => messages
                .try_iter()?
                .map(|message| message_tuple(&message?))
                .collect::<PyResult<_>>()?,
        };
        // One allocation for all payloads; each message refers to its part.
        let mut arena = BytesMut::with_capacity(tuples.iter().map(|(_, _, payload)| payload.as_bytes().len()).sum());
        for (_, _, payload) in &tuples {
            arena.extend_from_slice(payload.as_bytes());
        }
        let arena = arena.freeze();
        let mut begin = 0;
        let messages = tuples.into_iter().map(|(device, arrived_ms, payload)| {
            let end = begin + payload.as_bytes().len();
            let payload = arena.slice(begin..end);
            begin = end;
            RawTelemetryMessage {
                device,
                arrived_ms,
                payload,
            }
        });
        Ok(Self {
            messages: messages.collect(),
        })
    }

    fn __len__(&self) -> usize {
        self.messages.len()
    }

    /// `(device number, arrival ms, payload)` tuples.
    fn messages<'py>(&self, py: Python<'py>) -> Vec<(u32, i64, Bound<'py, PyBytes>)> {
        let tuple = |message: &RawTelemetryMessage| (message.device, message.arrived_ms, PyBytes::new(py, &message.payload));
        self.messages.iter().map(tuple).collect()
    }

    /// `(partition, block)` pairs, in the order of arrival within a partition. An entry of the log may have a megabyte; half of
    /// that leaves room for its headers and shares its cost among thousands of messages.
    #[pyo3(signature = (partitions, max_bytes=524_288))]
    fn blocks<'py>(&self, py: Python<'py>, partitions: u32, max_bytes: usize) -> PyResult<Vec<(u32, Bound<'py, PyBytes>)>> {
        if partitions == 0 {
            return Err(PyValueError::new_err("there must be a partition"));
        }
        let blocks = py.detach(|| {
            let messages = self.messages.iter();
            let messages = messages.map(|message| (message.device, message.arrived_ms, &message.payload[..]));
            telemetry_message_framing::split_into_blocks(messages, partitions, max_bytes)
        });
        let blocks = blocks.into_iter();
        Ok(blocks
            .map(|(partition, block)| (partition, PyBytes::new(py, &block)))
            .collect())
    }

    /// The messages of all blocks, in their order. Raises ValueError for bytes that are not a block.
    #[staticmethod]
    fn from_blocks(py: Python<'_>, blocks: Vec<Bound<'_, PyBytes>>) -> PyResult<Self> {
        let blocks: Vec<Bytes> = blocks.iter().map(|block| Bytes::copy_from_slice(block.as_bytes())).collect();
        let messages = py.detach(|| messages_of(&blocks)).map_err(PyValueError::new_err)?;
        Ok(Self { messages })
    }
}

fn messages_of(blocks: &[Bytes]) -> Result<Vec<RawTelemetryMessage>, String> {
    let mut messages = Vec::new();
    for (index, bytes) in blocks.iter().enumerate() {
        let found =
            telemetry_message_framing::read_block(bytes).map_err(|error| format!("block {index} cannot be read at {error}"))?;
        messages.extend(found.into_iter().map(|message| RawTelemetryMessage {
            device: message.device,
            arrived_ms: message.arrived_ms,
            payload: bytes.slice(message.begin..message.end),
        }));
    }
    Ok(messages)
}

fn message_tuple<'py>(message: &Bound<'py, PyAny>) -> PyResult<(u32, i64, Bound<'py, PyBytes>)> {
    let Ok(tuple) = message.cast::<PyTuple>() else {
        return message.extract();
    };
    if tuple.len() != 3 {
        return message.extract();
    }
    let payload = tuple.get_item(2)?.cast_into::<PyBytes>()?;
    Ok((tuple.get_item(0)?.extract()?, tuple.get_item(1)?.extract()?, payload))
}
