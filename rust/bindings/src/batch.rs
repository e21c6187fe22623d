//! A batch of telemetry on its way through the engine, without Python objects.
//!
//! The embedded broker fills `RawTelemetryBatch` in Rust; with an external broker Python builds it from tuples. `Engine.ingest` reads it
//! without a Python object per message. The result stays in Rust until Python reads a part of it.

use bytes::{Bytes, BytesMut};
use latchboard_broker::RawTelemetryMessage;
use latchboard_engine::batch_result::{BatchResult, DeviceCheckpoint};
use latchboard_engine::partitions;
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
            partitions::split_into_blocks(messages, partitions, max_bytes)
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
        let found = partitions::read_block(bytes).map_err(|error| format!("block {index} cannot be read at {error}"))?;
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

pub type CheckpointTuple<'py> = (u32, i64, Bound<'py, PyBytes>);
type WatchedTuple<'a> = (u32, i64, &'a str, Option<f64>, Option<&'a str>, Option<&'a str>);

pub fn checkpoint_tuples<'py>(py: Python<'py>, checkpoints: &[DeviceCheckpoint]) -> Vec<CheckpointTuple<'py>> {
    let checkpoints = checkpoints.iter();
    checkpoints
        .map(|(device, newest_ms, latest)| (*device, *newest_ms, PyBytes::new(py, latest)))
        .collect()
}

/// One field of each record.
fn column<'a, 'py, Record, Value: IntoPyObject<'py>>(
    py: Python<'py>,
    records: &'a [Record],
    field: impl Fn(&'a Record) -> Value,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, records.iter().map(field))
}

fn unknown_field(field: &str) -> PyErr {
    PyValueError::new_err(format!("there is no field {field}"))
}

#[pyclass(module = "adapters.engine._native", name = "BatchResult", frozen)]
pub struct PyBatchResult {
    pub result: BatchResult,
}

#[pymethods]
impl PyBatchResult {
    /// (device number, time in ms, digest, packed readings)
    #[getter]
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self
            .result
            .packed_rows()
            .map(|(row, packed)| (row.device, row.ts_ms, row.digest, PyBytes::new(py, packed)));
        let rows: Vec<Bound<'py, PyTuple>> = rows.map(|row| row.into_pyobject(py)).collect::<PyResult<_>>()?;
        PyList::new(py, rows)
    }

    /// (device number, newest time in ms, packed values) of devices with a value whose row a restart does not replay.
    #[getter]
    fn checkpoints<'py>(&self, py: Python<'py>) -> Vec<CheckpointTuple<'py>> {
        checkpoint_tuples(py, &self.result.checkpoints)
    }

    /// (device number, hour since 1970) of the rows, distinct and sorted.
    #[getter]
    fn rollup_hours(&self) -> Vec<(u32, i64)> {
        self.result.hours()
    }

    #[getter]
    fn consumed(&self) -> usize {
        self.result.consumed
    }

    #[getter]
    fn unknown_metric_names(&self) -> Vec<&str> {
        self.result.unknown_names.iter().map(|name| &**name).collect()
    }

    #[getter]
    fn new_metrics(&self) -> Vec<(u32, u32, &str, Option<&str>)> {
        let reports = self.result.new_metrics.iter();
        reports
            .map(|report| (report.device, report.metric, &*report.name, report.unit.as_deref()))
            .collect()
    }

    #[getter]
    fn rule_transition_count(&self) -> usize {
        self.result.transitions.len()
    }

    /// A field of all transitions, by its name in `domain.rules.model.RuleTransition`.
    fn rule_transitions<'py>(&self, py: Python<'py>, field: &str) -> PyResult<Bound<'py, PyList>> {
        let of = &self.result.transitions;
        match field {
            "device_no" => column(py, of, |transition| transition.device),
            "rule_no" => column(py, of, |transition| transition.rule),
            "at_ms" => column(py, of, |transition| transition.at_ms),
            "matched" => column(py, of, |transition| transition.matched),
            "held_since_ms" => column(py, of, |transition| transition.held_since),
            "last_fired_ms" => column(py, of, |transition| transition.last_fired),
            "matched_changed" => column(py, of, |transition| transition.changed),
            _ => Err(unknown_field(field)),
        }
    }

    #[getter]
    fn rule_firing_count(&self) -> usize {
        self.result.fired.len()
    }

    /// A field of all firings, by its name in `domain.rules.model.RuleFiring`.
    fn rule_firings<'py>(&self, py: Python<'py>, field: &str) -> PyResult<Bound<'py, PyList>> {
        let of = &self.result.fired;
        match field {
            "device_no" => column(py, of, |(device, _, _)| *device),
            "rule_no" => column(py, of, |(_, rule, _)| *rule),
            "at_ms" => column(py, of, |(_, _, at_ms)| *at_ms),
            _ => Err(unknown_field(field)),
        }
    }

    #[getter]
    fn rule_suppressions(&self) -> Vec<(u32, u32, i64, Option<u32>)> {
        self.result.suppressed.clone()
    }

    #[getter]
    fn watched_readings(&self) -> Vec<WatchedTuple<'_>> {
        let readings = self.result.watched.iter();
        let tuple = readings.map(|reading| {
            let (text, unit) = (reading.text.as_deref(), reading.unit.as_deref());
            (reading.device, reading.ts_ms, &*reading.metric, reading.value, text, unit)
        });
        tuple.collect()
    }

    #[getter]
    fn faults(&self) -> Vec<(u32, &'static str, u64)> {
        self.result
            .faults
            .iter()
            .map(|((device, fault), count)| (*device, fault.code(), *count))
            .collect()
    }

    #[getter]
    fn fault_metrics(&self) -> Vec<(u32, &'static str, &str)> {
        self.result
            .fault_metrics
            .iter()
            .map(|((device, fault), metric)| (*device, fault.code(), metric.as_str()))
            .collect()
    }

    #[getter]
    fn clocks_ahead(&self) -> Vec<(u32, i64)> {
        let clocks = self.result.clocks_ahead.iter();
        clocks.map(|(device, ahead_ms)| (*device, *ahead_ms)).collect()
    }

    #[getter]
    fn last_seen(&self) -> Vec<(u32, i64)> {
        self.result.seen.clone()
    }

    #[getter]
    fn message_count(&self) -> u64 {
        self.result.messages
    }

    #[getter]
    fn reading_count(&self) -> u64 {
        self.result.readings
    }
}
