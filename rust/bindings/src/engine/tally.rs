//! Stretches of stored telemetry, summed up without a Python object a reading.

use std::sync::{Mutex, PoisonError};

use latchboard_engine::tally;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::unreadable;

type CellTuple = (i64, u32, u64, f64, f64, f64, f64, i64);

#[pyclass(module = "adapters.engine._native", frozen)]
pub struct Tally {
    inner: Mutex<tally::Tally>,
}

#[pymethods]
impl Tally {
    #[new]
    #[pyo3(signature = (step_ms, metric_no=None))]
    fn new(step_ms: i64, metric_no: Option<u32>) -> Self {
        Self {
            inner: Mutex::new(tally::Tally::new(step_ms, metric_no)),
        }
    }

    /// `(time, packed)` rows, newest first.
    fn add(&self, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut tally = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows.try_iter()? {
            let (ts_ms, packed): (i64, Bound<'_, PyBytes>) = row?.extract()?;
            tally.add(ts_ms, packed.as_bytes()).map_err(unreadable)?;
        }
        Ok(())
    }

    fn cells(&self) -> Vec<CellTuple> {
        let tally = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = tally.cells().into_iter();
        cells
            .map(|cell| {
                (
                    cell.from_ms,
                    cell.metric,
                    cell.count,
                    cell.low,
                    cell.high,
                    cell.total,
                    cell.last,
                    cell.last_ms,
                )
            })
            .collect()
    }
}
