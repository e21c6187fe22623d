//! ESPHome: each sensor has its own topic; the relay answers a command with its new state only.

use super::message::{
    ParsedRequestToDevice, ReceivedCommand, RelayAction, SimulatedDeviceMessage, SimulatedSensorValues, on_off,
};

pub(super) fn online_messages(relay: bool, _now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    vec![
        SimulatedDeviceMessage::retained("status", "online"),
        SimulatedDeviceMessage::retained("switch/relay/state", on_off(relay)),
    ]
}

/// One sensor after the other, each in a message of its own.
pub(super) fn telemetry(sample: &SimulatedSensorValues) -> SimulatedDeviceMessage {
    match sample.sequence % 5 {
        0 => SimulatedDeviceMessage::retained("sensor/temperature/state", format!("{:.2}", sample.temperature)),
        1 => SimulatedDeviceMessage::retained("sensor/humidity/state", format!("{:.1}", sample.humidity)),
        2 => SimulatedDeviceMessage::retained("sensor/voltage/state", format!("{:.1}", sample.voltage)),
        3 => SimulatedDeviceMessage::retained("sensor/wifi_signal/state", sample.rssi.to_string()),
        _ => SimulatedDeviceMessage::retained("binary_sensor/running/state", on_off(sample.relay)),
    }
}

pub(super) fn parse(topic: &str, payload: &[u8], _relay: bool, _now_ms: i64) -> ParsedRequestToDevice {
    let action = match (topic, payload) {
        ("switch/relay/command", b"ON") => RelayAction::Set(true),
        ("switch/relay/command", b"OFF") => RelayAction::Set(false),
        ("switch/relay/command", b"TOGGLE") => RelayAction::Toggle,
        _ => return ParsedRequestToDevice::Unknown,
    };
    ParsedRequestToDevice::Command(ReceivedCommand {
        action,
        ..ReceivedCommand::default()
    })
}

pub(super) fn acknowledgement(_command: &ReceivedCommand, _relay: bool, _now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    Vec::new()
}

pub(super) fn result(_command: &ReceivedCommand, relay: bool, _now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    vec![SimulatedDeviceMessage::retained("switch/relay/state", on_off(relay))]
}
