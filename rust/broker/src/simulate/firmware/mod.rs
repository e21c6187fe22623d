//! What a device of each profile says and understands: topics and payloads only, below its prefix; no sockets, no clock.

mod esphome;
mod native;
mod shelly;
mod tasmota;

use bytes::Bytes;

use crate::topics::Profile;

/// One message of a device. `below` is its topic below the device's prefix.
pub(super) struct Said {
    pub below: String,
    pub payload: Bytes,
    pub retain: bool,
}

pub(super) fn said(below: &str, payload: impl Into<Bytes>) -> Said {
    Said {
        below: below.to_owned(),
        payload: payload.into(),
        retain: false,
    }
}

fn kept(below: &str, payload: impl Into<Bytes>) -> Said {
    Said {
        retain: true,
        ..said(below, payload)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Set(bool),
    Toggle,
    Nothing,
}

/// A command. `reply_to` is where a Shelly sends its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub id: String,
    pub wish: Wish,
    pub expires_ms: Option<i64>,
    pub reply_to: String,
}

/// What came down to a device.
pub(super) enum Request {
    Order(Order),
    /// To be answered at once.
    Question(Vec<Said>),
    /// A schedule's plan, with what confirms it.
    Plan(Said),
    Unknown,
}

/// What a device measures at a moment.
pub(super) struct Weather {
    pub now_ms: i64,
    pub temperature: f64,
    pub humidity: f64,
    pub voltage: f64,
    pub current: f64,
    pub rssi: i64,
    /// Number of the message.
    pub sequence: u64,
    /// Whether the message is to carry that number.
    pub numbered: bool,
}

impl Weather {
    /// Values that wander, each device on a course of its own.
    pub fn at(now_ms: i64, index: usize, relay: bool) -> Self {
        let phase = now_ms as f64 / 10_000.0 + index as f64;
        Self {
            now_ms,
            temperature: 22.0 + 6.0 * phase.sin(),
            humidity: 50.0 + 20.0 * (phase / 3.0).cos(),
            voltage: 230.0 + 3.0 * (phase / 7.0).sin(),
            current: if relay { 1.5 + 0.5 * phase.cos() } else { 0.0 },
            rssi: -60 - (index % 30) as i64,
            sequence: 0,
            numbered: false,
        }
    }
}

fn word(relay: bool) -> &'static str {
    if relay { "ON" } else { "OFF" }
}

macro_rules! each {
    ($profile:expr, $function:ident($($argument:expr),*)) => {
        match $profile {
            Profile::Native => native::$function($($argument),*),
            Profile::Tasmota => tasmota::$function($($argument),*),
            Profile::Esphome => esphome::$function($($argument),*),
            Profile::Shelly => shelly::$function($($argument),*),
        }
    };
}

/// Topic and payload of the will.
pub(super) fn will(profile: Profile) -> (&'static str, &'static str) {
    match profile {
        Profile::Native | Profile::Esphome => ("status", "offline"),
        Profile::Tasmota => ("tele/LWT", "Offline"),
        Profile::Shelly => ("online", "false"),
    }
}

pub(super) fn filters(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Native => &["cmd", "sched", "time"],
        Profile::Tasmota => &["cmnd/#"],
        Profile::Esphome => &["switch/relay/command"],
        Profile::Shelly => &["rpc", "command/#"],
    }
}

/// Said once after each connection.
pub(super) fn greeting(profile: Profile, relay: bool, now_ms: i64) -> Vec<Said> {
    each!(profile, greeting(relay, now_ms))
}

pub(super) fn telemetry(profile: Profile, weather: &Weather, relay: bool) -> Said {
    each!(profile, telemetry(weather, relay))
}

pub(super) fn understand(
    profile: Profile,
    below: &str,
    payload: &[u8],
    relay: bool,
    now_ms: i64,
) -> Request {
    each!(profile, understand(below, payload, relay, now_ms))
}

/// Said as soon as a command has been run, before its last word; `ack` only where that is still to come later.
pub(super) fn begun(profile: Profile, order: &Order, relay: bool, now_ms: i64) -> Vec<Said> {
    each!(profile, begun(order, relay, now_ms))
}

/// The last word to a command.
pub(super) fn done(profile: Profile, order: &Order, relay: bool, now_ms: i64) -> Vec<Said> {
    each!(profile, done(order, relay, now_ms))
}

/// The answer to a command that came too late to be run.
pub(super) fn expired(order: &Order, relay: bool) -> Said {
    native::expired(order, relay)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILES: [(Profile, &str, &[u8]); 4] = [
        (Profile::Native, "cmd", br#"{"id":"exe_1","cmd":"ON","exp":5}"#),
        (Profile::Tasmota, "cmnd/Backlog0", b"Power1 ON; Publish devices/dev_x/stat/ACK exe_1"),
        (Profile::Esphome, "switch/relay/command", b"ON"),
        (
            Profile::Shelly,
            "rpc",
            br#"{"id":"exe_1","src":"devices/dev_x/answer","method":"Switch.Set","params":{"id":0,"on":true}}"#,
        ),
    ];

    #[test]
    fn every_profile_understands_on_and_says_that_it_is() {
        for (profile, below, payload) in PROFILES {
            let Request::Order(order) = understand(profile, below, payload, false, 1) else {
                panic!("{profile:?}");
            };
            assert_eq!(order.wish, Wish::Set(true), "{profile:?}");
            let mut answer = begun(profile, &order, true, 1);
            answer.extend(done(profile, &order, true, 1));
            assert!(!answer.is_empty(), "{profile:?}");
            let all: Vec<u8> = answer
                .iter()
                .flat_map(|said| said.payload.to_vec())
                .collect();
            let text = String::from_utf8(all).expect("text");
            assert!(
                text.contains("ON") || text.contains("true"),
                "{profile:?} {text}"
            );
            if profile != Profile::Esphome {
                assert!(text.contains("exe_1"), "{profile:?} {text}");
            }
        }
    }

    #[test]
    fn nothing_a_device_says_is_on_a_topic_that_is_the_services() {
        let me = "dev_aaaaaaaaaaaaaaaaaaaa";
        for (profile, below, payload) in PROFILES {
            let mut all = greeting(profile, true, 1);
            all.push(telemetry(profile, &Weather::at(1, 1, true), true));
            if let Request::Order(order) = understand(profile, below, payload, false, 1) {
                all.extend(begun(profile, &order, true, 1));
                all.extend(done(profile, &order, true, 1));
            }
            all.push(said(will(profile).0, will(profile).1));
            for message in all {
                let topic = format!("{}{me}/{}", crate::topics::ROOT, message.below);
                assert!(
                    crate::topics::may_publish(&topic, me, profile).is_some(),
                    "{topic}"
                );
            }
        }
    }

    #[test]
    fn noise_is_not_understood_and_hurts_nobody() {
        for (profile, below, _) in PROFILES {
            for noise in [
                &b""[..],
                b"{",
                b"\xff\xfe",
                b"[1]",
                b"{\"id\":3}",
                b"Power1",
            ] {
                let request = understand(profile, below, noise, false, 1);
                assert!(
                    !matches!(request, Request::Order(order) if order.wish != Wish::Nothing),
                    "{profile:?}"
                );
            }
            assert!(matches!(
                understand(profile, "elsewhere", b"ON", false, 1),
                Request::Unknown
            ));
        }
    }
}
