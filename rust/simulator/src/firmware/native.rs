//! Our own firmware: JSON on `telemetry`, `state`, `result`, `hello`, `sched/rev`.

use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::channels::{ChannelKind, SimulatedChannel};

use super::message::{
    ParsedRequestToDevice, ReceivedCommand, RelayAction, SimulatedDeviceMessage, SimulatedSensorValues, on_off,
};

pub(super) fn online_messages(channels: &[SimulatedChannel], now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    let mut hello = json!({"fw": "simulated"});
    if channels.len() > 1 || channels.iter().any(|channel| channel.config.kind != ChannelKind::Relay) {
        hello["ch"] = channels.iter().map(|channel| channel.config.kind.name()).collect();
        hello["names"] = channels.iter().map(|channel| channel.config.name.as_str()).collect();
    }
    let mut messages = vec![
        SimulatedDeviceMessage::retained("status", Bytes::from_static(b"online")),
        SimulatedDeviceMessage::new("hello", hello.to_string()),
    ];
    messages.extend(
        (1..)
            .zip(channels)
            .filter_map(|(number, channel)| state(number, channel, "boot", "", now_ms)),
    );
    messages
}

/// Only the state of channel 1 is retained.
pub(crate) fn state(
    number: usize,
    channel: &SimulatedChannel,
    by: &str,
    id: &str,
    now_ms: i64,
) -> Option<SimulatedDeviceMessage> {
    let mut state = channel.state(Instant::now())?;
    state.extend([
        ("by".to_owned(), json!(by)),
        ("id".to_owned(), json!(id)),
        ("ts".to_owned(), json!(now_ms)),
    ]);
    if number != 1 {
        state.insert("ch".to_owned(), json!(number));
    }
    let message = SimulatedDeviceMessage::new("state", Value::from(state).to_string());
    Some(SimulatedDeviceMessage {
        retain: number == 1,
        ..message
    })
}

pub(crate) fn press(number: usize, action: &str) -> SimulatedDeviceMessage {
    SimulatedDeviceMessage::new("state", format!(r#"{{"ch":{number},"action":"{action}"}}"#))
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

pub(super) fn parse(topic: &str, payload: &[u8]) -> ParsedRequestToDevice {
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
        channel: document
            .get("ch")
            .map_or(Some(1), Value::as_u64)
            .map_or(0, |number| number as usize),
        cmd: cmd.to_owned(),
        params: document["params"].clone(),
        action,
        expires_ms: document["exp"].as_i64(),
        ..ReceivedCommand::default()
    })
}

pub(super) fn acknowledgement(command: &ReceivedCommand, channel: &SimulatedChannel, now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    let mut messages = vec![result_message(command, "ack", channel)];
    messages.extend(state(command.channel, channel, "cmd", &command.id, now_ms));
    messages
}

pub(super) fn result(command: &ReceivedCommand, channel: &SimulatedChannel, _now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    vec![result_message(command, "done", channel)]
}

/// The result of a command that arrived after its deadline. Only this firmware knows deadlines.
pub(crate) fn expired(command: &ReceivedCommand, channel: &SimulatedChannel) -> SimulatedDeviceMessage {
    result_message(command, "expired", channel)
}

pub(crate) fn error(command: &ReceivedCommand, code: &str) -> SimulatedDeviceMessage {
    SimulatedDeviceMessage::new(
        "result",
        json!({"id": command.id, "status": "error", "code": code}).to_string(),
    )
}

fn result_message(command: &ReceivedCommand, status: &str, channel: &SimulatedChannel) -> SimulatedDeviceMessage {
    let mut result = json!({"id": command.id, "status": status});
    if channel.is_switched() {
        result["relay"] = json!(on_off(channel.on));
    }
    SimulatedDeviceMessage::new("result", result.to_string())
}
