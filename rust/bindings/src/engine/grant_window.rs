//! Bindings of the grant window.

use latchboard_engine::grant_window::CompiledGrantWindow;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

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
