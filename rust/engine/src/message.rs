//! What a telemetry payload says, in every form the contract knows. Defined by `domain/telemetry/parse.py`.

use std::borrow::Cow;

use crate::json::{self, Json, Object};

pub const MAX_PAYLOAD: usize = 64 * 1024;
pub const MAX_METRICS: usize = 128;
const MAX_NAME: usize = 64;
pub const MAX_TEXT: usize = 256;
const MAX_UNIT: usize = 32;
const DAY_MS: i64 = 86_400_000;
/// Below (1973) a time can only come from a clock that is not set.
const OLDEST_TS: f64 = 1e11;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    BadMetricName,
    BadValue,
    Future,
    Malformed,
    NotFinite,
    TooLarge,
    TooManyMetrics,
}

impl Fault {
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
pub enum Value<'a> {
    Number(f64),
    Bool(bool),
    Text(Cow<'a, str>),
}

#[derive(Debug, PartialEq)]
pub struct Reading<'a> {
    pub name: Cow<'a, str>,
    pub value: Value<'a>,
    pub unit: Option<Cow<'a, str>>,
}

#[derive(Debug, PartialEq)]
pub struct Message<'a> {
    pub ts_ms: i64,
    pub readings: Vec<Reading<'a>>,
}

#[derive(Debug, Default, PartialEq)]
pub struct Parsed<'a> {
    pub messages: Vec<Message<'a>>,
    pub faults: Vec<Fault>,
}

pub fn parse(payload: &[u8], arrived_ms: i64) -> Parsed<'_> {
    let mut parsed = Parsed::default();
    if payload.len() > MAX_PAYLOAD {
        parsed.faults.push(Fault::TooLarge);
        return parsed;
    }
    let elements = match json::parse(payload) {
        Ok(Json::Array(elements)) => elements,
        Ok(element) => vec![element],
        Err(_) => {
            parsed.faults.push(Fault::Malformed);
            return parsed;
        }
    };
    for element in elements {
        match element {
            Json::Object(members) => message(members, arrived_ms, &mut parsed),
            _ => parsed.faults.push(Fault::Malformed),
        }
    }
    parsed
}

/// The time a `ts` stands for.
pub fn time(ts: f64, arrived_ms: i64) -> Result<i64, Fault> {
    if !ts.is_finite() || ts < 0.0 {
        return Err(Fault::Malformed);
    }
    if ts > (arrived_ms + DAY_MS) as f64 {
        return Err(Fault::Future);
    }
    Ok(if ts >= OLDEST_TS {
        ts as i64
    } else {
        arrived_ms
    })
}

fn message<'a>(mut members: Object<'a>, arrived_ms: i64, parsed: &mut Parsed<'a>) {
    let ts = match take(&mut members, "ts") {
        None | Some(Json::Null) => Ok(arrived_ms),
        Some(Json::Number(ts)) => time(ts, arrived_ms),
        Some(_) => Err(Fault::Malformed),
    };
    let ts_ms = match ts {
        Ok(ts_ms) => ts_ms,
        Err(fault) => return parsed.faults.push(fault),
    };
    let (values, units) = parts(members, &mut parsed.faults);
    let mut readings = Vec::with_capacity(values.len());
    for (name, value) in values {
        match accept(&name, value) {
            Ok(value) => readings.push(Reading {
                name,
                value,
                unit: None,
            }),
            Err(fault) => parsed.faults.push(fault),
        }
    }
    if !units.is_empty() {
        attach_units(units, &mut readings, &mut parsed.faults);
    }
    parsed.messages.push(Message { ts_ms, readings });
}

/// (values, units) of a message: enveloped in `m`, or the members themselves.
fn parts<'a>(mut members: Object<'a>, faults: &mut Vec<Fault>) -> (Object<'a>, Object<'a>) {
    let enveloped = members
        .iter()
        .any(|(key, value)| key == "m" && matches!(value, Json::Object(_)));
    let units = match members.iter().find(|(key, _)| key == "u") {
        Some((_, Json::Object(_))) => take(&mut members, "u"),
        Some((_, Json::Null)) | None => None,
        Some(_) => {
            if enveloped {
                faults.push(Fault::BadValue);
            }
            None
        }
    };
    let values = match enveloped.then(|| take(&mut members, "m")).flatten() {
        Some(Json::Object(values)) => values,
        _ => members,
    };
    match units {
        Some(Json::Object(units)) => (values, units),
        _ => (values, Vec::new()),
    }
}

fn take<'a>(members: &mut Object<'a>, key: &str) -> Option<Json<'a>> {
    let place = members.iter().position(|(known, _)| known == key)?;
    Some(members.remove(place).1)
}

fn accept<'a>(name: &str, value: Json<'a>) -> Result<Value<'a>, Fault> {
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(Fault::BadMetricName);
    }
    match value {
        Json::Bool(value) => Ok(Value::Bool(value)),
        Json::Number(value) if value.is_finite() => Ok(Value::Number(value)),
        Json::Number(_) => Err(Fault::NotFinite),
        Json::Text(text) if text.chars().count() <= MAX_TEXT => Ok(Value::Text(text)),
        _ => Err(Fault::BadValue),
    }
}

/// Units of the accepted readings; units of others are nobody's.
fn attach_units<'a>(units: Object<'a>, readings: &mut [Reading<'a>], faults: &mut Vec<Fault>) {
    let mut units: std::collections::HashMap<_, _> = units.into_iter().collect();
    for reading in readings {
        match units.remove(&reading.name) {
            None => {}
            Some(Json::Text(unit))
                if unit.chars().count() <= MAX_UNIT && !unit.chars().any(char::is_control) =>
            {
                reading.unit = Some(unit);
            }
            Some(_) => faults.push(Fault::BadValue),
        }
    }
}
