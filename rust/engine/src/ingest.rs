//! Messages on their way through the engine: read, checked, packed, kept, and put to the device's rules.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::device::Device;
use crate::engine::{AHEAD, Engine};
use crate::evaluate::{Which, evaluate};
use crate::layout::Slot;
use crate::message::{self, Fault, MAX_METRICS, MAX_PAYLOAD, Reading, Value};
use crate::names::Names;
use crate::outcome::{Outcome, Row, Watched};
use crate::packing;

/// A fleet up to here stays in the processor's cache.
const CACHED_DEVICES: usize = 4096;

impl Engine {
    /// (device number, arrival in ms, payload) in order of arrival.
    pub fn ingest<'a>(
        &mut self,
        messages: impl ExactSizeIterator<Item = (u32, i64, &'a [u8])> + Clone,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.rows.reserve(messages.len());
        outcome.arena.reserve(messages.len() * 48);
        self.batch = self.batch.wrapping_add(1).max(1);
        let mut ahead = messages.clone();
        for (place, (_, arrived_ms, payload)) in messages.enumerate() {
            if place % AHEAD == 0 {
                self.meet(ahead.by_ref().take(AHEAD).map(|(number, _, _)| number));
            }
            let handle = self.near[place % AHEAD];
            self.see(handle, arrived_ms, &mut outcome);
            if payload.len() > MAX_PAYLOAD
                || !self.take_scanned(handle, arrived_ms, payload, &mut outcome)
            {
                self.take_parsed(handle, arrived_ms, payload, &mut outcome);
            }
        }
        outcome
    }

    fn take_parsed(&mut self, handle: u32, arrived_ms: i64, payload: &[u8], outcome: &mut Outcome) {
        let parsed = message::parse(payload, arrived_ms);
        for message in parsed.messages {
            outcome.messages += 1;
            let accepted = self.register(handle, &message.readings, outcome);
            if !accepted.is_empty() {
                self.keep(handle, message.ts_ms, &accepted, arrived_ms, outcome);
            }
        }
        for fault in parsed.faults {
            outcome.fault(self.fleet.devices[handle as usize].number, fault);
        }
    }

    /// Find the devices of the next messages, and have them brought into the cache.
    #[inline]
    fn meet(&mut self, numbers: impl Iterator<Item = u32>) {
        let mut count = 0;
        for (number, near) in numbers.zip(&mut self.near) {
            *near = self.fleet.handle(number, &self.bare);
            count += 1;
        }
        if self.fleet.devices.len() > CACHED_DEVICES {
            self.fleet.touch(&self.near[..count]);
        }
    }

    /// A message's values of any kind, each with its slot: row, last values, rules.
    pub(crate) fn keep<'a, V: Borrow<Value<'a>>>(
        &mut self,
        handle: u32,
        ts_ms: i64,
        accepted: &[(usize, V)],
        arrived_ms: i64,
        outcome: &mut Outcome,
    ) {
        let mut record = self.fleet.record(handle);
        let device = &*record.device;
        let layout = &*device.shape.layout;
        outcome.readings += accepted.len() as u64;
        let begin = outcome.arena.len();
        for (slot, value) in accepted {
            packing::put_value(
                &mut outcome.arena,
                layout.slots[*slot].metric,
                value.borrow(),
            );
        }
        end_row(device, ts_ms, begin, outcome);
        if device.watched {
            for (slot, value) in accepted {
                outcome
                    .watched
                    .push(watched(device, *slot, ts_ms, value.borrow()));
            }
        }
        if ts_ms < device.newest_ms {
            return;
        }
        for (slot, value) in accepted {
            record.set(*slot, value.borrow());
        }
        record.take_times(accepted.iter().map(|(slot, _)| *slot), ts_ms, arrived_ms);
        self.drive(handle, arrived_ms, outcome);
    }

    /// After new values: evaluate, keep the timer, remember the change.
    #[inline]
    pub(crate) fn drive(&mut self, handle: u32, at_ms: i64, outcome: &mut Outcome) {
        self.mark_changed(handle);
        let mut record = self.fleet.record(handle);
        evaluate(&mut record, at_ms, Which::All, &mut self.fired, outcome);
        self.timers.note(record.device, handle);
    }

    /// The readings with their slots, without those that would be one metric too many.
    fn register<'a>(
        &mut self,
        handle: u32,
        readings: &'a [Reading<'a>],
        outcome: &mut Outcome,
    ) -> Vec<(usize, &'a Value<'a>)> {
        let device = &self.fleet.devices[handle as usize];
        let layout = &*device.shape.layout;
        let mut slots: Option<Vec<Slot>> = None;
        let mut accepted = Vec::with_capacity(readings.len());
        for reading in readings {
            let known = slots.as_ref().unwrap_or(&layout.slots);
            let unit = reading.unit.as_deref();
            let slot = known.iter().position(|slot| *slot.name == *reading.name);
            let place = slot.unwrap_or(known.len());
            if slot.is_none() && place >= MAX_METRICS {
                outcome.fault(device.number, Fault::TooManyMetrics);
                continue;
            }
            accepted.push((place, &reading.value));
            if slot.is_some_and(|slot| unit.is_none() || unit == known[slot].unit.as_deref()) {
                continue;
            }
            let slots = slots.get_or_insert_with(|| layout.slots.clone());
            match slot {
                Some(slot) => slots[slot].unit = unit.map(Arc::from),
                None => {
                    let (metric, name) = number_of(&mut self.names, &reading.name, outcome);
                    slots.push(Slot {
                        metric,
                        name,
                        unit: unit.map(Arc::from),
                    });
                }
            }
            outcome.report(device.number, &slots[place]);
        }
        if let Some(slots) = slots {
            let layout = self.layouts.of(slots);
            self.fleet.grow(handle, layout, &mut self.shapes);
        }
        accepted
    }

    #[inline]
    fn see(&mut self, handle: u32, arrived_ms: i64, outcome: &mut Outcome) {
        let device = &mut self.fleet.devices[handle as usize];
        if device.seen_in == self.batch {
            let newest = &mut outcome.seen[device.seen_at as usize].1;
            *newest = (*newest).max(arrived_ms);
        } else {
            device.seen_in = self.batch;
            device.seen_at = outcome.seen.len() as u32;
            outcome.seen.push((device.number, arrived_ms));
        }
    }
}

fn number_of(names: &mut Names, name: &str, outcome: &mut Outcome) -> (u32, Arc<str>) {
    if let Some(known) = names
        .number(name)
        .and_then(|number| Some((number, names.name(number)?.clone())))
    {
        return known;
    }
    let (number, name) = names.add(name);
    outcome.new_names.push((number, name.clone()));
    (number, name)
}

#[inline]
pub(crate) fn end_row(device: &Device, ts_ms: i64, begin: usize, outcome: &mut Outcome) {
    let end = outcome.arena.len();
    let digest = packing::digest(&outcome.arena[begin..end]);
    outcome.rows.push(Row {
        device: device.number,
        digest,
        ts_ms,
        end,
    });
}

pub(crate) fn watched(device: &Device, slot: usize, ts_ms: i64, value: &Value<'_>) -> Watched {
    let of = &device.shape.layout.slots[slot];
    let (value, text) = match value {
        Value::Number(value) => (Some(*value), None),
        Value::Bool(value) => (
            Some(f64::from(u8::from(*value))),
            Some(value.to_string().into()),
        ),
        Value::Text(text) => (None, Some((&**text).into())),
    };
    Watched {
        device: device.number,
        ts_ms,
        metric: of.name.clone(),
        value,
        text,
        unit: of.unit.clone(),
    }
}
