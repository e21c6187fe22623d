//! Tasmota: `tele/…` and `stat/…` up, `cmnd/…` down; a Backlog runs its steps, the last of which publishes the command's id.

use super::{Order, Request, Said, Weather, Wish, kept, said, word};

pub(super) fn greeting(relay: bool, now_ms: i64) -> Vec<Said> {
    vec![
        kept("tele/LWT", "Online"),
        said(
            "tele/INFO1",
            r#"{"Info1":{"Module":"Generic","Version":"14.2.0(simulated)","FallbackTopic":"cmnd/DVES_000000_fb/"}}"#,
        ),
        said("tele/STATE", status(relay, now_ms)),
    ]
}

fn status(relay: bool, now_ms: i64) -> String {
    format!(
        r#"{{"Time":"{}","Uptime":"0T00:01:00","Heap":25,"POWER":"{}","Wifi":{{"RSSI":76,"Signal":-62}}}}"#,
        civil(now_ms),
        word(relay)
    )
}

/// `tele/SENSOR` with a DS18B20, an AM2301 and the energy meter, nested as Tasmota nests them.
pub(super) fn telemetry(weather: &Weather, _relay: bool) -> Said {
    let power = weather.voltage * weather.current;
    said(
        "tele/SENSOR",
        format!(
            concat!(
                r#"{{"Time":"{}","DS18B20":{{"Id":"030CE4AA0A3B","Temperature":{:.1}}},"AM2301":{{"Temperature":{:.1},"Humidity":{:.1}}},"#,
                r#""ENERGY":{{"Power":{:.0},"Voltage":{:.0},"Current":{:.3}}},"TempUnit":"C"}}"#
            ),
            civil(weather.now_ms),
            weather.temperature,
            weather.temperature + 0.4,
            weather.humidity,
            power,
            weather.voltage,
            weather.current,
        ),
    )
}

pub(super) fn understand(below: &str, payload: &[u8], relay: bool, now_ms: i64) -> Request {
    let Some(command) = below.strip_prefix("cmnd/") else {
        return Request::Unknown;
    };
    let text = std::str::from_utf8(payload).unwrap_or_default();
    match command.to_ascii_lowercase().as_str() {
        "state" => Request::Question(vec![said("stat/RESULT", status(relay, now_ms))]),
        "backlog" | "backlog0" => backlog(text),
        "power" | "power1" => Request::Order(Order {
            id: String::new(),
            wish: power(text),
            expires_ms: None,
            reply_to: String::new(),
        }),
        _ => Request::Unknown,
    }
}

/// `Power1 ON; Publish devices/<id>/stat/ACK <execution>`
fn backlog(text: &str) -> Request {
    let (mut wish, mut id) = (Wish::Nothing, None);
    for step in text.split(';') {
        let mut words = step.split_whitespace();
        let name = words.next().unwrap_or_default().to_ascii_lowercase();
        match name.as_str() {
            "power" | "power1" => wish = power(words.next().unwrap_or_default()),
            "publish"
                if words
                    .next()
                    .is_some_and(|topic| topic.ends_with("/stat/ACK")) =>
            {
                id = words.next();
            }
            _ => {}
        }
    }
    id.map_or(Request::Unknown, |id| {
        Request::Order(Order {
            id: id.to_owned(),
            wish,
            expires_ms: None,
            reply_to: String::new(),
        })
    })
}

fn power(text: &str) -> Wish {
    match text.trim().to_ascii_uppercase().as_str() {
        "ON" | "1" => Wish::Set(true),
        "OFF" | "0" => Wish::Set(false),
        "TOGGLE" | "2" => Wish::Toggle,
        _ => Wish::Nothing,
    }
}

pub(super) fn begun(order: &Order, relay: bool, now_ms: i64) -> Vec<Said> {
    if order.wish == Wish::Nothing {
        return vec![said("stat/RESULT", status(relay, now_ms))];
    }
    vec![
        said("stat/RESULT", format!(r#"{{"POWER":"{}"}}"#, word(relay))),
        said("stat/POWER", word(relay)),
    ]
}

pub(super) fn done(order: &Order, _relay: bool, _now_ms: i64) -> Vec<Said> {
    if order.id.is_empty() {
        return Vec::new();
    }
    vec![said("stat/ACK", order.id.clone())]
}

/// `2026-11-21T08:43:41`, UTC, by Howard Hinnant's `civil_from_days`.
fn civil(now_ms: i64) -> String {
    let (days, second) = (
        now_ms.div_euclid(86_400_000),
        now_ms.rem_euclid(86_400_000) / 1000,
    );
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_tasmota_writes_it() {
        assert_eq!(civil(0), "1970-01-01T00:00:00");
        assert_eq!(civil(951_782_399_000), "2000-02-28T23:59:59");
        assert_eq!(civil(951_868_799_999), "2000-02-29T23:59:59");
        assert_eq!(civil(1_795_250_621_000), "2026-11-21T08:43:41");
    }
}
