//! The topics and payloads of each firmware profile.
//!
//! Law: pure functions, without sockets or clock. Topics are relative to the device's prefix.

mod esphome;
mod message;
mod native;
mod shelly;
mod tasmota;

use latchboard_broker::FirmwareProfile;

pub(crate) use self::message::{
    ParsedRequestToDevice, ReceivedCommand, RelayAction, SimulatedDeviceMessage, SimulatedSensorValues,
};

macro_rules! dispatch {
    ($profile:expr, $function:ident($($argument:expr),*)) => {
        match $profile {
            FirmwareProfile::Native => native::$function($($argument),*),
            FirmwareProfile::Tasmota => tasmota::$function($($argument),*),
            FirmwareProfile::Esphome => esphome::$function($($argument),*),
            FirmwareProfile::Shelly => shelly::$function($($argument),*),
        }
    };
}

/// Topic and payload of the will.
pub(crate) fn will(profile: FirmwareProfile) -> (&'static str, &'static str) {
    match profile {
        FirmwareProfile::Native | FirmwareProfile::Esphome => ("status", "offline"),
        FirmwareProfile::Tasmota => ("tele/LWT", "Offline"),
        FirmwareProfile::Shelly => ("online", "false"),
    }
}

/// The filters to which a device subscribes.
pub(crate) fn filters(profile: FirmwareProfile) -> &'static [&'static str] {
    match profile {
        FirmwareProfile::Native => &["cmd", "sched", "time"],
        FirmwareProfile::Tasmota => &["cmnd/#"],
        FirmwareProfile::Esphome => &["switch/relay/command"],
        FirmwareProfile::Shelly => &["rpc", "command/#"],
    }
}

/// What a device publishes once after each connect.
pub(crate) fn online_messages(profile: FirmwareProfile, relay: bool, now_ms: i64) -> Vec<SimulatedDeviceMessage> {
    dispatch!(profile, online_messages(relay, now_ms))
}

pub(crate) fn telemetry(profile: FirmwareProfile, sample: &SimulatedSensorValues) -> SimulatedDeviceMessage {
    dispatch!(profile, telemetry(sample))
}

/// What a message to the device means.
pub(crate) fn parse(profile: FirmwareProfile, topic: &str, payload: &[u8], relay: bool, now_ms: i64) -> ParsedRequestToDevice {
    dispatch!(profile, parse(topic, payload, relay, now_ms))
}

/// What a device publishes when it starts a command; the result follows, at once or later.
pub(crate) fn acknowledgement(
    profile: FirmwareProfile,
    command: &ReceivedCommand,
    relay: bool,
    now_ms: i64,
) -> Vec<SimulatedDeviceMessage> {
    dispatch!(profile, acknowledgement(command, relay, now_ms))
}

/// The final response to a command.
pub(crate) fn result(
    profile: FirmwareProfile,
    command: &ReceivedCommand,
    relay: bool,
    now_ms: i64,
) -> Vec<SimulatedDeviceMessage> {
    dispatch!(profile, result(command, relay, now_ms))
}

/// The result of a command that arrived after its deadline and is not run.
pub(crate) fn expired(command: &ReceivedCommand, relay: bool) -> SimulatedDeviceMessage {
    native::expired(command, relay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchboard_broker::topic_authorization::{TOPIC_ROOT, authorize_publish};

    const PROFILES: [(FirmwareProfile, &str, &[u8]); 4] = [
        (FirmwareProfile::Native, "cmd", br#"{"id":"exe_1","cmd":"ON","exp":5}"#),
        (
            FirmwareProfile::Tasmota,
            "cmnd/Backlog0",
            b"Power1 ON; Publish devices/dev_x/stat/ACK exe_1",
        ),
        (FirmwareProfile::Esphome, "switch/relay/command", b"ON"),
        (
            FirmwareProfile::Shelly,
            "rpc",
            br#"{"id":"exe_1","src":"devices/dev_x/answer","method":"Switch.Set","params":{"id":0,"on":true}}"#,
        ),
    ];

    #[test]
    fn every_profile_runs_an_on_command_and_reports_the_new_state() {
        for (profile, topic, payload) in PROFILES {
            let ParsedRequestToDevice::Command(command) = parse(profile, topic, payload, false, 1) else {
                panic!("{profile:?}");
            };
            assert_eq!(command.action, RelayAction::Set(true), "{profile:?}");
            let mut response = acknowledgement(profile, &command, true, 1);
            response.extend(result(profile, &command, true, 1));
            assert!(!response.is_empty(), "{profile:?}");
            let bytes: Vec<u8> = response.iter().flat_map(|message| message.payload.to_vec()).collect();
            let text = String::from_utf8(bytes).expect("text");
            assert!(text.contains("ON") || text.contains("true"), "{profile:?} {text}");
            if profile != FirmwareProfile::Esphome {
                assert!(text.contains("exe_1"), "{profile:?} {text}");
            }
        }
    }

    #[test]
    fn a_device_publishes_on_permitted_topics_only() {
        let device_id = "dev_aaaaaaaaaaaaaaaaaaaa";
        for (profile, topic, payload) in PROFILES {
            let mut all = online_messages(profile, true, 1);
            all.push(telemetry(profile, &SimulatedSensorValues::at(1, 1, true, 0)));
            if let ParsedRequestToDevice::Command(command) = parse(profile, topic, payload, false, 1) {
                all.extend(acknowledgement(profile, &command, true, 1));
                all.extend(result(profile, &command, true, 1));
            }
            all.push(SimulatedDeviceMessage::new(will(profile).0, will(profile).1));
            for message in all {
                let topic = format!("{TOPIC_ROOT}{device_id}/{}", message.topic);
                assert!(authorize_publish(&topic, device_id, profile).is_some(), "{topic}");
            }
        }
    }

    #[test]
    fn invalid_payloads_and_unknown_topics_are_ignored() {
        for (profile, topic, _) in PROFILES {
            for invalid in [&b""[..], b"{", b"\xff\xfe", b"[1]", b"{\"id\":3}", b"Power1"] {
                let message = parse(profile, topic, invalid, false, 1);
                assert!(
                    !matches!(message, ParsedRequestToDevice::Command(command) if command.action != RelayAction::None),
                    "{profile:?}"
                );
            }
            assert!(matches!(
                parse(profile, "elsewhere", b"ON", false, 1),
                ParsedRequestToDevice::Unknown
            ));
        }
    }
}
