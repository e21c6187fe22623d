//! Bindings of the grant window and the rate limit.

use latchboard_engine::grant_rate_limit::check_rate_limit;
use latchboard_engine::grant_window::GrantWindow;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pyclass(module = "adapters.engine._native", name = "Window")]
pub struct PyGrantWindow {
    inner: GrantWindow,
}

#[pymethods]
impl PyGrantWindow {
    /// `days_mask`: bit 0 is Sunday. `tzif`: the time zone (RFC 9636).
    #[new]
    fn new(days_mask: u8, from_minute: Option<u16>, to_minute: Option<u16>, tzif: &[u8], name: &str) -> PyResult<Self> {
        let inner = GrantWindow::new(days_mask, from_minute.zip(to_minute), tzif, name);
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
