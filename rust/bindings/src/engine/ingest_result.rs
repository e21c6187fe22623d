//! The result of a batch, kept in Rust until Python reads a part of it.

use latchboard_engine::batch_result::BatchResult;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

type TransitionTuple = (u32, u32, i64, bool, Option<i64>, Option<i64>, bool);
type WatchedTuple<'a> = (u32, i64, &'a str, Option<f64>, Option<&'a str>, Option<&'a str>);

#[pyclass(module = "adapters.engine._native", name = "BatchResult", frozen)]
pub struct PyIngestResult {
    pub result: BatchResult,
}

#[pymethods]
impl PyIngestResult {
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
    fn rule_transitions(&self) -> Vec<TransitionTuple> {
        let transitions = self.result.transitions.iter();
        let tuple = transitions.map(|transition| {
            (
                transition.device,
                transition.rule,
                transition.at_ms,
                transition.matched,
                transition.held_since,
                transition.last_fired,
                transition.changed,
            )
        });
        tuple.collect()
    }

    #[getter]
    fn rule_firings(&self) -> Vec<(u32, u32, i64)> {
        self.result.fired.clone()
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
