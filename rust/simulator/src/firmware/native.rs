//! Our own firmware: JSON on `telemetry`, `state`, `result`, `hello`, `sched/rev`.

use bytes::Bytes;
use serde_json::Value;

use super::message::{
    ParsedRequestToDevice, ReceivedCommand, RelayAction, SimulatedDeviceMessage, SimulatedSensorValues, on_off,
};

pub(super) fn online_messages(relay: bool, now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    vec![
        SimulatedDeviceMessage::retained("status", Bytes::from_static(b"online")),
        SimulatedDeviceMessage::new("hello", Bytes::from_static(br#"{"fw":"simulated"}"#)),
        state(relay, "boot", "", now_ms),
    ]
}

fn state(relay: bool, by: &str, id: &str, now_ms: i64) -> SimulatedDeviceMessage {
    let relay = on_off(relay);
    SimulatedDeviceMessage::retained(
        "state",
        format!(r#"{{"relay":"{relay}","by":"{by}","id":"{id}","ts":{now_ms}}}"#),
    )
}

/// Five metrics, and the message's number if it is to be included.
pub(super) fn telemetry(sample: &SimulatedSensorValues) -> SimulatedDeviceMessage {
    let number = if sample.include_sequence {
        format!(r#","seq":{}"#, sample.sequence)
    } else {
        String::new()
    };
    SimulatedDeviceMessage::new(
        "telemetry",
        format!(
            r#"{{"ts":{},"m":{{"temperature":{:.2},"humidity":{:.1},"voltage":{:.1},"current":{:.3},"rssi":{}{number}}}}}"#,
            sample.now_ms, sample.temperature, sample.humidity, sample.voltage, sample.current, sample.rssi,
        ),
    )
}

pub(super) fn parse(topic: &str, payload: &[u8], _relay: bool, _now_ms: i64) -> ParsedRequestToDevice {
    let Ok(document) = serde_json::from_slice::<Value>(payload) else {
        return ParsedRequestToDevice::Unknown;
    };
    match topic {
        "cmd" => command(&document),
        "sched" => document["rev"].as_i64().map_or(ParsedRequestToDevice::Unknown, |rev| {
            ParsedRequestToDevice::Schedule(SimulatedDeviceMessage::retained("sched/rev", format!(r#"{{"rev":{rev}}}"#)))
        }),
        _ => ParsedRequestToDevice::Unknown,
    }
}

fn command(document: &Value) -> ParsedRequestToDevice {
    let (Some(id), Some(cmd)) = (document["id"].as_str(), document["cmd"].as_str()) else {
        return ParsedRequestToDevice::Unknown;
    };
    let action = match cmd {
        "ON" => RelayAction::Set(true),
        "OFF" => RelayAction::Set(false),
        "TOGGLE" => RelayAction::Toggle,
        _ => RelayAction::None,
    };
    ParsedRequestToDevice::Command(ReceivedCommand {
        id: id.to_owned(),
        action,
        expires_ms: document["exp"].as_i64(),
        reply_to: String::new(),
    })
}

pub(super) fn acknowledgement(command: &ReceivedCommand, relay: bool, now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    vec![
        result_message(&command.id, "ack", relay),
        state(relay, "cmd", &command.id, now_ms),
    ]
}

pub(super) fn result(command: &ReceivedCommand, relay: bool, _now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    vec![result_message(&command.id, "done", relay)]
}

/// The result of a command that arrived after its deadline. Only this firmware knows deadlines.
pub(super) fn expired(command: &ReceivedCommand, relay: bool) -> SimulatedDeviceMessage {
    result_message(&command.id, "expired", relay)
}

fn result_message(id: &str, status: &str, relay: bool) -> SimulatedDeviceMessage {
    let relay = on_off(relay);
    SimulatedDeviceMessage::new("result", format!(r#"{{"id":"{id}","status":"{status}","relay":"{relay}"}}"#))
}
