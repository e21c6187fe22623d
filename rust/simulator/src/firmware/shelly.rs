//! Shelly Gen2 and later: JSON-RPC requests on `rpc`, responses on the topic that a request names, changes as partial `NotifyStatus`.

use serde_json::{Value, json};

use super::message::{ParsedRequestToDevice, ReceivedCommand, RelayAction, SimulatedDeviceMessage, SimulatedSensorValues};

const SOURCE: &str = "shellyplus1pm-simulated";

pub(super) fn online_messages(relay: bool, _now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    vec![SimulatedDeviceMessage::retained("online", "true"), status(relay)]
}

fn status(relay: bool) -> SimulatedDeviceMessage {
    SimulatedDeviceMessage::new(
        "status/switch:0",
        format!(r#"{{"id":0,"source":"init","output":{relay},"temperature":{{"tC":41.2,"tF":106.2}}}}"#),
    )
}

/// A partial status: the meter only.
pub(super) fn telemetry(sample: &SimulatedSensorValues) -> SimulatedDeviceMessage {
    let power = sample.voltage * sample.current;
    notification(
        sample.now_ms,
        &format!(
            r#"{{"id":0,"apower":{power:.1},"voltage":{:.1},"current":{:.3},"temperature":{{"tC":{:.1}}}}}"#,
            sample.voltage, sample.current, sample.temperature
        ),
    )
}

fn notification(now_ms: i64, switch: &str) -> SimulatedDeviceMessage {
    let (seconds, hundredths) = (now_ms / 1000, now_ms % 1000 / 10);
    SimulatedDeviceMessage::new(
        "events/rpc",
        format!(
            r#"{{"src":"{SOURCE}","dst":"events","method":"NotifyStatus","params":{{"ts":{seconds}.{hundredths:02},"switch:0":{switch}}}}}"#
        ),
    )
}

pub(super) fn parse(topic: &str, payload: &[u8], relay: bool, _now_ms: i64) -> ParsedRequestToDevice {
    match topic {
        "rpc" => serde_json::from_slice::<Value>(payload)
            .ok()
            .and_then(|request| command(&request))
            .map_or(ParsedRequestToDevice::Unknown, ParsedRequestToDevice::Command),
        "command/switch:0" | "command" if payload == b"status_update" => ParsedRequestToDevice::Query(status(relay)),
        _ => ParsedRequestToDevice::Unknown,
    }
}

fn command(request: &Value) -> Option<ReceivedCommand> {
    let action = match request["method"].as_str()? {
        "Switch.Set" => RelayAction::Set(request["params"]["on"].as_bool()?),
        "Switch.Toggle" => RelayAction::Toggle,
        _ => RelayAction::None,
    };
    Some(ReceivedCommand {
        id: request["id"].as_str()?.to_owned(),
        action,
        reply_to: request["src"].as_str()?.to_owned(),
        ..ReceivedCommand::default()
    })
}

pub(super) fn acknowledgement(command: &ReceivedCommand, relay: bool, now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    if command.action == RelayAction::None {
        return Vec::new();
    }
    vec![notification(
        now_ms,
        &format!(r#"{{"id":0,"output":{relay},"source":"MQTT"}}"#),
    )]
}

pub(super) fn result(command: &ReceivedCommand, relay: bool, _now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    // `src` is a whole topic, `devices/<id>/answer`; the response goes to `<src>/rpc`.
    let topic = command.reply_to.splitn(3, '/').nth(2).unwrap_or("answer");
    let result = match command.action {
        RelayAction::None => json!({"id": 0, "output": relay}),
        _ => json!({"was_on": !relay}),
    };
    let response = json!({"id": command.id, "src": SOURCE, "dst": command.reply_to, "result": result});
    vec![SimulatedDeviceMessage::new(&format!("{topic}/rpc"), response.to_string())]
}
