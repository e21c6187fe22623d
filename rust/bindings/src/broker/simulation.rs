//! Bindings of the simulated fleet.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use latchboard_broker::Profile;
use latchboard_broker::simulate::{Faults, Identity, Plan, Protocol, Route, Run, Simulation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A fleet of simulated devices, `(device id, password)` each, that runs from construction until `stop` or its time.
#[pyclass(module = "adapters.engine._native", name = "Simulation", frozen)]
struct PySimulation {
    fleet: Mutex<Simulation>,
}

impl PySimulation {
    fn fleet(&self) -> MutexGuard<'_, Simulation> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn time(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn times(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    seconds.map(time).transpose()
}

fn protocol(version: u8) -> PyResult<Protocol> {
    match version {
        4 => Ok(Protocol::V311),
        5 => Ok(Protocol::V5),
        other => Err(PyValueError::new_err(format!(
            "there is no MQTT protocol level {other}: 4 is MQTT 3.1.1, 5 is MQTT 5"
        ))),
    }
}

fn profile(name: &str) -> PyResult<Profile> {
    Profile::named(name)
        .ok_or_else(|| PyValueError::new_err(format!("there is no device profile {name:?}")))
}

#[pymethods]
impl PySimulation {
    #[new]
    #[pyo3(signature = (host, port, devices, *, websocket=false, trust=None, version=4, profile="native", rate=100.0, qos=1,
        seconds=None, window=20, connecting=200, silent=0.0, duplicating=0.0, late=0.0, slow=0.0, slowness_s=2.0,
        reconnect_every_s=None, dirty_every_s=None, storm_every_s=None, journal=false, threads=1))]
    // One keyword a choice, as in the plan.
    #[allow(clippy::too_many_arguments)]
    fn new(
        host: String,
        port: u16,
        devices: Vec<(String, String)>,
        websocket: bool,
        trust: Option<Vec<u8>>,
        version: u8,
        profile: &str,
        rate: f64,
        qos: u8,
        seconds: Option<f64>,
        window: usize,
        connecting: usize,
        silent: f64,
        duplicating: f64,
        late: f64,
        slow: f64,
        slowness_s: f64,
        reconnect_every_s: Option<f64>,
        dirty_every_s: Option<f64>,
        storm_every_s: Option<f64>,
        journal: bool,
        threads: usize,
    ) -> PyResult<Self> {
        let faults = Faults {
            silent,
            slow,
            slowness: time(slowness_s)?,
            duplicating,
            late,
            reconnect_every: times(reconnect_every_s)?,
            dirty_every: times(dirty_every_s)?,
            storm_every: times(storm_every_s)?,
        };
        let plan = Plan {
            route: Route {
                host,
                port,
                websocket,
                trust,
                protocol: protocol(version)?,
            },
            profile: self::profile(profile)?,
            rate,
            qos,
            window,
            connecting,
            duration: times(seconds)?,
            faults,
            journal,
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

    /// Cuts every connection at this moment; all come back at once.
    fn storm(&self) {
        self.fleet().storm();
    }

    /// Times are measured anew from here; counters go on.
    fn clear_times(&self) {
        let fleet = self.fleet();
        fleet.tally().confirmation.clear();
        fleet.tally().connecting.clear();
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

    /// By device id, the first and last number (`seq`) of each run of telemetry messages that were confirmed.
    fn journal(&self) -> Vec<(String, Vec<Run>)> {
        let fleet = self.fleet();
        let runs = fleet.journal().into_iter();
        runs.map(|(id, runs)| (id.to_owned(), runs)).collect()
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySimulation>()
}
