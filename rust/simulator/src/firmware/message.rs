//! What a device of any profile measures, and the messages that it sends and receives. Topics are relative to the device's prefix.

use bytes::Bytes;

pub(crate) use crate::channels::{ReceivedCommand, RelayAction};

/// What a device measures at one moment.
pub(crate) struct SimulatedSensorValues {
    pub now_ms: i64,
    /// Degrees Celsius.
    pub temperature: f64,
    /// Percent.
    pub humidity: f64,
    pub voltage: f64,
    pub current: f64,
    /// dBm.
    pub rssi: i64,
    pub relay: bool,
    /// Number of the telemetry message.
    pub sequence: u64,
    /// Whether the message is to carry that number.
    pub include_sequence: bool,
}

impl SimulatedSensorValues {
    /// Sine waves in time; `index` shifts the phase, so that each device measures other values.
    pub fn at(now_ms: i64, index: usize, relay: bool, sequence: u64) -> Self {
        let phase = now_ms as f64 / 10_000.0 + index as f64;
        Self {
            now_ms,
            temperature: 22.0 + 6.0 * phase.sin(),
            humidity: 50.0 + 20.0 * (phase / 3.0).cos(),
            voltage: 230.0 + 3.0 * (phase / 7.0).sin(),
            current: if relay { 1.5 + 0.5 * phase.cos() } else { 0.0 },
            rssi: -60 - (index % 30) as i64,
            relay,
            sequence,
            include_sequence: false,
        }
    }
}

pub(crate) struct SimulatedDeviceMessage {
    pub topic: String,
    pub payload: Bytes,
    pub retain: bool,
}

impl SimulatedDeviceMessage {
    pub fn new(topic: &str, payload: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.to_owned(),
            payload: payload.into(),
            retain: false,
        }
    }

    pub fn retained(topic: &str, payload: impl Into<Bytes>) -> Self {
        Self {
            retain: true,
            ..Self::new(topic, payload)
        }
    }
}

pub(crate) enum ParsedRequestToDevice {
    Command(ReceivedCommand),
    /// A question, with the response to it.
    Query(SimulatedDeviceMessage),
    /// A schedule, with the message that confirms it.
    Schedule(SimulatedDeviceMessage),
    Unknown,
}

pub(super) fn on_off(relay: bool) -> &'static str {
    if relay { "ON" } else { "OFF" }
}
