//! Bindings of the broker.

mod simulation;
mod uplink;

use std::os::fd::RawFd;
use std::time::Duration;

use bytes::Bytes;
use latchboard_broker::{Broker, Limits, Listen, Outgoing, Profile, StartError, Tls, Transport};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use self::uplink::{UplinkBatch, uplink_batch};

/// `(transport, tls, host, port)`; the transport is `tcp` or `ws`.
type Address = (String, bool, String, u16);
/// `(device id, topic below its prefix, payload, qos, retain, expiry in seconds)`.
type Letter<'py> = (String, String, Bound<'py, PyBytes>, u8, bool, Option<u32>);

fn listen((transport, tls, host, port): Address) -> PyResult<Listen> {
    let transport = match transport.as_str() {
        "tcp" => Transport::Tcp,
        "ws" => Transport::WebSocket,
        other => {
            return Err(PyValueError::new_err(format!(
                "transport {other:?} is neither tcp nor ws"
            )));
        }
    };
    Ok(Listen {
        transport,
        tls,
        host,
        port,
    })
}

fn outgoing((device_id, topic, payload, qos, retain, expiry_s): Letter<'_>) -> PyResult<Outgoing> {
    if topic.is_empty() || topic.contains(['+', '#', '\0']) {
        return Err(PyValueError::new_err(format!(
            "{topic:?} is not a topic one can publish to"
        )));
    }
    let payload = Bytes::copy_from_slice(payload.as_bytes());
    let expiry = expiry_s.map(|seconds| Duration::from_secs(u64::from(seconds)));
    Ok(Outgoing {
        device_id,
        topic,
        payload,
        qos,
        retain,
        expiry,
    })
}

fn start_error(error: StartError) -> PyErr {
    match &error {
        StartError::Listen { source, .. } => {
            PyOSError::new_err((source.raw_os_error().unwrap_or(0), error.to_string()))
        }
        StartError::Tls(_) => PyValueError::new_err(error.to_string()),
        StartError::Threads(_) | StartError::Again => PyRuntimeError::new_err(error.to_string()),
    }
}

#[pyclass(module = "adapters.engine._native", name = "Broker", frozen)]
struct PyBroker {
    broker: Broker,
}

#[pymethods]
impl PyBroker {
    #[new]
    #[pyo3(signature = (*, threads=None, max_connections=None, max_connections_per_device=None, connect_timeout_s=None,
        max_payload=None, max_inflight=None, uplink_bytes=None, qos0_patience_s=None, downlink_queue=None,
        session_expiry_s=None, rate_per_second=None, rate_burst=None))]
    // One keyword a limit: a settings object of its own would say the same twice.
    #[allow(clippy::too_many_arguments)]
    fn new(
        threads: Option<usize>,
        max_connections: Option<usize>,
        max_connections_per_device: Option<usize>,
        connect_timeout_s: Option<f64>,
        max_payload: Option<usize>,
        max_inflight: Option<u16>,
        uplink_bytes: Option<u32>,
        qos0_patience_s: Option<f64>,
        downlink_queue: Option<usize>,
        session_expiry_s: Option<u32>,
        rate_per_second: Option<f64>,
        rate_burst: Option<f64>,
    ) -> PyResult<Self> {
        let default = Limits::default();
        let seconds =
            |given: Option<f64>, default: Duration| match given.map(Duration::try_from_secs_f64) {
                None => Ok(default),
                Some(Ok(duration)) => Ok(duration),
                Some(Err(error)) => Err(PyValueError::new_err(error.to_string())),
            };
        let limits = Limits {
            threads: threads.unwrap_or(default.threads),
            connections: max_connections.unwrap_or(default.connections),
            connections_per_device: max_connections_per_device
                .unwrap_or(default.connections_per_device),
            connect_timeout: seconds(connect_timeout_s, default.connect_timeout)?,
            payload: max_payload.unwrap_or(default.payload),
            inflight: max_inflight
                .map_or(default.inflight, |inflight| usize::from(inflight.max(1))),
            uplink_bytes: uplink_bytes.map_or(default.uplink_bytes, |bytes| bytes as usize),
            qos0_patience: seconds(qos0_patience_s, default.qos0_patience)?,
            downlink_queue: downlink_queue.unwrap_or(default.downlink_queue),
            session_expiry: session_expiry_s.map_or(default.session_expiry, |s| {
                Duration::from_secs(u64::from(s))
            }),
            rate_per_second: rate_per_second.unwrap_or(default.rate_per_second),
            rate_burst: rate_burst.unwrap_or(default.rate_burst).max(1.0),
            ..default
        };
        Ok(Self {
            broker: Broker::new(limits)?,
        })
    }

    /// Listen on all of `addresses` or on none; `certificate` and `key` are PEM.
    #[pyo3(signature = (addresses, certificate=None, key=None))]
    fn start(
        &self,
        py: Python<'_>,
        addresses: Vec<Address>,
        certificate: Option<Vec<u8>>,
        key: Option<Vec<u8>>,
    ) -> PyResult<()> {
        let listens: Vec<Listen> = addresses.into_iter().map(listen).collect::<PyResult<_>>()?;
        let tls = certificate
            .zip(key)
            .map(|(certificates, key)| Tls { certificates, key });
        py.detach(|| self.broker.start(&listens, tls.as_ref()))
            .map_err(start_error)
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.broker.stop());
    }

    fn ports(&self) -> Vec<u16> {
        self.broker
            .addresses()
            .iter()
            .map(std::net::SocketAddr::port)
            .collect()
    }

    fn admit(
        &self,
        device_id: &str,
        device_no: u32,
        password: &str,
        profile: &str,
    ) -> PyResult<()> {
        let Some(profile) = Profile::named(profile) else {
            return Err(PyValueError::new_err(format!(
                "there is no device profile {profile:?}"
            )));
        };
        self.broker.admit(device_id, device_no, password, profile);
        Ok(())
    }

    fn expel(&self, device_id: &str) -> bool {
        self.broker.expel(device_id)
    }

    fn kick(&self, device_id: &str) -> bool {
        self.broker.kick(device_id)
    }

    fn connected(&self, device_id: &str) -> bool {
        self.broker.connected(device_id)
    }

    fn subscribed_ms(&self, device_id: &str) -> i64 {
        self.broker.subscribed_ms(device_id)
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
    ) -> PyResult<bool> {
        Ok(self.broker.publish(outgoing((
            device_id, topic, payload, qos, retain, expiry_s,
        ))?))
    }

    fn publish_many(&self, letters: Vec<Letter<'_>>) -> PyResult<Vec<bool>> {
        let letters: Vec<Outgoing> = letters.into_iter().map(outgoing).collect::<PyResult<_>>()?;
        Ok(letters
            .into_iter()
            .map(|letter| self.broker.publish(letter))
            .collect())
    }

    /// At most `limit` messages and events; None when there is nothing now.
    fn take(&self, py: Python<'_>, limit: usize) -> PyResult<Option<UplinkBatch>> {
        py.detach(|| self.broker.take(limit))
            .map(|batch| uplink_batch(py, batch))
            .transpose()
    }

    fn stopped(&self) -> bool {
        self.broker.is_stopped()
    }

    fn fileno(&self) -> RawFd {
        self.broker.descriptor()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = PyDict::new(py);
        for (name, value) in self.broker.stats() {
            counters.set_item(name, value)?;
        }
        Ok(counters)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyBroker>()?;
    module.add_class::<UplinkBatch>()?;
    simulation::register(module)
}
