//! The result of a batch, kept in Rust until Python reads a part of it.

use latchboard_engine::batch_result::BatchResult;
use latchboard_engine::checkpoint::DeviceCheckpoint;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

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
