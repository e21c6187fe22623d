//! Our own firmware: JSON on `telemetry`, `state`, `result`, `hello`, `sched/rev`.

use bytes::Bytes;
use serde_json::Value;

use super::{Order, Request, Said, Weather, Wish, kept, said, word};

pub(super) fn greeting(relay: bool, now_ms: i64) -> Vec<Said> {
    vec![
        kept("status", Bytes::from_static(b"online")),
        said("hello", Bytes::from_static(br#"{"fw":"simulated"}"#)),
        state(relay, "boot", "", now_ms),
    ]
}

fn state(relay: bool, by: &str, id: &str, now_ms: i64) -> Said {
    let relay = word(relay);
    kept(
        "state",
        format!(r#"{{"relay":"{relay}","by":"{by}","id":"{id}","ts":{now_ms}}}"#),
    )
}

/// Five metrics, and the message's number where it is wanted.
pub(super) fn telemetry(weather: &Weather, _relay: bool) -> Said {
    let number = if weather.numbered {
        format!(r#","seq":{}"#, weather.sequence)
    } else {
        String::new()
    };
    said(
        "telemetry",
        format!(
            r#"{{"ts":{},"m":{{"temperature":{:.2},"humidity":{:.1},"voltage":{:.1},"current":{:.3},"rssi":{}{number}}}}}"#,
            weather.now_ms,
            weather.temperature,
            weather.humidity,
            weather.voltage,
            weather.current,
            weather.rssi,
        ),
    )
}

pub(super) fn understand(below: &str, payload: &[u8], _relay: bool, _now_ms: i64) -> Request {
    let Ok(document) = serde_json::from_slice::<Value>(payload) else {
        return Request::Unknown;
    };
    match below {
        "cmd" => order(&document),
        "sched" => document["rev"].as_i64().map_or(Request::Unknown, |rev| {
            Request::Plan(kept("sched/rev", format!(r#"{{"rev":{rev}}}"#)))
        }),
        _ => Request::Unknown,
    }
}

fn order(document: &Value) -> Request {
    let (Some(id), Some(cmd)) = (document["id"].as_str(), document["cmd"].as_str()) else {
        return Request::Unknown;
    };
    let wish = match cmd {
        "ON" => Wish::Set(true),
        "OFF" => Wish::Set(false),
        "TOGGLE" => Wish::Toggle,
        _ => Wish::Nothing,
    };
    Request::Order(Order {
        id: id.to_owned(),
        wish,
        expires_ms: document["exp"].as_i64(),
        reply_to: String::new(),
    })
}

pub(super) fn begun(order: &Order, relay: bool, now_ms: i64) -> Vec<Said> {
    vec![
        result(&order.id, "ack", relay),
        state(relay, "cmd", &order.id, now_ms),
    ]
}

pub(super) fn done(order: &Order, relay: bool, _now_ms: i64) -> Vec<Said> {
    vec![result(&order.id, "done", relay)]
}

/// Came after its deadline and was not run. Other firmwares know of no deadline.
pub(super) fn expired(order: &Order, relay: bool) -> Said {
    result(&order.id, "expired", relay)
}

fn result(id: &str, status: &str, relay: bool) -> Said {
    let relay = word(relay);
    said(
        "result",
        format!(r#"{{"id":"{id}","status":"{status}","relay":"{relay}"}}"#),
    )
}
