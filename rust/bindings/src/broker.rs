//! Bindings of the broker. In an inbound batch telemetry stays in Rust, and events become tuples.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use latchboard_broker::{
    Broker, BrokerDeviceEvent, BrokerInboundBatch, BrokerLimits, BrokerStartError, EnqueueResult, IpNetwork, MqttListenAddress,
    OutboundMessage, ServerCertificate, TransportKind, set_now_ms,
};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList, PyTuple};

use crate::arguments::{duration, firmware_profile};
use crate::batch::RawTelemetryBatch;

/// What the present is for the brokers of this process; they count on from there.
#[pyfunction]
pub fn set_broker_time(now_ms: i64) {
    set_now_ms(now_ms);
}

/// `(transport, tls, host, port)`; the transport is `tcp` or `ws`.
type AddressTuple = (String, bool, String, u16);

fn listen_address((transport, tls, host, port): AddressTuple) -> PyResult<MqttListenAddress> {
    let transport = match transport.as_str() {
        "tcp" => TransportKind::Tcp,
        "ws" => TransportKind::WebSocket,
        other => {
            return Err(PyValueError::new_err(format!("transport {other:?} is neither tcp nor ws")));
        }
    };
    Ok(MqttListenAddress {
        transport,
        tls,
        host,
        port,
    })
}

/// The attributes of the Python object with this name; None leaves the default.
#[derive(FromPyObject)]
struct UnauthenticatedConnectionLimitArgs {
    max_pending: Option<usize>,
    max_pending_per_address: Option<usize>,
    ban_after: Option<u32>,
    max_ban_s: Option<f64>,
    /// Address and prefix length.
    trusted_networks: Option<Vec<(IpAddr, u8)>>,
}

impl UnauthenticatedConnectionLimitArgs {
    fn apply(self, limits: BrokerLimits) -> PyResult<BrokerLimits> {
        let networks = self.trusted_networks.map(|networks| {
            let networks = networks.into_iter();
            networks.map(|(address, prefix)| IpNetwork::new(address, prefix)).collect()
        });
        Ok(BrokerLimits {
            max_pending: self.max_pending.unwrap_or(limits.max_pending),
            max_pending_per_address: self.max_pending_per_address.unwrap_or(limits.max_pending_per_address),
            ban_after: self.ban_after.unwrap_or(limits.ban_after),
            max_ban: seconds(self.max_ban_s, limits.max_ban)?,
            trusted_networks: networks.unwrap_or(limits.trusted_networks),
            ..limits
        })
    }
}

fn seconds(given: Option<f64>, default: Duration) -> PyResult<Duration> {
    given.map_or(Ok(default), duration)
}

fn start_error(error: BrokerStartError) -> PyErr {
    match &error {
        BrokerStartError::Listen { source, .. } => PyOSError::new_err((source.raw_os_error().unwrap_or(0), error.to_string())),
        BrokerStartError::Tls(_) => PyValueError::new_err(error.to_string()),
        BrokerStartError::Threads(_) | BrokerStartError::AlreadyStarted => PyRuntimeError::new_err(error.to_string()),
    }
}

#[pyclass(module = "adapters.engine._native", name = "Broker", frozen)]
pub struct PyBroker {
    broker: Broker,
}

#[pymethods]
impl PyBroker {
    #[new]
    #[pyo3(signature = (*, threads=None, max_connections=None, max_connections_per_device=None, connect_timeout_s=None,
        max_payload=None, max_inflight=None, inbound_bytes=None, qos0_timeout_s=None, outbound_queue=None,
        session_expiry_s=None, rate_per_second=None, rate_burst=None, pending=None))]
    // One keyword for each limit; a Python settings class would repeat them.
    #[allow(clippy::too_many_arguments)]
    fn new(
        threads: Option<usize>,
        max_connections: Option<usize>,
        max_connections_per_device: Option<usize>,
        connect_timeout_s: Option<f64>,
        max_payload: Option<usize>,
        max_inflight: Option<u16>,
        inbound_bytes: Option<u32>,
        qos0_timeout_s: Option<f64>,
        outbound_queue: Option<usize>,
        session_expiry_s: Option<u32>,
        rate_per_second: Option<f64>,
        rate_burst: Option<f64>,
        pending: Option<UnauthenticatedConnectionLimitArgs>,
    ) -> PyResult<Self> {
        let default = BrokerLimits::default();
        let limits = BrokerLimits {
            threads: threads.unwrap_or(default.threads),
            max_connections: max_connections.unwrap_or(default.max_connections),
            max_connections_per_device: max_connections_per_device.unwrap_or(default.max_connections_per_device),
            connect_timeout: seconds(connect_timeout_s, default.connect_timeout)?,
            max_payload: max_payload.unwrap_or(default.max_payload),
            receive_maximum: max_inflight.map_or(default.receive_maximum, |inflight| usize::from(inflight.max(1))),
            inbound_queue_bytes: inbound_bytes.map_or(default.inbound_queue_bytes, |bytes| bytes as usize),
            qos0_queue_timeout: seconds(qos0_timeout_s, default.qos0_queue_timeout)?,
            outbound_queue: outbound_queue.unwrap_or(default.outbound_queue),
            max_session_expiry: session_expiry_s.map_or(default.max_session_expiry, |s| Duration::from_secs(u64::from(s))),
            rate_per_second: rate_per_second.unwrap_or(default.rate_per_second),
            rate_burst: rate_burst.unwrap_or(default.rate_burst).max(1.0),
            ..default
        };
        let limits = match pending {
            Some(pending) => pending.apply(limits)?,
            None => limits,
        };
        Ok(Self {
            broker: Broker::new(limits)?,
        })
    }

    /// Listen on all of `addresses` or on none. `certificate`, `key` and `client_ca` are PEM.
    #[pyo3(signature = (addresses, certificate=None, key=None, client_ca=None))]
    fn start(
        &self,
        py: Python<'_>,
        addresses: Vec<AddressTuple>,
        certificate: Option<Vec<u8>>,
        key: Option<Vec<u8>>,
        client_ca: Option<Vec<u8>>,
    ) -> PyResult<()> {
        let addresses: Vec<MqttListenAddress> = addresses.into_iter().map(listen_address).collect::<PyResult<_>>()?;
        let certificate = certificate
            .zip(key)
            .map(|(chain, key)| ServerCertificate { chain, key, client_ca });
        py.detach(|| self.broker.start(&addresses, certificate.as_ref()))
            .map_err(start_error)
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.broker.stop());
    }

    fn suspend(&self, py: Python<'_>) {
        py.detach(|| self.broker.suspend());
    }

    fn resume(&self) {
        self.broker.resume();
    }

    fn ports(&self) -> Vec<u16> {
        self.broker.addresses().iter().map(std::net::SocketAddr::port).collect()
    }

    fn upsert_credentials(&self, device_id: &str, device_no: u32, password: &str, profile: &str) -> PyResult<()> {
        let profile = firmware_profile(profile)?;
        self.broker.upsert_credentials(device_id, device_no, password, profile);
        Ok(())
    }

    fn remove_device(&self, device_id: &str) -> bool {
        self.broker.remove_device(device_id)
    }

    fn disconnect(&self, device_id: &str) -> bool {
        self.broker.disconnect_device(device_id)
    }

    fn is_connected(&self, device_id: &str) -> bool {
        self.broker.is_connected(device_id)
    }

    fn last_subscribed_ms(&self, device_id: &str) -> i64 {
        self.broker.last_subscribed_ms(device_id)
    }

    fn max_packet_size(&self, device_id: &str) -> Option<u32> {
        self.broker.max_packet_size(device_id)
    }

    #[pyo3(signature = (device_id, topic, payload, qos=1, retain=false, expiry_s=None))]
    fn publish(
        &self,
        device_id: String,
        topic: String,
        payload: Bound<'_, PyBytes>,
        qos: u8,
        retain: bool,
        expiry_s: Option<u32>,
    ) -> PyResult<&'static str> {
        if topic.is_empty() || topic.contains(['+', '#', '\0']) {
            return Err(PyValueError::new_err(format!(
                "{topic:?} is not a topic that can be published to"
            )));
        }
        let message = OutboundMessage {
            device_id,
            topic,
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            qos,
            retain,
            expiry: expiry_s.map(|seconds| Duration::from_secs(u64::from(seconds))),
        };
        Ok(match self.broker.publish(message) {
            EnqueueResult::Queued => "queued",
            EnqueueResult::NotSubscribed => "not_subscribed",
            EnqueueResult::QueueFull => "queue_full",
            EnqueueResult::TooLarge => "too_large",
        })
    }

    /// At most `limit` messages and events; None when there are none.
    fn take_batch(&self, py: Python<'_>, limit: usize) -> PyResult<Option<PyInboundBatch>> {
        py.detach(|| self.broker.take(limit))
            .map(|batch| to_python(py, batch))
            .transpose()
    }

    fn is_stopped(&self) -> bool {
        self.broker.is_stopped()
    }

    fn fileno(&self) -> RawFd {
        self.broker.descriptor()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.broker.stats().into_py_dict(py)
    }
}

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
        BrokerDeviceEvent::Fault { source, kind, at_ms, topic } => {
            ("fault", source.device, &*source.device_id, *kind, at_ms, topic).into_pyobject(py)
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

fn to_python(py: Python<'_>, mut batch: BrokerInboundBatch) -> PyResult<PyInboundBatch> {
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
