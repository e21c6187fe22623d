//! Bindings of an inbound batch: telemetry stays in Rust, events become tuples.

use std::sync::{Mutex, MutexGuard, PoisonError};

use latchboard_broker::{BrokerDeviceEvent, BrokerInboundBatch};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::raw_telemetry_batch::RawTelemetryBatch;

/// An event as a tuple: its kind, the device's number and id, and the fields of the kind in the order of `domain.devices.device_link`.
// Easier to read as a table of five rows.
#[rustfmt::skip]
fn event_tuple<'py>(py: Python<'py>, event: &BrokerDeviceEvent) -> PyResult<Bound<'py, PyTuple>> {
    match event {
        BrokerDeviceEvent::Connect { source, protocol, address, at_ms, max_packet_size, session_present, session } => {
            ("connect", source.device, &*source.device_id, *protocol, address, at_ms, max_packet_size, session_present, session).into_pyobject(py)
        }
        BrokerDeviceEvent::Disconnect { source, reason, at_ms, session } => {
            ("disconnect", source.device, &*source.device_id, *reason, at_ms, session).into_pyobject(py)
        }
        BrokerDeviceEvent::Subscribe { source, filter, at_ms, held_until_ms } => {
            ("subscribe", source.device, &*source.device_id, filter, at_ms, held_until_ms).into_pyobject(py)
        }
        BrokerDeviceEvent::Publish { source, topic, payload, qos, retain, at_ms } => {
            let payload = PyBytes::new(py, payload);
            ("publish", source.device, &*source.device_id, topic, payload, qos, retain, at_ms).into_pyobject(py)
        }
        BrokerDeviceEvent::Fault { source, kind, at_ms } => {
            ("fault", source.device, &*source.device_id, *kind, at_ms).into_pyobject(py)
        }
    }
}

#[pyclass(module = "adapters.engine._native", name = "InboundBatch", frozen)]
pub struct PyInboundBatch {
    #[pyo3(get)]
    telemetry: Py<RawTelemetryBatch>,
    #[pyo3(get)]
    events: Py<PyList>,
    /// What is to be acknowledged; its messages have moved to `telemetry` and `events`.
    batch: Mutex<BrokerInboundBatch>,
}

#[pymethods]
impl PyInboundBatch {
    fn ack(&self, py: Python<'_>) {
        py.detach(|| lock(&self.batch).ack());
    }

    fn ack_telemetry(&self, py: Python<'_>) {
        py.detach(|| lock(&self.batch).ack_telemetry());
    }

    fn ack_events(&self, py: Python<'_>) {
        py.detach(|| lock(&self.batch).ack_events());
    }

    fn nack(&self, py: Python<'_>) {
        py.detach(|| lock(&self.batch).nack());
    }
}

fn lock(batch: &Mutex<BrokerInboundBatch>) -> MutexGuard<'_, BrokerInboundBatch> {
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn to_python(py: Python<'_>, mut batch: BrokerInboundBatch) -> PyResult<PyInboundBatch> {
    let messages = std::mem::take(&mut batch.telemetry);
    let tuples: Vec<_> = batch
        .events
        .iter()
        .map(|event| event_tuple(py, event))
        .collect::<PyResult<_>>()?;
    batch.events.clear();
    Ok(PyInboundBatch {
        telemetry: Py::new(py, RawTelemetryBatch { messages })?,
        events: PyList::new(py, tuples)?.unbind(),
        batch: Mutex::new(batch),
    })
}
