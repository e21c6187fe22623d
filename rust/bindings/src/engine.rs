//! Bindings of the engine: rules and telemetry here; results, aggregation, event chains, grant windows and
//! signatures in the modules below.

mod aggregator;
mod batch_result;
mod event_chain;
mod grant_rate_limit;
mod grant_window;
mod rule_spec;
mod webhook_signing;

use std::sync::{Mutex, MutexGuard, PoisonError};

use latchboard_engine::engine::Engine;
use latchboard_engine::payload_parser::MetricValue;
use latchboard_engine::reading_packing::{self, UnpackError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyString};

use self::batch_result::{CheckpointTuple, checkpoint_tuples};
use self::rule_spec::RuleTuple;
use crate::raw_telemetry_batch::RawTelemetryBatch;

pub use self::aggregator::PyAggregator;
pub use self::batch_result::PyBatchResult;
pub use self::event_chain::chain_events;
pub use self::grant_rate_limit::allowance;
pub use self::grant_window::PyGrantWindow;
pub use self::webhook_signing::PyWebhookSigner;

/// The native `TelemetryEngine`. Calls from several threads wait for each other; `ingest` and `tick` release the GIL.
#[pyclass(module = "adapters.engine._native", name = "Engine", frozen)]
pub struct PyEngine {
    inner: Mutex<Engine>,
}

type LatestTuple<'py> = (String, Bound<'py, PyAny>, Option<String>, i64);
type ReportTuple<'py> = (String, Bound<'py, PyAny>, i64, i64);
type ReadingTuple = (i64, u32, Option<f64>, Option<String>, Option<i64>);

#[pymethods]
impl PyEngine {
    #[new]
    fn new() -> Self {
        Self { inner: Mutex::default() }
    }

    fn set_rules(&self, device_no: u32, rules: Vec<RuleTuple>) -> PyResult<()> {
        let mut engine = self.lock();
        let specs = rules
            .into_iter()
            .map(|rule| rule_spec::rule_spec(rule, &mut engine))
            .collect::<PyResult<_>>()?;
        engine.put_rules(device_no, specs);
        Ok(())
    }

    fn remove_device(&self, device_no: u32) {
        self.lock().drop_device(device_no);
    }

    fn set_watched(&self, device_no: u32, on: bool) {
        self.lock().watch(device_no, on);
    }

    fn add_metric_names(&self, names: Vec<(u32, String)>) {
        let mut engine = self.lock();
        for (number, name) in names {
            engine.set_metric(number, &name);
        }
    }

    #[pyo3(signature = (device_no, latest, now_ms=None))]
    fn restore(&self, device_no: u32, latest: &[u8], now_ms: Option<i64>) -> PyResult<()> {
        let now_ms = now_ms.unwrap_or(UNKNOWN_NOW);
        self.lock().restore(device_no, latest, now_ms).map_err(decode_error)
    }

    #[pyo3(signature = (device_no, ts_ms, packed, now_ms=None))]
    fn replay(&self, device_no: u32, ts_ms: i64, packed: &[u8], now_ms: Option<i64>) -> PyResult<()> {
        let now_ms = now_ms.unwrap_or(UNKNOWN_NOW);
        self.lock().replay(device_no, ts_ms, packed, now_ms).map_err(decode_error)
    }

    #[pyo3(signature = (batch, now_ms=None, start=0))]
    fn ingest(&self, py: Python<'_>, batch: &RawTelemetryBatch, now_ms: Option<i64>, start: usize) -> PyBatchResult {
        let now_ms = now_ms.unwrap_or(UNKNOWN_NOW);
        let start = start.min(batch.messages.len());
        let mut result = py.detach(|| {
            let messages = batch.messages[start..].iter();
            let messages = messages.map(|message| (message.device, message.arrived_ms, &message.payload[..]));
            self.lock().ingest(messages, now_ms)
        });
        result.consumed += start;
        PyBatchResult { result }
    }

    /// The service's clock was set by `step_ms`, to `now_ms`.
    fn shift_clock(&self, py: Python<'_>, step_ms: i64, now_ms: i64) -> PyBatchResult {
        let result = py.detach(|| self.lock().shift_clock(step_ms, now_ms));
        PyBatchResult { result }
    }

    /// (device number, ms that its clock is ahead) of those whose newest message has a time of their own.
    fn clock_offsets(&self, device_nos: Vec<u32>) -> Vec<(u32, i64)> {
        let engine = self.lock();
        let offset = |device| Some((device, engine.clock_offset_ms(device)?));
        device_nos.into_iter().filter_map(offset).collect()
    }

    fn tick(&self, py: Python<'_>, now_ms: i64) -> PyBatchResult {
        let result = py.detach(|| self.lock().tick(now_ms));
        PyBatchResult { result }
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.lock().next_timer_ms()
    }

    fn checkpoint<'py>(&self, py: Python<'py>, limit: usize) -> Vec<CheckpointTuple<'py>> {
        let checkpoints = py.detach(|| self.lock().checkpoint(limit));
        checkpoint_tuples(py, &checkpoints)
    }

    /// Returns how many devices were removed.
    fn drop_partition(&self, py: Python<'_>, partition: u32, partitions: u32) -> usize {
        py.detach(|| self.lock().drop_partition(partition, partitions))
    }

    fn checkpoint_partition<'py>(
        &self,
        py: Python<'py>,
        partition: u32,
        partitions: u32,
        limit: usize,
    ) -> Vec<CheckpointTuple<'py>> {
        let checkpoints = py.detach(|| self.lock().checkpoint_partition(partition, partitions, limit));
        checkpoint_tuples(py, &checkpoints)
    }

    /// (metric, value, unit, time) of each metric that has a value: the one with the greatest time.
    fn latest<'py>(&self, py: Python<'py>, device_no: u32) -> Vec<LatestTuple<'py>> {
        let engine = self.lock();
        let latest = engine.latest(device_no).into_iter();
        latest
            .map(|(name, entry)| {
                (
                    name.to_owned(),
                    python_value(py, &entry.value),
                    entry.unit.map(str::to_owned),
                    entry.ts_ms,
                )
            })
            .collect()
    }

    /// (metric, value, time, arrival) of each metric that rules see.
    fn last_reports<'py>(&self, py: Python<'py>, device_no: u32) -> Vec<ReportTuple<'py>> {
        let engine = self.lock();
        let reports = engine.last_reports(device_no).into_iter();
        reports
            .map(|(name, entry)| {
                (
                    name.to_owned(),
                    python_value(py, &entry.value),
                    entry.ts_ms,
                    entry.received_ms,
                )
            })
            .collect()
    }
}

/// Without a present time nothing has arrived too late.
const UNKNOWN_NOW: i64 = i64::MAX;

impl PyEngine {
    /// After a panic, which is a bug, the engine stays usable for the other devices.
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn python_value<'py>(py: Python<'py>, value: &MetricValue<'_>) -> Bound<'py, PyAny> {
    match value {
        MetricValue::Number(value) => PyFloat::new(py, *value).into_any(),
        MetricValue::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        MetricValue::Text(text) => PyString::new(py, text).into_any(),
    }
}

fn decode_error(error: UnpackError) -> PyErr {
    PyValueError::new_err(error.0)
}

/// (time, metric number, value, text, reported time) of the readings in `(time, packed)` rows; of one metric, or of all.
#[pyfunction]
#[pyo3(signature = (rows, metric_no=None))]
pub fn unpack_readings(rows: &Bound<'_, PyAny>, metric_no: Option<u32>) -> PyResult<Vec<ReadingTuple>> {
    let mut readings = Vec::new();
    for row in rows.try_iter()? {
        let (ts_ms, packed): (i64, Bound<'_, PyBytes>) = row?.extract()?;
        let (ahead_ms, packed_readings) = reading_packing::decode_row(packed.as_bytes()).map_err(decode_error)?;
        let reported_ms = ahead_ms.map(|ahead_ms| ts_ms.saturating_add(ahead_ms));
        for reading in packed_readings {
            let (metric, value) = reading.map_err(decode_error)?;
            if metric_no.is_none_or(|wanted| wanted == metric) {
                let (value, text) = match value {
                    MetricValue::Number(value) => (Some(value), None),
                    MetricValue::Bool(value) => (Some(f64::from(u8::from(value))), Some(value.to_string())),
                    MetricValue::Text(text) => (None, Some(text.into_owned())),
                };
                readings.push((ts_ms, metric, value, text, reported_ms));
            }
        }
    }
    Ok(readings)
}

/// SHA-256 over the Rust sources this extension was built from.
#[pyfunction]
pub fn source_digest() -> &'static str {
    env!("LATCHBOARD_SOURCE_DIGEST")
}
