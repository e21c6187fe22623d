//! Messages on their way through the engine: read, checked, packed, kept, and put to the device's rules.

use std::sync::Arc;

use crate::device::Device;
use crate::engine::Engine;
use crate::evaluate::{Which, evaluate};
use crate::layout::Slot;
use crate::message::{self, Fault, MAX_METRICS, MAX_PAYLOAD, Message, Reading, Value};
use crate::names::Names;
use crate::outcome::{MetricReport, Outcome, Row, Watched};
use crate::packing;
use crate::scan::scan;

/// So many messages' devices are brought into the cache at a time, once the fleet has outgrown the cache.
const AHEAD: usize = 16;
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
        for (place, (number, arrived_ms, payload)) in messages.enumerate() {
            if place % AHEAD == 0 && self.devices.len() > CACHED_DEVICES {
                self.touch(ahead.by_ref().take(AHEAD).map(|(number, _, _)| number));
            }
            let handle = self.handle(number);
            self.see(handle, arrived_ms, &mut outcome);
            if payload.len() <= MAX_PAYLOAD
                && let Some(ts) = scan(
                    payload,
                    &self.devices[handle as usize].layout,
                    &mut self.numbers,
                )
            {
                match ts.map_or(Ok(arrived_ms), |ts| message::time(ts, arrived_ms)) {
                    Ok(ts_ms) => self.take_numbers(handle, ts_ms, arrived_ms, &mut outcome),
                    Err(fault) => outcome.fault(number, fault),
                }
                continue;
            }
            let parsed = message::parse(payload, arrived_ms);
            for message in parsed.messages {
                self.take_message(handle, message, arrived_ms, &mut outcome);
            }
            for fault in parsed.faults {
                outcome.fault(number, fault);
            }
        }
        outcome
    }

    /// Read a little of each device before any is worked on: the processor then waits for all of them at once.
    fn touch(&self, numbers: impl Iterator<Item = u32>) {
        let mut sum = 0;
        for number in numbers {
            if let Some(handle) = self.handles.get(number) {
                sum ^= self.devices[handle as usize].touch();
            }
        }
        std::hint::black_box(sum);
    }

    fn take_numbers(&mut self, handle: u32, ts_ms: i64, arrived_ms: i64, outcome: &mut Outcome) {
        let device = &mut self.devices[handle as usize];
        let readings = &self.numbers.readings;
        outcome.messages += 1;
        outcome.readings += readings.len() as u64;
        self.packed.clear();
        for &(slot, value) in readings {
            let metric = device.layout.slots[usize::from(slot)].metric;
            self.packed.put_number(metric, value);
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
        device.take_numbers(readings, ts_ms, arrived_ms);
        self.drive(handle, arrived_ms, outcome);
    }

    fn take_message(
        &mut self,
        handle: u32,
        message: Message<'_>,
        arrived_ms: i64,
        outcome: &mut Outcome,
    ) {
        outcome.messages += 1;
        let accepted = self.register(handle, &message.readings, outcome);
        if accepted.is_empty() {
            return;
        }
        let device = &mut self.devices[handle as usize];
        outcome.readings += accepted.len() as u64;
        let begin = outcome.arena.len();
        for (slot, value) in &accepted {
            packing::put_value(&mut outcome.arena, device.layout.slots[*slot].metric, value);
        }
        end_row(device, message.ts_ms, begin, outcome);
        if device.watched {
            for (slot, value) in &accepted {
                outcome
                    .watched
                    .push(watched(device, *slot, message.ts_ms, value));
            }
        }
        if message.ts_ms < device.newest_ms {
            return;
        }
        for (slot, value) in &accepted {
            device.set(*slot, value);
        }
        device.take_times(
            accepted.iter().map(|(slot, _)| *slot),
            message.ts_ms,
            arrived_ms,
        );
        self.drive(handle, arrived_ms, outcome);
    }

    /// After new values: evaluate, keep the timer, remember the change.
    #[inline]
    fn drive(&mut self, handle: u32, at_ms: i64, outcome: &mut Outcome) {
        self.mark_changed(handle);
        let device = &mut self.devices[handle as usize];
        evaluate(device, at_ms, Which::All, &mut self.fired, outcome);
        self.timers.note(device, handle);
    }

    /// The readings with their slots, without those that would be one metric too many.
    fn register<'a>(
        &mut self,
        handle: u32,
        readings: &'a [Reading<'a>],
        outcome: &mut Outcome,
    ) -> Vec<(usize, &'a Value<'a>)> {
        let device = &mut self.devices[handle as usize];
        let mut slots: Option<Vec<Slot>> = None;
        let mut accepted = Vec::with_capacity(readings.len());
        for reading in readings {
            let known = slots.as_ref().unwrap_or(&device.layout.slots);
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
            let slots = slots.get_or_insert_with(|| device.layout.slots.clone());
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
            let Slot { metric, name, unit } = slots[place].clone();
            outcome.new_metrics.push(MetricReport {
                device: device.number,
                metric,
                name,
                unit,
            });
        }
        if let Some(slots) = slots {
            device.grow(self.layouts.of(slots));
        }
        accepted
    }

    #[inline]
    fn see(&mut self, handle: u32, arrived_ms: i64, outcome: &mut Outcome) {
        let device = &mut self.devices[handle as usize];
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
fn end_row(device: &Device, ts_ms: i64, begin: usize, outcome: &mut Outcome) {
    let end = outcome.arena.len();
    let digest = packing::digest(&outcome.arena[begin..end]);
    outcome.rows.push(Row {
        device: device.number,
        digest,
        ts_ms,
        end,
    });
}

fn watched(device: &Device, slot: usize, ts_ms: i64, value: &Value<'_>) -> Watched {
    let of = &device.layout.slots[slot];
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
