//! Bindings of the courier.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use bytes::Bytes;
use latchboard_courier::{Courier, Endpoint, Failure, News, Outcome, Parcel, StartError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// `(https, host, port)`.
type Place = (bool, String, u16);
/// `(ticket, lane, place, path and query, headers, body, deadline in seconds)`.
type Letter<'py> = (
    u64,
    String,
    Place,
    String,
    Vec<(String, String)>,
    Bound<'py, PyBytes>,
    f64,
);

fn parcel(
    (ticket, lane, place, target, headers, body, deadline_s): Letter<'_>,
) -> PyResult<Parcel> {
    let (https, host, port) = place;
    let deadline = Duration::try_from_secs_f64(deadline_s)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Parcel {
        ticket,
        lane,
        endpoint: Endpoint { https, host, port },
        target,
        headers,
        body: Bytes::copy_from_slice(body.as_bytes()),
        deadline,
    })
}

/// `(kind, errno, detail)`.
fn told(failure: Failure) -> (&'static str, i32, String) {
    match failure {
        Failure::Unsent => ("unsent", 0, String::new()),
        Failure::Late(deadline) => ("late", 0, deadline.as_secs_f64().to_string()),
        Failure::Told(why) => ("told", 0, why),
        Failure::Connect(number, why) => ("connect", number, why),
        Failure::Certificate(why) => ("certificate", 0, why),
        Failure::Tls(why) => ("tls", 0, why),
        Failure::Closed => ("closed", 0, String::new()),
        Failure::Cut => ("cut", 0, String::new()),
        Failure::Reset => ("reset", 0, String::new()),
        Failure::NotHttp(why) => ("not_http", 0, why),
        Failure::Io(number, why) => ("io", number, why),
        Failure::Unsendable(why) => ("unsendable", 0, why),
    }
}

/// `(ticket, status, excerpt, milliseconds, Retry-After, failure)`; no status where there is a failure.
fn answer<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyTuple>> {
    let took_ms = u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX);
    match outcome.result {
        Ok(answer) => (
            outcome.ticket,
            Some(answer.status),
            PyBytes::new(py, &answer.excerpt),
            took_ms,
            answer.retry_after,
            None::<(&str, i32, String)>,
        ),
        Err(failure) => (
            outcome.ticket,
            None,
            PyBytes::new(py, b""),
            took_ms,
            None,
            Some(told(failure)),
        ),
    }
    .into_pyobject(py)
}

/// `(answers, questions)`; a question is `(number, host, port)`.
type Taken<'py> = (Vec<Bound<'py, PyTuple>>, Vec<(u64, String, u16)>);

#[pyclass(module = "adapters.engine._native", name = "Courier", frozen)]
struct PyCourier {
    courier: Courier,
}

#[pymethods]
impl PyCourier {
    #[new]
    #[pyo3(signature = (extra_pem=None, at_once=4))]
    fn new(extra_pem: Option<Vec<u8>>, at_once: usize) -> PyResult<Self> {
        let courier =
            Courier::new(&extra_pem.unwrap_or_default(), at_once).map_err(
                |error| match &error {
                    StartError::Threads(_) => PyOSError::new_err(error.to_string()),
                    StartError::Certificates(_) => PyValueError::new_err(error.to_string()),
                },
            )?;
        Ok(Self { courier })
    }

    /// How many root certificates are believed.
    fn believed(&self) -> usize {
        self.courier.believed()
    }

    fn send(&self, letters: Vec<Letter<'_>>) -> PyResult<()> {
        let parcels = letters
            .into_iter()
            .map(parcel)
            .collect::<PyResult<Vec<_>>>()?;
        self.courier.send(parcels);
        Ok(())
    }

    // PyO3 extracts owned values only.
    #[allow(clippy::needless_pass_by_value)]
    fn cut(&self, tickets: Vec<u64>) {
        self.courier.cut(&tickets);
    }

    fn direct(&self, question: u64, addresses: Vec<String>) -> PyResult<()> {
        let addresses = addresses
            .iter()
            .map(|address| address.parse::<IpAddr>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.courier.direct(question, addresses);
        Ok(())
    }

    fn refuse(&self, question: u64, why: String) {
        self.courier.refuse(question, why);
    }

    fn take<'py>(&self, py: Python<'py>) -> PyResult<Taken<'py>> {
        let mut answers = Vec::new();
        let mut questions = Vec::new();
        for news in self.courier.take() {
            match news {
                News::Outcome(outcome) => answers.push(answer(py, outcome)?),
                News::Where {
                    question,
                    host,
                    port,
                } => questions.push((question, host, port)),
            }
        }
        Ok((answers, questions))
    }

    fn fileno(&self) -> RawFd {
        self.courier.descriptor()
    }

    fn stop(&self) {
        self.courier.stop();
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCourier>()
}
