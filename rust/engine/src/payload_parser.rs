//! Parses a telemetry payload in every form that devices may send. Defined by `domain/telemetry/reference_parser.py`.

use std::borrow::Cow;

use crate::json::{self, JsonObject, ParsedJsonValue};

pub const MAX_PAYLOAD: usize = 64 * 1024;
pub const MAX_METRICS: usize = 128;
pub const MAX_NAME: usize = 64;
pub const MAX_TEXT: usize = 256;
const MAX_UNIT: usize = 32;
/// No device's clock may be further ahead of the service's; no message may keep rules from being evaluated for longer.
pub const MAX_AHEAD_MS: i64 = 120_000;
/// A `ts` of ten digits (2001 to 2286) is in Unix seconds.
const SECONDS: std::ops::Range<f64> = 1e9..1e10;
/// Below (1973) a time in milliseconds comes from a device whose clock is not set.
const OLDEST_TS: f64 = 1e11;
/// A later time counts as this one: the last that a year of four digits can name.
const NEWEST_TS: f64 = 253_402_300_799_999.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PayloadFault {
    BadMetricName,
    BadValue,
    MalformedJson,
    NotFinite,
    TooLarge,
    TooManyMetrics,
}

impl PayloadFault {
    pub fn code(self) -> &'static str {
        match self {
            Self::BadMetricName => "BAD_METRIC_NAME",
            Self::BadValue => "BAD_VALUE",
            Self::MalformedJson => "MALFORMED",
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

/// The time of a message, in Unix milliseconds, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageTime {
    pub ts_ms: i64,
    pub source: TimestampOrigin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampOrigin {
    /// The device's `ts`.
    Device,
    Arrival,
    /// The arrival, because the device's `ts` is this many milliseconds later.
    ArrivalAhead(i64),
}

impl MessageTime {
    pub fn arrival(received_ms: i64) -> Self {
        Self {
            ts_ms: received_ms,
            source: TimestampOrigin::Arrival,
        }
    }

    pub fn is_by_device(self) -> bool {
        self.source == TimestampOrigin::Device
    }

    /// How far the `ts` that was not used is ahead of the arrival.
    pub fn ahead_ms(self) -> Option<i64> {
        match self.source {
            TimestampOrigin::ArrivalAhead(ahead_ms) => Some(ahead_ms),
            TimestampOrigin::Device | TimestampOrigin::Arrival => None,
        }
    }
}

#[derive(Debug, PartialEq)]
pub struct ParsedTelemetryMessage<'a> {
    pub time: MessageTime,
    pub readings: Vec<ParsedReading<'a>>,
}

#[derive(Debug, Default, PartialEq)]
pub struct ParsedPayload<'a> {
    pub messages: Vec<ParsedTelemetryMessage<'a>>,
    pub faults: Vec<PayloadFault>,
    /// The metric of each fault of a single reading, as the device names it.
    pub fault_metrics: Vec<(PayloadFault, Cow<'a, str>)>,
    /// How far the last `ts` that was too far ahead is ahead of the arrival.
    pub ahead_ms: Option<i64>,
}

pub fn parse(payload: &[u8], received_ms: i64) -> ParsedPayload<'_> {
    let mut parsed = ParsedPayload::default();
    if payload.len() > MAX_PAYLOAD {
        parsed.faults.push(PayloadFault::TooLarge);
        return parsed;
    }
    let elements = match json::parse(payload) {
        Ok(ParsedJsonValue::Array(elements)) => elements,
        Ok(element) => vec![element],
        Err(_) => {
            parsed.faults.push(PayloadFault::MalformedJson);
            return parsed;
        }
    };
    for element in elements {
        match element {
            ParsedJsonValue::Object(members) => parse_message(members, received_ms, &mut parsed),
            _ => parsed.faults.push(PayloadFault::MalformedJson),
        }
    }
    parsed
}

/// The time of a message with this `ts`; the fault of one that is no time.
#[inline]
pub fn message_time(ts: f64, received_ms: i64) -> Result<MessageTime, PayloadFault> {
    // The one comparison that a correct clock needs; false for NaN.
    if ts >= OLDEST_TS && ts.min(NEWEST_TS) as i64 <= received_ms.saturating_add(MAX_AHEAD_MS) {
        return Ok(MessageTime {
            ts_ms: ts as i64,
            source: TimestampOrigin::Device,
        });
    }
    unusual_message_time(ts, received_ms)
}

#[cold]
fn unusual_message_time(ts: f64, received_ms: i64) -> Result<MessageTime, PayloadFault> {
    if !ts.is_finite() || ts < 0.0 {
        return Err(PayloadFault::MalformedJson);
    }
    if SECONDS.contains(&ts) {
        return message_time(ts * 1000.0, received_ms);
    }
    if ts < OLDEST_TS {
        return Ok(MessageTime::arrival(received_ms));
    }
    let ahead_ms = (ts.min(NEWEST_TS) as i64).saturating_sub(received_ms);
    Ok(MessageTime {
        ts_ms: received_ms,
        source: TimestampOrigin::ArrivalAhead(ahead_ms),
    })
}

fn parse_message<'a>(mut members: JsonObject<'a>, received_ms: i64, parsed: &mut ParsedPayload<'a>) {
    let ts = match remove_member(&mut members, "ts") {
        None | Some(ParsedJsonValue::Null) => Ok(MessageTime::arrival(received_ms)),
        Some(ParsedJsonValue::Number(ts)) => message_time(ts, received_ms),
        Some(_) => return parsed.faults.push(PayloadFault::MalformedJson),
    };
    let time = match ts {
        Ok(time) => time,
        Err(fault) => return parsed.faults.push(fault),
    };
    parsed.ahead_ms = time.ahead_ms().or(parsed.ahead_ms);
    let (values, units) = split_envelope(members, &mut parsed.faults);
    let mut readings = Vec::with_capacity(values.len());
    for (name, value) in values {
        match check_reading(&name, value) {
            Ok(value) => readings.push(ParsedReading { name, value, unit: None }),
            Err(fault) => {
                parsed.faults.push(fault);
                parsed.fault_metrics.push((fault, name));
            }
        }
    }
    if !units.is_empty() {
        attach_units(units, &mut readings, parsed);
    }
    parsed.messages.push(ParsedTelemetryMessage { time, readings });
}

/// (values, units) of a message: in the members `m` and `u`, or values as members themselves.
fn split_envelope<'a>(mut members: JsonObject<'a>, faults: &mut Vec<PayloadFault>) -> (JsonObject<'a>, JsonObject<'a>) {
    let enveloped = members
        .iter()
        .any(|(key, value)| key == "m" && matches!(value, ParsedJsonValue::Object(_)));
    let units = match members.iter().find(|(key, _)| key == "u") {
        Some((_, ParsedJsonValue::Object(_))) => remove_member(&mut members, "u"),
        Some((_, ParsedJsonValue::Null)) | None => None,
        Some(_) => {
            if enveloped {
                faults.push(PayloadFault::BadValue);
            }
            None
        }
    };
    let values = match enveloped.then(|| remove_member(&mut members, "m")).flatten() {
        Some(ParsedJsonValue::Object(values)) => values,
        _ => members,
    };
    match units {
        Some(ParsedJsonValue::Object(units)) => (values, units),
        _ => (values, Vec::new()),
    }
}

fn remove_member<'a>(members: &mut JsonObject<'a>, key: &str) -> Option<ParsedJsonValue<'a>> {
    let index = members.iter().position(|(known, _)| known == key)?;
    Some(members.remove(index).1)
}

fn check_reading<'a>(name: &str, value: ParsedJsonValue<'a>) -> Result<MetricValue<'a>, PayloadFault> {
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(PayloadFault::BadMetricName);
    }
    match value {
        ParsedJsonValue::Bool(value) => Ok(MetricValue::Bool(value)),
        ParsedJsonValue::Number(value) if value.is_finite() => Ok(MetricValue::Number(value)),
        ParsedJsonValue::Number(_) => Err(PayloadFault::NotFinite),
        ParsedJsonValue::Text(text) if text.chars().count() <= MAX_TEXT => Ok(MetricValue::Text(text)),
        _ => Err(PayloadFault::BadValue),
    }
}

/// Units of readings that were not accepted are ignored.
fn attach_units<'a>(units: JsonObject<'a>, readings: &mut [ParsedReading<'a>], parsed: &mut ParsedPayload<'a>) {
    let mut units: std::collections::HashMap<_, _> = units.into_iter().collect();
    for reading in readings {
        match units.remove(&reading.name) {
            None => {}
            Some(ParsedJsonValue::Text(unit)) if unit.chars().count() <= MAX_UNIT && !unit.chars().any(char::is_control) => {
                reading.unit = Some(unit);
            }
            Some(_) => {
                parsed.faults.push(PayloadFault::BadValue);
                parsed.fault_metrics.push((PayloadFault::BadValue, reading.name.clone()));
            }
        }
    }
}
