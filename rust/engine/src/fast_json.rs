//! The fast path's parser: one JSON object, or an array of objects, of plain values under known names.
//!
//! It reads the payload once, without allocating, and gives up at anything else: names that the fleet has not used, new units, escapes,
//! nested values, repeated names, spaces before a colon, every error. The general path (`payload_parser`) then reads the payload from
//! the start. What this parser accepts, the general path would accept with the same result.

use crate::device_table::DeviceMetricSlots;
use crate::json::{expect_byte, member_end, open_object, skip_space};
use crate::json_number;
use crate::payload_parser::{MAX_METRICS, MAX_NAME, MAX_TEXT};

/// What a payload contains; reused from payload to payload.
#[derive(Debug, Default)]
pub struct ScannedPayload {
    /// (slot, value) in the order of the payload.
    pub readings: Vec<(u16, f64)>,
    /// The ids of metrics that the device has not reported before; their slots follow those it has.
    pub new_metrics: Vec<u32>,
    /// Values that are not numbers, with their indices in `readings`.
    pub non_numbers: Vec<(usize, BoolOrTextValue)>,
    /// The messages of an array.
    pub messages: Vec<ScannedMessageBounds>,
    /// Where the readings of the current message begin.
    first: usize,
    /// Greater than all slots of the current message.
    slot_bound: usize,
    /// The next slot, if the device repeats the order of its metrics.
    expected_slot: usize,
}

#[derive(Debug, Clone, Copy)]
pub enum BoolOrTextValue {
    Bool(bool),
    /// Where it begins and ends in the payload.
    Text(usize, usize),
}

/// A message of an array: its `ts`, and where its entries in the buffer end.
#[derive(Debug, Clone, Copy)]
pub struct ScannedMessageBounds {
    pub ts: Option<f64>,
    pub readings_end: usize,
    pub non_numbers_end: usize,
}

impl ScannedPayload {
    fn clear(&mut self) {
        self.readings.clear();
        self.new_metrics.clear();
        self.non_numbers.clear();
        self.messages.clear();
    }

    fn begin_message(&mut self) {
        self.first = self.readings.len();
        self.slot_bound = 0;
        self.expected_slot = 0;
    }

    fn is_message_empty(&self) -> bool {
        self.readings.len() == self.first
    }

    /// None if the slot has a value already, or the value is infinite.
    #[inline(always)]
    fn push(&mut self, slot: usize, value: f64) -> Option<()> {
        if value.is_infinite() || (slot < self.slot_bound && self.has(slot)) {
            return None;
        }
        self.slot_bound = self.slot_bound.max(slot + 1);
        self.expected_slot = slot + 1;
        self.readings.push((slot as u16, value));
        Some(())
    }

    #[inline]
    fn has(&self, slot: usize) -> bool {
        let readings = &self.readings[self.first..];
        readings.iter().any(|(other, _)| usize::from(*other) == slot)
    }
}

/// Fills `scan` from a payload that is one object; returns its `ts`, if it has one.
#[inline]
pub fn scan_object(payload: &[u8], metrics: DeviceMetricSlots<'_>, scan: &mut ScannedPayload) -> Option<Option<f64>> {
    scan.clear();
    let (ts, end) = Scanner { payload, metrics }.object(0, scan)?;
    (skip_space(payload, end) == payload.len()).then_some(ts)
}

/// Fills `scan` from a payload that is an array of objects.
pub fn scan_array(payload: &[u8], metrics: DeviceMetricSlots<'_>, scan: &mut ScannedPayload) -> Option<()> {
    scan.clear();
    let mut at = expect_byte(payload, 0, b'[')?;
    loop {
        let (ts, end) = Scanner { payload, metrics }.object(at, scan)?;
        scan.messages.push(ScannedMessageBounds {
            ts,
            readings_end: scan.readings.len(),
            non_numbers_end: scan.non_numbers.len(),
        });
        at = skip_space(payload, end) + 1;
        match payload.get(at - 1)? {
            b',' => {}
            b']' => return (skip_space(payload, at) == payload.len()).then_some(()),
            _ => return None,
        }
    }
}

/// What an object contains beside its readings.
#[derive(Default)]
struct TelemetryJsonEnvelope {
    ts: Option<f64>,
    /// The readings are in `m`.
    has_values: bool,
}

/// Each method reads what begins at `at` and returns where it ends. By value, so that the fields stay in registers.
#[derive(Clone, Copy)]
struct Scanner<'a> {
    payload: &'a [u8],
    metrics: DeviceMetricSlots<'a>,
}

impl Scanner<'_> {
    /// The message's `ts`, and where the object ends.
    #[inline(always)]
    fn object(self, at: usize, scan: &mut ScannedPayload) -> Option<(Option<f64>, usize)> {
        let mut at = expect_byte(self.payload, at, b'{')?;
        let mut envelope = TelemetryJsonEnvelope::default();
        scan.begin_message();
        loop {
            at = skip_space(self.payload, at);
            let is_plain = !envelope.has_values && !self.metrics.header.reports_envelope;
            let expected = if is_plain { self.expected_member(at, scan) } else { None };
            at = match expected {
                Some(end) => end,
                None => self.envelope_member(at, &mut envelope, scan)?,
            };
            let end = member_end(self.payload, at)?;
            at = end.at;
            if end.is_last {
                return (!scan.is_message_empty()).then_some((envelope.ts, at));
            }
        }
    }

    /// A member of any kind.
    fn envelope_member(self, at: usize, envelope: &mut TelemetryJsonEnvelope, scan: &mut ScannedPayload) -> Option<usize> {
        let payload = self.payload;
        if payload.get(at..)?.starts_with(b"\"ts\"") {
            let begin = expect_byte(payload, at + 4, b':')?;
            let (value, end) = json_number::parse(payload, skip_space(payload, begin))?;
            envelope.ts = Some(value);
            return Some(end);
        }
        if let Some(inside) = open_object(payload, at, b'm') {
            if envelope.has_values || !scan.is_message_empty() {
                return None;
            }
            envelope.has_values = true;
            return self.members(inside, scan);
        }
        if let Some(inside) = open_object(payload, at, b'u') {
            return units(payload, inside, self.metrics);
        }
        if envelope.has_values {
            return None;
        }
        self.member(at, scan)
    }

    #[inline]
    fn members(self, at: usize, scan: &mut ScannedPayload) -> Option<usize> {
        let mut at = at;
        loop {
            at = skip_space(self.payload, at);
            at = match self.expected_member(at, scan) {
                Some(end) => end,
                None => self.member(at, scan)?,
            };
            let end = member_end(self.payload, at)?;
            at = end.at;
            if end.is_last {
                return Some(at);
            }
        }
    }

    /// A number of the expected metric.
    #[inline(always)]
    fn expected_member(self, at: usize, scan: &mut ScannedPayload) -> Option<usize> {
        let slot = scan.expected_slot;
        let colon = self.metrics.match_key(self.payload, at, slot)?;
        let begin = skip_space(self.payload, colon);
        let (value, end) = json_number::parse(self.payload, begin)?;
        scan.push(slot, value)?;
        Some(end)
    }

    fn member(self, at: usize, scan: &mut ScannedPayload) -> Option<usize> {
        let found = self.metrics.find_key(self.payload, at);
        let (slot, colon) = found.or_else(|| self.new_metric(at, scan))?;
        let begin = skip_space(self.payload, colon);
        let Some((value, end)) = json_number::parse(self.payload, begin) else {
            return self.non_number(begin, slot, scan);
        };
        scan.push(slot, value)?;
        Some(end)
    }

    /// The slot of a metric that the device has not reported before, whose key begins at `at`, and where its colon ends.
    #[inline(never)]
    fn new_metric(self, at: usize, scan: &mut ScannedPayload) -> Option<(usize, usize)> {
        let rest = self.payload.get(at..)?.strip_prefix(b"\"")?;
        let size = rest
            .iter()
            .take(4 * MAX_NAME + 1)
            .position(|byte| matches!(byte, b'"' | b'\\'))?;
        let name = std::str::from_utf8(&rest[..size]).ok()?;
        if !rest[size..].starts_with(b"\":") || ["ts", "m", "u"].contains(&name) || self.metrics.find_slot(name).is_some() {
            return None;
        }
        let slot = self.metrics.len() + scan.new_metrics.len();
        if slot >= MAX_METRICS {
            return None;
        }
        let id = self.metrics.table.find(name)?;
        if scan.new_metrics.contains(&id) {
            return None;
        }
        scan.new_metrics.push(id);
        Some((slot, at + size + 3))
    }

    #[inline(never)]
    fn non_number(self, at: usize, slot: usize, scan: &mut ScannedPayload) -> Option<usize> {
        let rest = self.payload.get(at..)?;
        let (value, number, end) = if rest.starts_with(b"true") {
            (BoolOrTextValue::Bool(true), 1.0, at + 4)
        } else if rest.starts_with(b"false") {
            (BoolOrTextValue::Bool(false), 0.0, at + 5)
        } else {
            let end = text(self.payload, at)?;
            (BoolOrTextValue::Text(at + 1, end), f64::NAN, end + 1)
        };
        let index = scan.readings.len();
        scan.non_numbers.push((index, value));
        scan.push(slot, number)?;
        Some(end)
    }
}

/// Where the text whose quote is at `at` ends; None if it has escapes, is too long or is not UTF-8.
fn text(payload: &[u8], at: usize) -> Option<usize> {
    if payload.get(at) != Some(&b'"') {
        return None;
    }
    let rest = &payload[at + 1..];
    let ends = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    let size = rest.iter().position(ends)?;
    let is_plain = rest[size] == b'"'
        && (size <= MAX_TEXT || std::str::from_utf8(&rest[..size]).ok()?.chars().count() <= MAX_TEXT)
        && (rest[..size].is_ascii() || std::str::from_utf8(&rest[..size]).is_ok());
    is_plain.then_some(at + 1 + size)
}

/// Where the units end, if all are those that the layout has.
fn units(payload: &[u8], at: usize, metrics: DeviceMetricSlots<'_>) -> Option<usize> {
    // If a metric is named `u` too, the two could be one repeated key.
    if metrics.header.reports_u {
        return None;
    }
    let mut at = at;
    let mut expected_slot = 0;
    loop {
        let key = skip_space(payload, at);
        let (slot, colon) = match metrics.match_key(payload, key, expected_slot) {
            Some(colon) => (expected_slot, colon),
            None => metrics.find_key(payload, key)?,
        };
        let begin = skip_space(payload, colon);
        let end = text(payload, begin)?;
        if metrics.metric(slot).unit.as_deref()?.as_bytes() != &payload[begin + 1..end] {
            return None;
        }
        expected_slot = slot + 1;
        at = skip_space(payload, end + 1) + 1;
        match payload.get(at - 1)? {
            b',' => {}
            b'}' => return Some(at),
            _ => return None,
        }
    }
}
