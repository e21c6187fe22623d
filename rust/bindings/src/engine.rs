//! Bindings of the engine: rules and telemetry here, what a batch means in `ingested.rs`, windows and signatures beside it.

mod ingested;
mod signing;
mod spec;
mod tally;
mod window;

use std::sync::{Mutex, MutexGuard, PoisonError};

use latchboard_engine::engine;
use latchboard_engine::message::Value;
use latchboard_engine::packing::{self, Unreadable};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyString};

use self::ingested::Ingested;
use self::spec::RuleTuple;
use crate::batch::TelemetryBatch;

/// The native `TelemetryEngine`. Calls from several threads follow one another; none holds the GIL while it works.
#[pyclass(module = "adapters.engine._native", frozen)]
pub struct Engine {
    inner: Mutex<engine::Engine>,
}

type LatestTuple<'py> = (String, Bound<'py, PyAny>, Option<String>, i64, i64);
type ReadingTuple = (i64, u32, Option<f64>, Option<String>);

#[pymethods]
impl Engine {
    #[new]
    fn new() -> Self {
        Self {
            inner: Mutex::default(),
        }
    }

    fn put_rules(&self, device_no: u32, rules: Vec<RuleTuple>) -> PyResult<()> {
        let mut engine = self.lock();
        let specs = rules
            .into_iter()
            .map(|rule| spec::spec(rule, &mut engine))
            .collect::<PyResult<_>>()?;
        engine.put_rules(device_no, specs);
        Ok(())
    }

    fn drop_device(&self, device_no: u32) {
        self.lock().drop_device(device_no);
    }

    fn watch(&self, device_no: u32, on: bool) {
        self.lock().watch(device_no, on);
    }

    fn set_metrics(&self, names: Vec<(u32, String)>) {
        let mut engine = self.lock();
        for (number, name) in names {
            engine.set_metric(number, &name);
        }
    }

    fn restore(&self, device_no: u32, latest: &[u8]) -> PyResult<()> {
        self.lock().restore(device_no, latest).map_err(unreadable)
    }

    fn replay(&self, device_no: u32, ts_ms: i64, packed: &[u8]) -> PyResult<()> {
        self.lock()
            .replay(device_no, ts_ms, packed)
            .map_err(unreadable)
    }

    fn ingest(&self, py: Python<'_>, batch: &TelemetryBatch) -> Ingested {
        let outcome = py.detach(|| {
            let messages = batch.messages.iter();
            self.lock().ingest(
                messages.map(|message| (message.device, message.arrived_ms, &message.payload[..])),
            )
        });
        Ingested::new(outcome)
    }

    fn tick(&self, py: Python<'_>, now_ms: i64) -> Ingested {
        Ingested::new(py.detach(|| self.lock().tick(now_ms)))
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.lock().next_timer_ms()
    }

    fn checkpoint<'py>(
        &self,
        py: Python<'py>,
        limit: usize,
    ) -> Vec<(u32, i64, Bound<'py, PyBytes>)> {
        let taken = py.detach(|| self.lock().checkpoint(limit));
        taken
            .into_iter()
            .map(|(device, newest_ms, latest)| (device, newest_ms, PyBytes::new(py, &latest)))
            .collect()
    }

    /// (metric, value, unit, time, arrival) of each metric with a value.
    fn latest<'py>(&self, py: Python<'py>, device_no: u32) -> PyResult<Vec<LatestTuple<'py>>> {
        let engine = self.lock();
        let latest = engine.latest(device_no).into_iter();
        latest
            .map(|entry| {
                let value = match entry.value {
                    Value::Number(value) => PyFloat::new(py, value).into_any(),
                    Value::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
                    Value::Text(text) => PyString::new(py, &text).into_any(),
                };
                Ok((
                    entry.name.to_string(),
                    value,
                    entry.unit.map(ToString::to_string),
                    entry.ts_ms,
                    entry.heard_ms,
                ))
            })
            .collect()
    }
}

impl Engine {
    /// A panic while the lock was held is a bug; the engine stays usable for the other devices.
    fn lock(&self) -> MutexGuard<'_, engine::Engine> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreadable(fault: Unreadable) -> PyErr {
    PyValueError::new_err(fault.0)
}

/// (time, metric number, value, text) of the readings in `(time, packed)` rows, of one metric or of all.
#[pyfunction]
#[pyo3(signature = (rows, metric_no=None))]
fn unpack(rows: &Bound<'_, PyAny>, metric_no: Option<u32>) -> PyResult<Vec<ReadingTuple>> {
    let mut found = Vec::new();
    for row in rows.try_iter()? {
        let (ts_ms, packed): (i64, Bound<'_, PyBytes>) = row?.extract()?;
        for reading in packing::readings(packed.as_bytes()) {
            let (metric, value) = reading.map_err(unreadable)?;
            if metric_no.is_none_or(|wanted| wanted == metric) {
                let (value, text) = match value {
                    Value::Number(value) => (Some(value), None),
                    Value::Bool(value) => {
                        (Some(f64::from(u8::from(value))), Some(value.to_string()))
                    }
                    Value::Text(text) => (None, Some(text.into_owned())),
                };
                found.push((ts_ms, metric, value, text));
            }
        }
    }
    Ok(found)
}

/// SHA-256 over the Rust sources this extension was built from.
#[pyfunction]
fn source_digest() -> &'static str {
    env!("LATCHBOARD_SOURCE_DIGEST")
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Engine>()?;
    module.add_class::<Ingested>()?;
    module.add_class::<signing::Signer>()?;
    module.add_class::<tally::Tally>()?;
    module.add_class::<window::Window>()?;
    module.add_function(wrap_pyfunction!(window::allowance, module)?)?;
    module.add_function(wrap_pyfunction!(unpack, module)?)?;
    module.add_function(wrap_pyfunction!(source_digest, module)?)
}
