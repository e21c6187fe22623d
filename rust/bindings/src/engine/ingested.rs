//! What a batch means, kept in Rust until Python asks for a part of it.

use latchboard_engine::outcome::Outcome;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

type EdgeTuple = (u32, u32, i64, bool, Option<i64>, Option<i64>, bool);
type WatchedTuple<'a> = (
    u32,
    i64,
    &'a str,
    Option<f64>,
    Option<&'a str>,
    Option<&'a str>,
);

#[pyclass(module = "adapters.engine._native", frozen)]
pub struct Ingested {
    outcome: Outcome,
}

impl Ingested {
    pub fn new(outcome: Outcome) -> Self {
        Self { outcome }
    }
}

#[pymethods]
impl Ingested {
    /// (device number, time in ms, digest, packed readings)
    #[getter]
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self
            .outcome
            .packed_rows()
            .map(|(row, packed)| (row.device, row.ts_ms, row.digest, PyBytes::new(py, packed)));
        let rows: Vec<Bound<'py, PyTuple>> = rows
            .map(|row| row.into_pyobject(py))
            .collect::<PyResult<_>>()?;
        PyList::new(py, rows)
    }

    /// (device number, hour since 1970) of the rows, each once, sorted.
    #[getter]
    fn rollup_hours(&self) -> Vec<(u32, i64)> {
        self.outcome.hours()
    }

    #[getter]
    fn new_metric_names(&self) -> Vec<(u32, &str)> {
        self.outcome
            .new_names
            .iter()
            .map(|(number, name)| (*number, &**name))
            .collect()
    }

    #[getter]
    fn new_metrics(&self) -> Vec<(u32, u32, &str, Option<&str>)> {
        let reports = self.outcome.new_metrics.iter();
        reports
            .map(|report| {
                (
                    report.device,
                    report.metric,
                    &*report.name,
                    report.unit.as_deref(),
                )
            })
            .collect()
    }

    #[getter]
    fn rule_transitions(&self) -> Vec<EdgeTuple> {
        let edges = self.outcome.edges.iter();
        let tuple = edges.map(|edge| {
            (
                edge.device,
                edge.rule,
                edge.at_ms,
                edge.matched,
                edge.held_since,
                edge.last_fired,
                edge.turned,
            )
        });
        tuple.collect()
    }

    #[getter]
    fn rule_firings(&self) -> Vec<(u32, u32, i64)> {
        self.outcome.fired.clone()
    }

    #[getter]
    fn rule_suppressions(&self) -> Vec<(u32, u32, i64, Option<u32>)> {
        self.outcome.suppressed.clone()
    }

    #[getter]
    fn watched_readings(&self) -> Vec<WatchedTuple<'_>> {
        let readings = self.outcome.watched.iter();
        let tuple = readings.map(|reading| {
            let (text, unit) = (reading.text.as_deref(), reading.unit.as_deref());
            (
                reading.device,
                reading.ts_ms,
                &*reading.metric,
                reading.value,
                text,
                unit,
            )
        });
        tuple.collect()
    }

    #[getter]
    fn faults(&self) -> Vec<(u32, &'static str, u64)> {
        self.outcome
            .faults
            .iter()
            .map(|((device, fault), count)| (*device, fault.code(), *count))
            .collect()
    }

    #[getter]
    fn last_seen(&self) -> Vec<(u32, i64)> {
        self.outcome.seen.clone()
    }

    #[getter]
    fn message_count(&self) -> u64 {
        self.outcome.messages
    }

    #[getter]
    fn reading_count(&self) -> u64 {
        self.outcome.readings
    }
}
