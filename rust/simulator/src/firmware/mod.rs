//! The topics and payloads of each firmware profile.
//!
//! Law: pure functions, without sockets or clock. Topics are relative to the device's prefix.

mod esphome;
mod message;
mod native;
mod shelly;
mod tasmota;

use latchboard_broker::FirmwareProfile;

use crate::channels::SimulatedChannel;

pub(crate) use self::message::{ParsedRequestToDevice, ReceivedCommand, SimulatedDeviceMessage, SimulatedSensorValues};

/// Stock firmware has one relay.
macro_rules! dispatch_stock {
    ($profile:expr, $function:ident($($argument:expr),*), native: $native:expr) => {
        match $profile {
            FirmwareProfile::Native => $native,
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

/// What a device publishes once after each connect. `channels`: at least one.
pub(crate) fn online_messages(
    profile: FirmwareProfile,
    channels: &[SimulatedChannel],
    now_ms: i64,
) -> Vec<SimulatedDeviceMessage> {
    let relay = channels.first().is_some_and(|channel| channel.on);
    dispatch_stock!(profile, online_messages(relay, now_ms), native: native::online_messages(channels, now_ms))
}

pub(crate) fn telemetry(profile: FirmwareProfile, sample: &SimulatedSensorValues) -> SimulatedDeviceMessage {
    dispatch_stock!(profile, telemetry(sample), native: native::telemetry(sample))
}

/// What a message to the device means.
pub(crate) fn parse(profile: FirmwareProfile, topic: &str, payload: &[u8], relay: bool, now_ms: i64) -> ParsedRequestToDevice {
    dispatch_stock!(profile, parse(topic, payload, relay, now_ms), native: native::parse(topic, payload))
}

/// What a device publishes when it starts a command; the result follows, at once or later.
pub(crate) fn acknowledgement(
    profile: FirmwareProfile,
    command: &ReceivedCommand,
    channel: &SimulatedChannel,
    now_ms: i64,
) -> Vec<SimulatedDeviceMessage> {
    let native = || native::acknowledgement(command, channel, now_ms);
    dispatch_stock!(profile, acknowledgement(command, channel.on, now_ms), native: native())
}

/// The final response to a command.
pub(crate) fn result(
    profile: FirmwareProfile,
    command: &ReceivedCommand,
    channel: &SimulatedChannel,
    now_ms: i64,
) -> Vec<SimulatedDeviceMessage> {
    dispatch_stock!(profile, result(command, channel.on, now_ms), native: native::result(command, channel, now_ms))
}

pub(crate) use self::native::{error, expired, press, state};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::{ChannelConfig, ChannelKind, RelayAction};
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

    fn relay(on: bool) -> SimulatedChannel {
        let (kind, name) = (ChannelKind::Relay, String::new());
        let mut relay = SimulatedChannel::new(ChannelConfig { kind, name });
        relay.on = on;
        relay
    }

    #[test]
    fn a_device_with_one_relay_does_not_speak_of_channels() {
        let text = |channels: &[SimulatedChannel]| {
            let messages = online_messages(FirmwareProfile::Native, channels, 1);
            let all = messages.iter().map(|one| String::from_utf8_lossy(&one.payload).into_owned());
            all.collect::<Vec<_>>().join(" ")
        };
        assert!(!text(&[relay(true)]).contains("ch"));
        let two = text(&[relay(true), relay(false)]);
        assert!(two.contains(r#""ch":["RELAY","RELAY"]"#), "{two}");
        assert!(two.contains(r#""ch":2"#), "{two}");
    }

    #[test]
    fn a_command_names_its_channel_or_means_the_relay() {
        for (channel, wanted) in [("", 1), (r#","ch":2"#, 2), (r#","ch":"2""#, 0), (r#","ch":-2"#, 0)] {
            let payload = format!(r#"{{"id":"exe_1","cmd":"ON","exp":5{channel}}}"#);
            let ParsedRequestToDevice::Command(command) = parse(FirmwareProfile::Native, "cmd", payload.as_bytes(), false, 1)
            else {
                panic!("{payload}");
            };
            assert_eq!(command.channel, wanted, "{payload}");
        }
    }

    #[test]
    fn every_profile_runs_an_on_command_and_reports_the_new_state() {
        for (profile, topic, payload) in PROFILES {
            let ParsedRequestToDevice::Command(command) = parse(profile, topic, payload, false, 1) else {
                panic!("{profile:?}");
            };
            assert_eq!(command.action, RelayAction::Set(true), "{profile:?}");
            let relay = relay(true);
            let mut response = acknowledgement(profile, &command, &relay, 1);
            response.extend(result(profile, &command, &relay, 1));
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
            let relay = relay(true);
            let mut all = online_messages(profile, std::slice::from_ref(&relay), 1);
            all.push(telemetry(profile, &SimulatedSensorValues::at(1, 1, true, 0)));
            if let ParsedRequestToDevice::Command(command) = parse(profile, topic, payload, false, 1) {
                all.extend(acknowledgement(profile, &command, &relay, 1));
                all.extend(result(profile, &command, &relay, 1));
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
