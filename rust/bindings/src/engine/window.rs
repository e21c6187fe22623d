//! Bindings of the grant window and the rolling limit.

use latchboard_engine::{limit, window};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pyclass(module = "adapters.engine._native")]
pub struct Window {
    inner: window::Window,
}

#[pymethods]
impl Window {
    /// `days_mask`: bit 0 is Sunday. `tzif`: the zone's rules as RFC 9636 has them.
    #[new]
    fn new(
        days_mask: u8,
        from_minute: Option<u16>,
        to_minute: Option<u16>,
        tzif: &[u8],
        name: &str,
    ) -> PyResult<Self> {
        let inner = window::Window::new(days_mask, from_minute.zip(to_minute), tzif, name);
        let inner = inner.map_err(|fault| {
            PyValueError::new_err(format!("the zone {name} cannot be read: {}", fault.0))
        })?;
        Ok(Self { inner })
    }

    fn is_open(&mut self, at_ms: i64) -> bool {
        self.inner.is_open(at_ms)
    }
}

/// `(fits, remaining, frees_ms)` of one more use of a grant at `now_ms`, given the instants of earlier ones.
#[pyfunction]
pub fn allowance(uses: Vec<i64>, limit: usize, now_ms: i64) -> PyResult<(bool, usize, i64)> {
    if limit == 0 {
        return Err(PyValueError::new_err("a limit is at least 1"));
    }
    let found = limit::weigh(&uses, limit, now_ms);
    Ok((found.fits, found.remaining, found.frees_ms))
}
