//! What the fast path read, on its way through the engine. No name is looked up and no unit compared: all is known already.

use std::ops::Range;

use crate::engine::Engine;
use crate::ingest::{end_row, watched};
use crate::message::{self, Value};
use crate::outcome::Outcome;
use crate::scan::{Other, Scanned, scan, scan_array};

/// A message's share of what was scanned.
#[derive(Clone)]
struct Part {
    readings: Range<usize>,
    others: Range<usize>,
}

impl Engine {
    /// The fast path; false when the payload is none of its.
    #[inline]
    pub(crate) fn take_scanned(
        &mut self,
        handle: u32,
        arrived_ms: i64,
        payload: &[u8],
        outcome: &mut Outcome,
    ) -> bool {
        let layout = &self.fleet.devices[handle as usize].shape.layout;
        if payload.first() == Some(&b'[') {
            return self.take_array(handle, arrived_ms, payload, outcome);
        }
        let Some(ts) = scan(payload, layout, &mut self.scanned) else {
            return false;
        };
        let whole = Part {
            readings: 0..self.scanned.readings.len(),
            others: 0..self.scanned.others.len(),
        };
        self.take_part(handle, ts, whole, arrived_ms, payload, outcome);
        true
    }

    fn take_array(
        &mut self,
        handle: u32,
        arrived_ms: i64,
        payload: &[u8],
        outcome: &mut Outcome,
    ) -> bool {
        let layout = &self.fleet.devices[handle as usize].shape.layout;
        if scan_array(payload, layout, &mut self.scanned).is_none() {
            return false;
        }
        let mut part = Part {
            readings: 0..0,
            others: 0..0,
        };
        for place in 0..self.scanned.messages.len() {
            let element = self.scanned.messages[place];
            part = Part {
                readings: part.readings.end..element.readings,
                others: part.others.end..element.others,
            };
            self.take_part(
                handle,
                element.ts,
                part.clone(),
                arrived_ms,
                payload,
                outcome,
            );
        }
        true
    }

    #[inline]
    fn take_part(
        &mut self,
        handle: u32,
        ts: Option<f64>,
        part: Part,
        arrived_ms: i64,
        payload: &[u8],
        outcome: &mut Outcome,
    ) {
        match ts.map_or(Ok(arrived_ms), |ts| message::time(ts, arrived_ms)) {
            Err(fault) => outcome.fault(self.fleet.devices[handle as usize].number, fault),
            Ok(ts_ms) if part.others.is_empty() => {
                self.take_numbers(handle, ts_ms, part.readings, arrived_ms, outcome)
            }
            Ok(ts_ms) => {
                outcome.messages += 1;
                let values = mixed(&self.scanned, part, payload);
                self.keep(handle, ts_ms, &values, arrived_ms, outcome);
            }
        }
    }

    fn take_numbers(
        &mut self,
        handle: u32,
        ts_ms: i64,
        part: Range<usize>,
        arrived_ms: i64,
        outcome: &mut Outcome,
    ) {
        let mut record = self.fleet.record(handle);
        let device = &*record.device;
        let layout = &*device.shape.layout;
        let readings = &self.scanned.readings[part];
        outcome.messages += 1;
        outcome.readings += readings.len() as u64;
        self.packed.clear();
        for &(slot, value) in readings {
            self.packed
                .put_number(layout.packed[usize::from(slot)], value);
        }
        let begin = outcome.arena.len();
        outcome.arena.extend_from_slice(self.packed.bytes());
        end_row(device, ts_ms, begin, outcome);
        if device.watched {
            for &(slot, value) in readings {
                outcome.watched.push(watched(
                    device,
                    usize::from(slot),
                    ts_ms,
                    &Value::Number(value),
                ));
            }
        }
        if ts_ms < device.newest_ms {
            return;
        }
        record.take_numbers(readings, ts_ms, arrived_ms);
        self.drive(handle, arrived_ms, outcome);
    }
}

/// The values of a message that are not all numbers.
fn mixed<'a>(scanned: &Scanned, part: Part, payload: &'a [u8]) -> Vec<(usize, Value<'a>)> {
    let begin = part.readings.start;
    let numbers = scanned.readings[part.readings].iter();
    let mut values: Vec<_> = numbers
        .map(|(slot, number)| (usize::from(*slot), Value::Number(*number)))
        .collect();
    for (place, other) in &scanned.others[part.others] {
        values[place - begin].1 = match *other {
            Other::Bool(value) => Value::Bool(value),
            Other::Text(begin, end) => Value::Text(String::from_utf8_lossy(&payload[begin..end])),
        };
    }
    values
}
