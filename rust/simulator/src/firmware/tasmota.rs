//! Tasmota: it publishes on `tele/…` and `stat/…` and receives on `cmnd/…`. A `Backlog` runs several steps; the last publishes the
//! command's id.

use jiff::Timestamp;

use super::message::{
    ParsedRequestToDevice, ReceivedCommand, RelayAction, SimulatedDeviceMessage, SimulatedSensorValues, on_off,
};

pub(super) fn online_messages(relay: bool, now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    vec![
        SimulatedDeviceMessage::retained("tele/LWT", "Online"),
        SimulatedDeviceMessage::new(
            "tele/INFO1",
            r#"{"Info1":{"Module":"Generic","Version":"14.2.0(simulated)","FallbackTopic":"cmnd/DVES_000000_fb/"}}"#,
        ),
        SimulatedDeviceMessage::new("tele/STATE", status(relay, now_ms)),
    ]
}

fn status(relay: bool, now_ms: i64) -> String {
    format!(
        r#"{{"Time":"{}","Uptime":"0T00:01:00","Heap":25,"POWER":"{}","Wifi":{{"RSSI":76,"Signal":-62}}}}"#,
        iso_utc(now_ms),
        on_off(relay)
    )
}

/// `tele/SENSOR` with a DS18B20, an AM2301 and the energy meter, nested as Tasmota nests them.
pub(super) fn telemetry(sample: &SimulatedSensorValues) -> SimulatedDeviceMessage {
    let power = sample.voltage * sample.current;
    SimulatedDeviceMessage::new(
        "tele/SENSOR",
        format!(
            concat!(
                r#"{{"Time":"{}","DS18B20":{{"Id":"030CE4AA0A3B","Temperature":{:.1}}},"AM2301":{{"Temperature":{:.1},"Humidity":{:.1}}},"#,
                r#""ENERGY":{{"Power":{:.0},"Voltage":{:.0},"Current":{:.3}}},"TempUnit":"C"}}"#
            ),
            iso_utc(sample.now_ms),
            sample.temperature,
            sample.temperature + 0.4,
            sample.humidity,
            power,
            sample.voltage,
            sample.current,
        ),
    )
}

pub(super) fn parse(topic: &str, payload: &[u8], relay: bool, now_ms: i64) -> ParsedRequestToDevice {
    let Some(command) = topic.strip_prefix("cmnd/") else {
        return ParsedRequestToDevice::Unknown;
    };
    let text = std::str::from_utf8(payload).unwrap_or_default();
    match command.to_ascii_lowercase().as_str() {
        "state" => ParsedRequestToDevice::Query(SimulatedDeviceMessage::new("stat/RESULT", status(relay, now_ms))),
        "backlog" | "backlog0" => backlog(text),
        "power" | "power1" => ParsedRequestToDevice::Command(ReceivedCommand {
            action: power(text),
            ..ReceivedCommand::default()
        }),
        _ => ParsedRequestToDevice::Unknown,
    }
}

/// `Power1 ON; Publish devices/<id>/stat/ACK <execution>`
fn backlog(text: &str) -> ParsedRequestToDevice {
    let (mut action, mut id) = (RelayAction::None, None);
    for step in text.split(';') {
        let mut words = step.split_whitespace();
        let name = words.next().unwrap_or_default().to_ascii_lowercase();
        match name.as_str() {
            "power" | "power1" => action = power(words.next().unwrap_or_default()),
            "publish" if words.next().is_some_and(|topic| topic.ends_with("/stat/ACK")) => {
                id = words.next();
            }
            _ => {}
        }
    }
    id.map_or(ParsedRequestToDevice::Unknown, |id| {
        ParsedRequestToDevice::Command(ReceivedCommand {
            id: id.to_owned(),
            action,
            ..ReceivedCommand::default()
        })
    })
}

fn power(text: &str) -> RelayAction {
    match text.trim().to_ascii_uppercase().as_str() {
        "ON" | "1" => RelayAction::Set(true),
        "OFF" | "0" => RelayAction::Set(false),
        "TOGGLE" | "2" => RelayAction::Toggle,
        _ => RelayAction::None,
    }
}

pub(super) fn acknowledgement(command: &ReceivedCommand, relay: bool, now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    if command.action == RelayAction::None {
        return vec![SimulatedDeviceMessage::new("stat/RESULT", status(relay, now_ms))];
    }
    vec![
        SimulatedDeviceMessage::new("stat/RESULT", format!(r#"{{"POWER":"{}"}}"#, on_off(relay))),
        SimulatedDeviceMessage::new("stat/POWER", on_off(relay)),
    ]
}

pub(super) fn result(command: &ReceivedCommand, _relay: bool, _now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    if command.id.is_empty() {
        return Vec::new();
    }
    vec![SimulatedDeviceMessage::new("stat/ACK", command.id.clone())]
}

/// `2026-11-21T08:43:41` in UTC.
fn iso_utc(now_ms: i64) -> String {
    let now = Timestamp::from_millisecond(now_ms).unwrap_or_default();
    now.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}
