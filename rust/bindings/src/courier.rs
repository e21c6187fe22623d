//! Binding of the courier. Requests, results and lookups cross the boundary as tuples, a batch at a time.

use std::net::IpAddr;
use std::os::fd::RawFd;

use bytes::Bytes;
use latchboard_courier::{
    AttemptFailure, AttemptResult, Courier, CourierStartError, HttpCourierEvent, HttpOrigin, OutboundHttpRequest,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::duration;

/// `(https, host, port)`.
type EndpointTuple = (bool, String, u16);
/// `(attempt id, queue key, endpoint, path and query, headers, body, timeout in seconds)`.
type RequestTuple<'py> = (
    u64,
    String,
    EndpointTuple,
    String,
    Vec<(String, String)>,
    Bound<'py, PyBytes>,
    f64,
);
/// `(kind, error number, detail)`; `adapters/delivery/courier.py` has a sentence for each kind.
type FailureTuple = (&'static str, i32, String);
/// `(results, lookups)`; a lookup is `(lookup id, host, port, https)`.
type EventTuples<'py> = (Vec<Bound<'py, PyTuple>>, Vec<(u64, String, u16, bool)>);

fn webhook_request(
    (attempt_id, queue_key, endpoint, path_and_query, headers, body, timeout_s): RequestTuple<'_>,
) -> PyResult<OutboundHttpRequest> {
    let (https, host, port) = endpoint;
    Ok(OutboundHttpRequest {
        attempt_id,
        queue_key,
        endpoint: HttpOrigin { https, host, port },
        path_and_query,
        headers,
        body: Bytes::copy_from_slice(body.as_bytes()),
        timeout: duration(timeout_s)?,
    })
}

fn failure_tuple(failure: AttemptFailure) -> FailureTuple {
    match failure {
        AttemptFailure::NotSent => ("unsent", 0, String::new()),
        AttemptFailure::Timeout(timeout) => ("late", 0, timeout.as_secs_f64().to_string()),
        AttemptFailure::LookupFailed(reason) => ("told", 0, reason),
        AttemptFailure::Connect(number, detail) => ("connect", number, detail),
        AttemptFailure::Certificate(detail) => ("certificate", 0, detail),
        AttemptFailure::Tls(detail) => ("tls", 0, detail),
        AttemptFailure::Closed => ("closed", 0, String::new()),
        AttemptFailure::Truncated => ("cut", 0, String::new()),
        AttemptFailure::TooLong => ("too_long", 0, String::new()),
        AttemptFailure::Reset => ("reset", 0, String::new()),
        AttemptFailure::NotHttp(detail) => ("not_http", 0, detail),
        AttemptFailure::Io(number, detail) => ("io", number, detail),
        AttemptFailure::InvalidRequest(detail) => ("unsendable", 0, detail),
    }
}

/// `(attempt id, status, excerpt, milliseconds, Retry-After, failure)`; either status or failure is None.
fn result_tuple<'py>(py: Python<'py>, attempt: AttemptResult) -> PyResult<Bound<'py, PyTuple>> {
    let duration_ms = u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX);
    let (status, excerpt, retry_after, failure) = match attempt.result {
        Ok(response) => (Some(response.status), response.excerpt, response.retry_after, None),
        Err(failure) => (None, Vec::new(), None, Some(failure_tuple(failure))),
    };
    (
        attempt.attempt_id,
        status,
        PyBytes::new(py, &excerpt),
        duration_ms,
        retry_after,
        failure,
    )
        .into_pyobject(py)
}

#[pyclass(module = "adapters.engine._native", name = "Courier", frozen)]
pub struct PyCourier {
    courier: Courier,
}

#[pymethods]
impl PyCourier {
    #[new]
    #[pyo3(signature = (extra_pem=None, max_concurrent_per_queue=4))]
    fn new(extra_pem: Option<Vec<u8>>, max_concurrent_per_queue: usize) -> PyResult<Self> {
        let courier = Courier::new(&extra_pem.unwrap_or_default(), max_concurrent_per_queue);
        let courier = courier.map_err(|error| match &error {
            CourierStartError::Threads(_) => PyOSError::new_err(error.to_string()),
            CourierStartError::Certificates(_) => PyValueError::new_err(error.to_string()),
        })?;
        Ok(Self { courier })
    }

    /// How many root certificates are trusted.
    fn trusted_roots(&self) -> usize {
        self.courier.trusted_roots()
    }

    fn send(&self, requests: Vec<RequestTuple<'_>>) -> PyResult<()> {
        let requests = requests.into_iter().map(webhook_request);
        self.courier.send(requests.collect::<PyResult<_>>()?);
        Ok(())
    }

    // PyO3 extracts owned values only.
    #[allow(clippy::needless_pass_by_value)]
    fn cancel(&self, tickets: Vec<u64>) {
        self.courier.cancel(&tickets);
    }

    fn resolve_lookup(&self, lookup_id: u64, addresses: Vec<String>) -> PyResult<()> {
        let addresses = addresses
            .iter()
            .map(|address| address.parse::<IpAddr>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.courier.resolve_lookup(lookup_id, addresses);
        Ok(())
    }

    fn fail_lookup(&self, lookup_id: u64, reason: String) {
        self.courier.fail_lookup(lookup_id, reason);
    }

    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<EventTuples<'py>> {
        let mut results = Vec::new();
        let mut lookups = Vec::new();
        for event in self.courier.take_events() {
            match event {
                HttpCourierEvent::Finished(attempt) => results.push(result_tuple(py, attempt)?),
                HttpCourierEvent::LookupRequested {
                    lookup_id,
                    host,
                    port,
                    https,
                } => lookups.push((lookup_id, host, port, https)),
            }
        }
        Ok((results, lookups))
    }

    #[pyo3(name = "fileno")]
    fn readable_fd(&self) -> RawFd {
        self.courier.readable_fd()
    }

    fn stop(&self) {
        self.courier.stop();
    }
}
