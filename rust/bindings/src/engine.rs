//! Bindings of the pure engine: telemetry and rules, stored readings, grants, webhook signatures. `event_chain` binds the event log.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use latchboard_engine::bucket_aggregator::BucketAggregator;
use latchboard_engine::compiled_rules::{Condition, ConditionTest, EQUAL, EngineRule, GREATER, LESS, NEVER};
use latchboard_engine::engine::Engine;
use latchboard_engine::grants::{CompiledGrantWindow, check_rate_limit};
use latchboard_engine::payload_parser::MetricValue;
use latchboard_engine::reading_packing::{self, UnpackError};
use latchboard_engine::webhook_signing::WebhookSigner;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyString};

use crate::batch::{CheckpointTuple, PyBatchResult, RawTelemetryBatch, checkpoint_tuples};

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
            .map(|rule| rule_spec(rule, &mut engine))
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

    /// `partition`: (number, count), or all devices. `connected`: device → since when it has had a connection that is heard.
    #[pyo3(signature = (since_ms, until_ms, partition, connected))]
    fn deafen(
        &self,
        py: Python<'_>,
        since_ms: i64,
        until_ms: i64,
        partition: Option<(u32, u32)>,
        connected: HashMap<u32, i64>,
    ) -> PyBatchResult {
        let result = py.detach(|| self.lock().deafen(since_ms, until_ms, partition, &connected));
        PyBatchResult { result }
    }

    fn hear_all(&self, py: Python<'_>, at_ms: i64) -> PyBatchResult {
        let result = py.detach(|| self.lock().hear_all(at_ms));
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

/// (metric, comparator, number or milliseconds, text)
type ConditionTuple = (String, String, f64, Option<String>);

/// As `adapters/engine/native.py` builds it:
/// (rule, priority, any, conditions, clear conditions, for ms, cooldown ms, command, matched, held since, last fired, since)
type RuleTuple = (
    u32,
    i64,
    bool,
    Vec<ConditionTuple>,
    Vec<ConditionTuple>,
    i64,
    i64,
    String,
    bool,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

fn rule_spec(rule: RuleTuple, engine: &mut Engine) -> PyResult<EngineRule> {
    let (rule, priority, any, conditions, clear, for_ms, cooldown_ms, command, matched, held_since, last_fired, since) = rule;
    Ok(EngineRule {
        rule,
        priority,
        any,
        conditions: conditions.into_iter().map(condition).collect::<PyResult<_>>()?,
        clear: clear.into_iter().map(condition).collect::<PyResult<_>>()?,
        for_ms,
        cooldown_ms,
        command: engine.command_number(&command),
        matched,
        held_since: held_since.unwrap_or(NEVER),
        last_fired: last_fired.unwrap_or(NEVER),
        since: since.unwrap_or(NEVER),
    })
}

fn condition((metric, comparator, number, text): ConditionTuple) -> PyResult<Condition> {
    let test = match (comparator.as_str(), text) {
        ("==", Some(text)) => ConditionTest::Text {
            equal: true,
            text: text.into(),
        },
        ("!=", Some(text)) => ConditionTest::Text {
            equal: false,
            text: text.into(),
        },
        ("silent", None) => ConditionTest::Silent(number as i64),
        (comparator, None) => ConditionTest::Number(mask(comparator)?, number),
        (comparator, Some(_)) => {
            return Err(PyValueError::new_err(format!("text cannot be compared by {comparator}")));
        }
    };
    Ok(Condition {
        metric: metric.into(),
        test,
    })
}

fn mask(comparator: &str) -> PyResult<u8> {
    Ok(match comparator {
        "<" => LESS,
        "<=" => LESS | EQUAL,
        ">" => GREATER,
        ">=" => GREATER | EQUAL,
        "==" => EQUAL,
        "!=" => LESS | GREATER,
        other => return Err(PyValueError::new_err(format!("{other} is no comparator"))),
    })
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

type BucketTuple = (i64, u32, u64, f64, f64, f64, f64, i64);

#[pyclass(module = "adapters.engine._native", name = "BucketAggregator", frozen)]
pub struct PyAggregator {
    inner: Mutex<BucketAggregator>,
}

#[pymethods]
impl PyAggregator {
    #[new]
    #[pyo3(signature = (step_ms, metric_no=None))]
    fn new(step_ms: i64, metric_no: Option<u32>) -> Self {
        Self {
            inner: Mutex::new(BucketAggregator::new(step_ms, metric_no)),
        }
    }

    /// `(time, packed)` rows, newest first.
    fn add(&self, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut aggregator = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows.try_iter()? {
            let (ts_ms, packed): (i64, Bound<'_, PyBytes>) = row?.extract()?;
            aggregator.add(ts_ms, packed.as_bytes()).map_err(decode_error)?;
        }
        Ok(())
    }

    #[pyo3(name = "cells")]
    fn buckets(&self) -> Vec<BucketTuple> {
        let aggregator = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = aggregator.buckets().into_iter();
        buckets
            .map(|bucket| {
                (
                    bucket.start_ms,
                    bucket.metric,
                    bucket.count,
                    bucket.min,
                    bucket.max,
                    bucket.sum,
                    bucket.last,
                    bucket.last_ms,
                )
            })
            .collect()
    }
}

#[pyclass(module = "adapters.engine._native", name = "Window")]
pub struct PyGrantWindow {
    inner: CompiledGrantWindow,
}

#[pymethods]
impl PyGrantWindow {
    /// `days_mask`: bit 0 is Sunday. `tzif`: the time zone (RFC 9636).
    #[new]
    fn new(days_mask: u8, from_minute: Option<u16>, to_minute: Option<u16>, tzif: &[u8], name: &str) -> PyResult<Self> {
        let inner = CompiledGrantWindow::new(days_mask, from_minute.zip(to_minute), tzif, name);
        let inner = inner.map_err(|error| PyValueError::new_err(format!("the zone {name} cannot be read: {}", error.0)))?;
        Ok(Self { inner })
    }

    fn is_open(&mut self, at_ms: i64) -> bool {
        self.inner.is_open(at_ms)
    }
}

/// `(allowed, remaining, next free ms)` of one more use of a grant at `now_ms`; `uses` are the times of earlier ones.
#[pyfunction]
pub fn allowance(uses: Vec<i64>, limit: usize, now_ms: i64) -> PyResult<(bool, usize, i64)> {
    if limit == 0 {
        return Err(PyValueError::new_err("a limit is at least 1"));
    }
    let decision = check_rate_limit(&uses, limit, now_ms);
    Ok((decision.is_allowed, decision.remaining, decision.next_free_ms))
}

/// Signs for one webhook; keeps hash states, not the secret.
#[pyclass(module = "adapters.engine._native", name = "Signer", frozen)]
pub struct PyWebhookSigner {
    inner: WebhookSigner,
}

#[pymethods]
impl PyWebhookSigner {
    #[new]
    fn new(secret: &str) -> PyResult<Self> {
        let inner = WebhookSigner::new(secret);
        let inner = inner.map_err(|_| PyValueError::new_err("a webhook secret is whsec_ followed by base64"))?;
        Ok(Self { inner })
    }

    fn service_signature<'py>(&self, py: Python<'py>, body: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyString>> {
        PyString::from_bytes(py, &self.inner.service(body.as_bytes()))
    }

    fn standard_signature(&self, message_id: &str, timestamp_s: i64, body: &Bound<'_, PyBytes>) -> String {
        self.inner.standard(message_id, timestamp_s, body.as_bytes())
    }

    /// (service, standard) of each (message id, timestamp, body).
    fn sign_batch<'py>(
        &self,
        py: Python<'py>,
        messages: Vec<(String, i64, Bound<'py, PyBytes>)>,
    ) -> PyResult<Vec<(Bound<'py, PyString>, String)>> {
        let sign = |(id, timestamp_s, body): &(String, i64, Bound<'py, PyBytes>)| {
            let body = body.as_bytes();
            let service = PyString::from_bytes(py, &self.inner.service(body))?;
            Ok((service, self.inner.standard(id, *timestamp_s, body)))
        };
        messages.iter().map(sign).collect()
    }
}

/// SHA-256 over the Rust sources this extension was built from.
#[pyfunction]
pub fn source_digest() -> &'static str {
    env!("LATCHBOARD_SOURCE_DIGEST")
}
