//! Bindings of the webhook signatures.

use latchboard_engine::webhook_signing::WebhookSigner;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

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
