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
            .and_then(|request| call(&request, relay))
            .unwrap_or(ParsedRequestToDevice::Unknown),
        "command/switch:0" | "command" if payload == b"status_update" => ParsedRequestToDevice::Query(status(relay)),
        _ => ParsedRequestToDevice::Unknown,
    }
}

/// A command, or the question after a connect: what the device consists of.
fn call(request: &Value, relay: bool) -> Option<ParsedRequestToDevice> {
    let result = match request["method"].as_str()? {
        "Shelly.GetConfig" => json!({"switch:0": {"id": 0, "name": null}}),
        "Shelly.GetStatus" => json!({"switch:0": {"id": 0, "source": "init", "output": relay}}),
        _ => return command(request).map(ParsedRequestToDevice::Command),
    };
    let (id, reply_to) = (request["id"].as_str()?, request["src"].as_str()?);
    Some(ParsedRequestToDevice::Query(response(id, reply_to, &result)))
}

/// `reply_to` is a whole topic, `devices/<id>/answer`; the response goes to `<reply_to>/rpc`.
fn response(id: &str, reply_to: &str, result: &Value) -> SimulatedDeviceMessage {
    let topic = reply_to.splitn(3, '/').nth(2).unwrap_or("answer");
    let response = json!({"id": id, "src": SOURCE, "dst": reply_to, "result": result});
    SimulatedDeviceMessage::new(&format!("{topic}/rpc"), response.to_string())
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
    let result = match command.action {
        RelayAction::None => json!({"id": 0, "output": relay}),
        _ => json!({"was_on": !relay}),
    };
    vec![response(&command.id, &command.reply_to, &result)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_questions_after_a_connect_are_no_commands() {
        for (method, part) in [("Shelly.GetConfig", "name"), ("Shelly.GetStatus", "output")] {
            let request = json!({"id": "all", "src": "devices/dev_x/answer", "method": method, "params": {}});
            let ParsedRequestToDevice::Query(response) = parse("rpc", request.to_string().as_bytes(), true, 1) else {
                panic!("{method}");
            };
            assert_eq!(response.topic, "answer/rpc");
            let answer: Value = serde_json::from_slice(&response.payload).expect("JSON");
            assert_eq!(answer["id"], "all");
            assert!(answer["result"]["switch:0"].get(part).is_some(), "{answer}");
        }
    }
}
