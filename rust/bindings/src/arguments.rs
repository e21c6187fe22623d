//! Arguments that several bindings take, converted; a file of its own, so that none of them imports another.

use std::time::Duration;

use latchboard_broker::FirmwareProfile;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

pub fn firmware_profile(name: &str) -> PyResult<FirmwareProfile> {
    FirmwareProfile::from_name(name).ok_or_else(|| PyValueError::new_err(format!("unknown firmware profile {name:?}")))
}
