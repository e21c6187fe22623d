//! Bindings of the broker.

use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use latchboard_broker::simulate::{Identity, Plan, Simulation};
use latchboard_broker::{
    Batch, Broker, Event, Limits, Listen, Outgoing, Profile, StartError, Tls, Transport,
};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::batch::{Message, TelemetryBatch};

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

/// An event as a tuple: its kind, the device's number and id, what there is to it, and the Unix milliseconds last.
fn event_tuple<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyTuple>> {
    match event {
        Event::Connect {
            source,
            protocol,
            address,
            at_ms,
        } => (
            "connect",
            source.device,
            &*source.device_id,
            *protocol,
            address,
            at_ms,
        )
            .into_pyobject(py),
        Event::Disconnect {
            source,
            reason,
            at_ms,
        } => (
            "disconnect",
            source.device,
            &*source.device_id,
            *reason,
            at_ms,
        )
            .into_pyobject(py),
        Event::Subscribe {
            source,
            filter,
            at_ms,
        } => (
            "subscribe",
            source.device,
            &*source.device_id,
            filter,
            at_ms,
        )
            .into_pyobject(py),
        Event::Publish {
            source,
            topic,
            payload,
            qos,
            retain,
            at_ms,
        } => {
            let payload = PyBytes::new(py, payload);
            (
                "publish",
                source.device,
                &*source.device_id,
                topic,
                payload,
                qos,
                retain,
                at_ms,
            )
                .into_pyobject(py)
        }
        Event::Fault {
            source,
            kind,
            at_ms,
        } => ("fault", source.device, &*source.device_id, *kind, at_ms).into_pyobject(py),
    }
}

#[pyclass(module = "adapters.engine._native", frozen)]
struct UplinkBatch {
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

fn uplink_batch(py: Python<'_>, mut batch: Batch) -> PyResult<UplinkBatch> {
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

/// A fleet of simulated native devices, `(device id, password)` each, that runs from construction until `stop` or its time.
#[pyclass(module = "adapters.engine._native", name = "Simulation", frozen)]
struct PySimulation {
    fleet: Mutex<Simulation>,
}

impl PySimulation {
    fn fleet(&self) -> MutexGuard<'_, Simulation> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PySimulation {
    #[new]
    #[pyo3(signature = (host, port, devices, *, rate=100.0, qos=1, seconds=None, window=20, connecting=200,
        reconnect_every_s=None, silent=0.0, duplicating=0.0, slow=0.0, slowness_s=2.0, threads=1))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        host: String,
        port: u16,
        devices: Vec<(String, String)>,
        rate: f64,
        qos: u8,
        seconds: Option<f64>,
        window: usize,
        connecting: usize,
        reconnect_every_s: Option<f64>,
        silent: f64,
        duplicating: f64,
        slow: f64,
        slowness_s: f64,
        threads: usize,
    ) -> PyResult<Self> {
        let time = |seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|error| PyValueError::new_err(error.to_string()))
        };
        let plan = Plan {
            host,
            port,
            rate,
            qos,
            window,
            connecting,
            duration: seconds.map(time).transpose()?,
            reconnect_every: reconnect_every_s.map(time).transpose()?,
            silent,
            duplicating,
            slow,
            slowness: time(slowness_s)?,
            threads,
        };
        let identities = devices.into_iter().map(|(device_id, password)| Identity {
            device_id,
            password,
        });
        Ok(Self {
            fleet: Mutex::new(Simulation::start(plan, identities.collect())?),
        })
    }

    fn running(&self) -> bool {
        self.fleet().is_running()
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.fleet().stop());
    }

    /// Counters so far; times in microseconds, `elapsed_ms` since the start.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (values, elapsed) = {
            let fleet = self.fleet();
            (fleet.tally().snapshot(), fleet.elapsed())
        };
        let counters = PyDict::new(py);
        for (name, value) in values {
            counters.set_item(name, value)?;
        }
        counters.set_item("elapsed_ms", elapsed.as_millis() as u64)?;
        Ok(counters)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyBroker>()?;
    module.add_class::<UplinkBatch>()?;
    module.add_class::<PySimulation>()
}
