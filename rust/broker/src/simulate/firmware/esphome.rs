//! ESPHome: one topic a sensor, and a relay that answers a command with its new state and nothing else.

use super::{Order, Request, Said, Weather, Wish, kept, word};

pub(super) fn greeting(relay: bool, _now_ms: i64) -> Vec<Said> {
    vec![
        kept("status", "online"),
        kept("switch/relay/state", word(relay)),
    ]
}

/// One sensor after the other: each is a message of its own.
pub(super) fn telemetry(weather: &Weather, relay: bool) -> Said {
    match weather.sequence % 5 {
        0 => kept(
            "sensor/temperature/state",
            format!("{:.2}", weather.temperature),
        ),
        1 => kept("sensor/humidity/state", format!("{:.1}", weather.humidity)),
        2 => kept("sensor/voltage/state", format!("{:.1}", weather.voltage)),
        3 => kept("sensor/wifi_signal/state", weather.rssi.to_string()),
        _ => kept("binary_sensor/running/state", word(relay)),
    }
}

pub(super) fn understand(below: &str, payload: &[u8], _relay: bool, _now_ms: i64) -> Request {
    let wish = match (below, payload) {
        ("switch/relay/command", b"ON") => Wish::Set(true),
        ("switch/relay/command", b"OFF") => Wish::Set(false),
        ("switch/relay/command", b"TOGGLE") => Wish::Toggle,
        _ => return Request::Unknown,
    };
    Request::Order(Order {
        id: String::new(),
        wish,
        expires_ms: None,
        reply_to: String::new(),
    })
}

pub(super) fn begun(_order: &Order, _relay: bool, _now_ms: i64) -> Vec<Said> {
    Vec::new()
}

pub(super) fn done(_order: &Order, relay: bool, _now_ms: i64) -> Vec<Said> {
    vec![kept("switch/relay/state", word(relay))]
}
