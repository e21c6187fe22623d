//! Bindings of the simulator.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use latchboard_simulator::{
    ChannelConfig, ChannelKind, DeviceCredentials, FaultConfig, MqttVersion, PubackSequenceRange, Simulation, SimulationConfig,
    SimulatorConnectionConfig,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::arguments::{duration, firmware_profile};

/// A fleet of simulated devices, `(device id, password)` each, that runs from construction until `stop` or until its time is over.
#[pyclass(module = "adapters.engine._native", name = "Simulation", frozen)]
pub struct PyFleetSimulation {
    simulation: Mutex<Simulation>,
}

impl PyFleetSimulation {
    fn simulation(&self) -> MutexGuard<'_, Simulation> {
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn optional_duration(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    seconds.map(duration).transpose()
}

fn mqtt_version(level: u8) -> PyResult<MqttVersion> {
    match level {
        4 => Ok(MqttVersion::V311),
        5 => Ok(MqttVersion::V5),
        other => Err(PyValueError::new_err(format!(
            "unknown MQTT protocol level {other}: 4 is MQTT 3.1.1, 5 is MQTT 5"
        ))),
    }
}

/// Of `(kind, name)`.
fn channel((kind, name): (String, String)) -> PyResult<ChannelConfig> {
    let unknown = || PyValueError::new_err(format!("unknown kind of channel {kind:?}"));
    Ok(ChannelConfig {
        kind: ChannelKind::from_name(&kind).ok_or_else(unknown)?,
        name,
    })
}

#[pymethods]
impl PyFleetSimulation {
    #[new]
    #[pyo3(signature = (host, port, devices, *, websocket=false, ca_certificates=None, version=4, profile="native", rate=100.0, qos=1,
        seconds=None, max_inflight=20, max_connecting=200, silent_share=0.0, duplicating_share=0.0, late_share=0.0, slow_share=0.0, slow_delay_s=2.0,
        reconnect_every_s=None, abrupt_disconnect_every_s=None, reconnect_all_every_s=None, channels=Vec::new(), press_every_s=None, keep_puback_log=false, threads=1))]
    // One keyword for each field of the configuration.
    #[allow(clippy::too_many_arguments)]
    fn new(
        host: String,
        port: u16,
        devices: Vec<(String, String)>,
        websocket: bool,
        ca_certificates: Option<Vec<u8>>,
        version: u8,
        profile: &str,
        rate: f64,
        qos: u8,
        seconds: Option<f64>,
        max_inflight: usize,
        max_connecting: usize,
        silent_share: f64,
        duplicating_share: f64,
        late_share: f64,
        slow_share: f64,
        slow_delay_s: f64,
        reconnect_every_s: Option<f64>,
        abrupt_disconnect_every_s: Option<f64>,
        reconnect_all_every_s: Option<f64>,
        channels: Vec<(String, String)>,
        press_every_s: Option<f64>,
        keep_puback_log: bool,
        threads: usize,
    ) -> PyResult<Self> {
        let faults = FaultConfig {
            silent: silent_share,
            slow: slow_share,
            slow_delay: duration(slow_delay_s)?,
            duplicate: duplicating_share,
            late: late_share,
            reconnect_every: optional_duration(reconnect_every_s)?,
            abrupt_reconnect_every: optional_duration(abrupt_disconnect_every_s)?,
            reconnect_storm_every: optional_duration(reconnect_all_every_s)?,
        };
        let config = SimulationConfig {
            connection: SimulatorConnectionConfig {
                host,
                port,
                websocket,
                trusted_certificates: ca_certificates,
                mqtt_version: mqtt_version(version)?,
            },
            profile: firmware_profile(profile)?,
            channels: channels.into_iter().map(channel).collect::<PyResult<_>>()?,
            press_every: optional_duration(press_every_s)?,
            rate,
            qos,
            max_inflight,
            concurrent_connects: max_connecting,
            duration: optional_duration(seconds)?,
            faults,
            puback_log: keep_puback_log,
            threads,
        };
        let credentials = |(device_id, password)| DeviceCredentials { device_id, password };
        let devices = devices.into_iter().map(credentials).collect();
        Ok(Self {
            simulation: Mutex::new(Simulation::start(config, devices)?),
        })
    }

    fn is_running(&self) -> bool {
        self.simulation().is_running()
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.simulation().stop());
    }

    /// Every device closes its connection without a DISCONNECT now, and reconnects at once.
    fn reconnect_all(&self) {
        self.simulation().reconnect_storm();
    }

    /// Clear the measured times; counters continue.
    fn reset_latencies(&self) {
        let simulation = self.simulation();
        simulation.counters().puback_time.clear();
        simulation.counters().connect_time.clear();
    }

    /// Counters since the start; times in microseconds, `elapsed_ms` since the start.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = {
            let simulation = self.simulation();
            let mut values = simulation.counters().snapshot();
            values.push(("elapsed_ms", simulation.elapsed().as_millis() as u64));
            values
        };
        values.into_py_dict(py)
    }

    /// By device id, the first and last number (`seq`) of each range of telemetry messages that were acknowledged.
    fn puback_log(&self) -> Vec<(String, Vec<PubackSequenceRange>)> {
        let simulation = self.simulation();
        let devices = simulation.puback_log().into_iter();
        devices.map(|(id, ranges)| (id.to_owned(), ranges)).collect()
    }
}
