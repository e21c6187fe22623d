//! Bindings of the simulated fleet.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use latchboard_broker::simulate::{Identity, Plan, Simulation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

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
    module.add_class::<PySimulation>()
}
