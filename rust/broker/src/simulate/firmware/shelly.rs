//! Shelly Gen2 and later: JSON-RPC on `rpc`, answers to where the caller says, changes as partial `NotifyStatus`.

use serde_json::{Value, json};

use super::{Order, Request, Said, Weather, Wish, kept, said};

const SOURCE: &str = "shellyplus1pm-simulated";

pub(super) fn greeting(relay: bool, _now_ms: i64) -> Vec<Said> {
    vec![kept("online", "true"), status(relay)]
}

fn status(relay: bool) -> Said {
    said(
        "status/switch:0",
        format!(
            r#"{{"id":0,"source":"init","output":{relay},"temperature":{{"tC":41.2,"tF":106.2}}}}"#
        ),
    )
}

/// A partial status: the meter alone.
pub(super) fn telemetry(weather: &Weather, _relay: bool) -> Said {
    let power = weather.voltage * weather.current;
    notification(
        weather.now_ms,
        &format!(
            r#"{{"id":0,"apower":{power:.1},"voltage":{:.1},"current":{:.3},"temperature":{{"tC":{:.1}}}}}"#,
            weather.voltage, weather.current, weather.temperature
        ),
    )
}

fn notification(now_ms: i64, switch: &str) -> Said {
    let (seconds, hundredths) = (now_ms / 1000, now_ms % 1000 / 10);
    said(
        "events/rpc",
        format!(
            r#"{{"src":"{SOURCE}","dst":"events","method":"NotifyStatus","params":{{"ts":{seconds}.{hundredths:02},"switch:0":{switch}}}}}"#
        ),
    )
}

pub(super) fn understand(below: &str, payload: &[u8], relay: bool, _now_ms: i64) -> Request {
    match below {
        "rpc" => serde_json::from_slice::<Value>(payload)
            .ok()
            .and_then(|request| order(&request))
            .map_or(Request::Unknown, Request::Order),
        "command/switch:0" | "command" if payload == b"status_update" => {
            Request::Question(vec![status(relay)])
        }
        _ => Request::Unknown,
    }
}

fn order(request: &Value) -> Option<Order> {
    let wish = match request["method"].as_str()? {
        "Switch.Set" => Wish::Set(request["params"]["on"].as_bool()?),
        "Switch.Toggle" => Wish::Toggle,
        _ => Wish::Nothing,
    };
    Some(Order {
        id: request["id"].as_str()?.to_owned(),
        wish,
        expires_ms: None,
        reply_to: request["src"].as_str()?.to_owned(),
    })
}

pub(super) fn begun(order: &Order, relay: bool, now_ms: i64) -> Vec<Said> {
    if order.wish == Wish::Nothing {
        return Vec::new();
    }
    vec![notification(
        now_ms,
        &format!(r#"{{"id":0,"output":{relay},"source":"MQTT"}}"#),
    )]
}

pub(super) fn done(order: &Order, relay: bool, _now_ms: i64) -> Vec<Said> {
    // `src` is a whole topic: `devices/<id>/answer`; the answer goes to `<src>/rpc`.
    let below = order.reply_to.splitn(3, '/').nth(2).unwrap_or("answer");
    let result = match order.wish {
        Wish::Nothing => json!({"id": 0, "output": relay}),
        _ => json!({"was_on": !relay}),
    };
    let answer = json!({"id": order.id, "src": SOURCE, "dst": order.reply_to, "result": result});
    vec![said(&format!("{below}/rpc"), answer.to_string())]
}
