//! Bindings of a batch: telemetry stays in Rust, events become tuples.

use std::sync::{Mutex, MutexGuard, PoisonError};

use latchboard_broker::{Batch, Event};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::batch::{Message, TelemetryBatch};

/// An event as a tuple: its kind, the device's number and id, what there is to it, and the Unix milliseconds last.
// A table of five rows reads better than its elements one below the other.
#[rustfmt::skip]
fn event_tuple<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyTuple>> {
    match event {
        Event::Connect { source, protocol, address, at_ms } => {
            ("connect", source.device, &*source.device_id, *protocol, address, at_ms).into_pyobject(py)
        }
        Event::Disconnect { source, reason, at_ms } => {
            ("disconnect", source.device, &*source.device_id, *reason, at_ms).into_pyobject(py)
        }
        Event::Subscribe { source, filter, at_ms } => {
            ("subscribe", source.device, &*source.device_id, filter, at_ms).into_pyobject(py)
        }
        Event::Publish { source, topic, payload, qos, retain, at_ms } => {
            let payload = PyBytes::new(py, payload);
            ("publish", source.device, &*source.device_id, topic, payload, qos, retain, at_ms).into_pyobject(py)
        }
        Event::Fault { source, kind, at_ms } => {
            ("fault", source.device, &*source.device_id, *kind, at_ms).into_pyobject(py)
        }
    }
}

#[pyclass(module = "adapters.engine._native", frozen)]
pub struct UplinkBatch {
    #[pyo3(get)]
    telemetry: Py<TelemetryBatch>,
    #[pyo3(get)]
    events: Py<PyList>,
    rest: Mutex<Batch>,
}

#[pymethods]
impl UplinkBatch {
    fn ack(&self, py: Python<'_>) {
        py.detach(|| unpoisoned(&self.rest).ack());
    }

    fn nack(&self, py: Python<'_>) {
        py.detach(|| unpoisoned(&self.rest).nack());
    }
}

fn unpoisoned(batch: &Mutex<Batch>) -> MutexGuard<'_, Batch> {
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn uplink_batch(py: Python<'_>, mut batch: Batch) -> PyResult<UplinkBatch> {
    let messages = std::mem::take(&mut batch.telemetry)
        .into_iter()
        .map(|message| Message {
            device: message.device,
            arrived_ms: message.arrived_ms,
            payload: message.payload,
        });
    let telemetry = Py::new(
        py,
        TelemetryBatch {
            messages: messages.collect(),
        },
    )?;
    let tuples: Vec<_> = batch
        .events
        .iter()
        .map(|event| event_tuple(py, event))
        .collect::<PyResult<_>>()?;
    batch.events.clear();
    Ok(UplinkBatch {
        telemetry,
        events: PyList::new(py, tuples)?.unbind(),
        rest: Mutex::new(batch),
    })
}
