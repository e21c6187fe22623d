//! Binding of the aggregation of stored telemetry: no Python object per reading.

use std::sync::{Mutex, PoisonError};

use latchboard_engine::bucket_aggregator::BucketAggregator;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::decode_error;

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
