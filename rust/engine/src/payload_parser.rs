//! Parses a telemetry payload in every form that devices may send. Defined by `domain/telemetry/parse.py`.

use std::borrow::Cow;

use crate::json::{self, Json, Object};

pub const MAX_PAYLOAD: usize = 64 * 1024;
pub const MAX_METRICS: usize = 128;
const MAX_NAME: usize = 64;
pub const MAX_TEXT: usize = 256;
const MAX_UNIT: usize = 32;
const DAY_MS: i64 = 86_400_000;
/// Below (1973) a time comes from a device whose clock is not set.
const OLDEST_TS: f64 = 1e11;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PayloadFault {
    BadMetricName,
    BadValue,
    Future,
    Malformed,
    NotFinite,
    TooLarge,
    TooManyMetrics,
}

impl PayloadFault {
    pub fn code(self) -> &'static str {
        match self {
            Self::BadMetricName => "BAD_METRIC_NAME",
            Self::BadValue => "BAD_VALUE",
            Self::Future => "FUTURE",
            Self::Malformed => "MALFORMED",
            Self::NotFinite => "NOT_FINITE",
            Self::TooLarge => "TOO_LARGE",
            Self::TooManyMetrics => "TOO_MANY_METRICS",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue<'a> {
    Number(f64),
    Bool(bool),
    Text(Cow<'a, str>),
}

#[derive(Debug, PartialEq)]
pub struct ParsedReading<'a> {
    pub name: Cow<'a, str>,
    pub value: MetricValue<'a>,
    pub unit: Option<Cow<'a, str>>,
}

#[derive(Debug, PartialEq)]
pub struct ParsedMessage<'a> {
    pub ts_ms: i64,
    pub readings: Vec<ParsedReading<'a>>,
}

#[derive(Debug, Default, PartialEq)]
pub struct ParsedPayload<'a> {
    pub messages: Vec<ParsedMessage<'a>>,
    pub faults: Vec<PayloadFault>,
}

pub fn parse(payload: &[u8], received_ms: i64) -> ParsedPayload<'_> {
    let mut parsed = ParsedPayload::default();
    if payload.len() > MAX_PAYLOAD {
        parsed.faults.push(PayloadFault::TooLarge);
        return parsed;
    }
    let elements = match json::parse(payload) {
        Ok(Json::Array(elements)) => elements,
        Ok(element) => vec![element],
        Err(_) => {
            parsed.faults.push(PayloadFault::Malformed);
            return parsed;
        }
    };
    for element in elements {
        match element {
            Json::Object(members) => parse_message(members, received_ms, &mut parsed),
            _ => parsed.faults.push(PayloadFault::Malformed),
        }
    }
    parsed
}

/// The time of a message with this `ts`, in Unix milliseconds.
pub fn message_time(ts: f64, received_ms: i64) -> Result<i64, PayloadFault> {
    if !ts.is_finite() || ts < 0.0 {
        return Err(PayloadFault::Malformed);
    }
    if ts > (received_ms + DAY_MS) as f64 {
        return Err(PayloadFault::Future);
    }
    Ok(if ts >= OLDEST_TS { ts as i64 } else { received_ms })
}

fn parse_message<'a>(mut members: Object<'a>, received_ms: i64, parsed: &mut ParsedPayload<'a>) {
    let ts = match remove_member(&mut members, "ts") {
        None | Some(Json::Null) => Ok(received_ms),
        Some(Json::Number(ts)) => message_time(ts, received_ms),
        Some(_) => Err(PayloadFault::Malformed),
    };
    let ts_ms = match ts {
        Ok(ts_ms) => ts_ms,
        Err(fault) => return parsed.faults.push(fault),
    };
    let (values, units) = split_envelope(members, &mut parsed.faults);
    let mut readings = Vec::with_capacity(values.len());
    for (name, value) in values {
        match check_reading(&name, value) {
            Ok(value) => readings.push(ParsedReading { name, value, unit: None }),
            Err(fault) => parsed.faults.push(fault),
        }
    }
    if !units.is_empty() {
        attach_units(units, &mut readings, &mut parsed.faults);
    }
    parsed.messages.push(ParsedMessage { ts_ms, readings });
}

/// (values, units) of a message: in the members `m` and `u`, or values as members themselves.
fn split_envelope<'a>(mut members: Object<'a>, faults: &mut Vec<PayloadFault>) -> (Object<'a>, Object<'a>) {
    let enveloped = members
        .iter()
        .any(|(key, value)| key == "m" && matches!(value, Json::Object(_)));
    let units = match members.iter().find(|(key, _)| key == "u") {
        Some((_, Json::Object(_))) => remove_member(&mut members, "u"),
        Some((_, Json::Null)) | None => None,
        Some(_) => {
            if enveloped {
                faults.push(PayloadFault::BadValue);
            }
            None
        }
    };
    let values = match enveloped.then(|| remove_member(&mut members, "m")).flatten() {
        Some(Json::Object(values)) => values,
        _ => members,
    };
    match units {
        Some(Json::Object(units)) => (values, units),
        _ => (values, Vec::new()),
    }
}

fn remove_member<'a>(members: &mut Object<'a>, key: &str) -> Option<Json<'a>> {
    let index = members.iter().position(|(known, _)| known == key)?;
    Some(members.remove(index).1)
}

fn check_reading<'a>(name: &str, value: Json<'a>) -> Result<MetricValue<'a>, PayloadFault> {
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(PayloadFault::BadMetricName);
    }
    match value {
        Json::Bool(value) => Ok(MetricValue::Bool(value)),
        Json::Number(value) if value.is_finite() => Ok(MetricValue::Number(value)),
        Json::Number(_) => Err(PayloadFault::NotFinite),
        Json::Text(text) if text.chars().count() <= MAX_TEXT => Ok(MetricValue::Text(text)),
        _ => Err(PayloadFault::BadValue),
    }
}

/// Units of readings that were not accepted are ignored.
fn attach_units<'a>(units: Object<'a>, readings: &mut [ParsedReading<'a>], faults: &mut Vec<PayloadFault>) {
    let mut units: std::collections::HashMap<_, _> = units.into_iter().collect();
    for reading in readings {
        match units.remove(&reading.name) {
            None => {}
            Some(Json::Text(unit)) if unit.chars().count() <= MAX_UNIT && !unit.chars().any(char::is_control) => {
                reading.unit = Some(unit);
            }
            Some(_) => faults.push(PayloadFault::BadValue),
        }
    }
}
