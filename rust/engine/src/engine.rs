//! The engine: messages in, rows, edges and fired actions out. Defined by `domain/telemetry/reference.py`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::device::{Cold, Device};
use crate::evaluate::{OFF, ON, Which, evaluate, rearm};
use crate::fleet::Handles;
use crate::layout::{Layouts, Slot};
use crate::message::{self, Fault, MAX_METRICS, MAX_PAYLOAD, Message, Reading, Value};
use crate::names::Names;
use crate::outcome::{MetricReport, Outcome, Row, Watched};
use crate::packing::{self, LatestMetric, Scratch, Unreadable};
use crate::rules::Spec;
use crate::scan::{Numbers, scan};
use crate::timers::Timers;

/// A device's metrics as a checkpoint may name them; far more than a device can report, far less than slots can count.
const MAX_RESTORED: usize = 4096;

/// So many messages' devices are brought into the cache at a time, once the fleet has outgrown the cache.
const AHEAD: usize = 16;
const CACHED_DEVICES: usize = 4096;

pub struct Latest<'a> {
    pub name: &'a Arc<str>,
    pub value: Value<'a>,
    pub unit: Option<&'a Arc<str>>,
    pub ts_ms: i64,
    pub heard_ms: i64,
}

pub struct Engine {
    devices: Vec<Device>,
    handles: Handles,
    free: Vec<u32>,
    names: Names,
    layouts: Layouts,
    commands: HashMap<String, u32>,
    changed: VecDeque<u32>,
    timers: Timers,
    batch: u32,
    numbers: Numbers,
    packed: Scratch,
    fired: Vec<(u32, u32)>,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            handles: Handles::default(),
            free: Vec::new(),
            names: Names::default(),
            layouts: Layouts::default(),
            commands: HashMap::from([("ON".to_owned(), ON), ("OFF".to_owned(), OFF)]),
            changed: VecDeque::new(),
            timers: Timers::default(),
            batch: 0,
            numbers: Numbers::default(),
            packed: Scratch::default(),
            fired: Vec::new(),
        }
    }
}

impl Engine {
    /// The number of a command for `Spec::command`.
    pub fn command(&mut self, name: &str) -> u32 {
        let next = self.commands.len() as u32;
        *self.commands.entry(name.to_owned()).or_insert(next)
    }

    pub fn put_rules(&mut self, number: u32, mut specs: Vec<Spec>) {
        specs.sort_by_key(|spec| (spec.priority, spec.rule));
        let handle = self.handle(number);
        self.devices[handle as usize].put_rules(&specs);
        self.rearm(handle);
    }

    pub fn drop_device(&mut self, number: u32) {
        let Some(handle) = self.handles.remove(number) else { return };
        self.changed.retain(|changed| *changed != handle);
        self.devices[handle as usize] = Device::new(0, self.layouts.of(Vec::new()));
        self.free.push(handle);
    }

    pub fn watch(&mut self, number: u32, on: bool) {
        let handle = self.handle(number);
        self.devices[handle as usize].watched = on;
    }

    pub fn set_metric(&mut self, number: u32, name: &str) {
        self.names.set(number, name);
    }

    pub fn restore(&mut self, number: u32, latest: &[u8]) -> Result<(), Unreadable> {
        let (newest_ms, metrics) = packing::read_latest(latest)?;
        if metrics.len() > MAX_RESTORED {
            return Err(Unreadable("a checkpoint names more metrics than a device can have"));
        }
        let mut slots = Vec::with_capacity(metrics.len());
        for entry in &metrics {
            let unit = entry.unit.map(Arc::from);
            slots.push(Slot { metric: entry.metric, name: self.name(entry.metric)?, unit });
        }
        let layout = self.layouts.of(slots);
        let handle = self.handle(number);
        let device = &mut self.devices[handle as usize];
        let specs = device.specs();
        let queued = device.cold.as_ref().map(|cold| cold.queued);
        let cold = queued.map(|queued| Box::new(Cold { queued, ..Cold::default() }));
        *device = Device {
            watched: device.watched,
            changed: device.changed,
            seen_in: device.seen_in,
            seen_at: device.seen_at,
            newest_ms,
            heard_ms: metrics.first().map_or(newest_ms, |entry| entry.heard_ms),
            floats: vec![f64::NAN; layout.len()].into(),
            cold,
            ..Device::new(number, layout)
        };
        device.restore_values(&metrics);
        device.put_rules(&specs);
        self.rearm(handle);
        Ok(())
    }

    pub fn replay(&mut self, number: u32, ts_ms: i64, packed: &[u8]) -> Result<(), Unreadable> {
        let mut readings = Vec::new();
        for reading in packing::readings(packed) {
            let (metric, value) = reading?;
            readings.push((self.name(metric)?, metric, value));
        }
        let handle = self.handle(number);
        let device = &mut self.devices[handle as usize];
        if ts_ms < device.newest_ms {
            return Ok(());
        }
        let mut slots = device.layout.slots.clone();
        for (name, metric, _) in &readings {
            if !slots.iter().any(|slot| slot.name == *name) {
                slots.push(Slot { metric: *metric, name: name.clone(), unit: None });
            }
        }
        if slots.len() > MAX_RESTORED {
            return Err(Unreadable("more metrics than a device can have"));
        }
        if slots.len() != device.layout.len() {
            device.grow(self.layouts.of(slots));
        }
        let layout = device.layout.clone();
        let mut reported = Vec::with_capacity(readings.len());
        for (name, _, value) in &readings {
            if let Some(slot) = layout.find(name) {
                device.set(slot, value);
                reported.push(slot);
            }
        }
        device.take_times(reported.into_iter(), ts_ms, ts_ms);
        self.mark_changed(handle);
        self.rearm(handle);
        Ok(())
    }

    /// (device number, arrival in ms, payload) in order of arrival.
    pub fn ingest<'a>(&mut self, messages: impl ExactSizeIterator<Item = (u32, i64, &'a [u8])> + Clone) -> Outcome {
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
                && let Some(ts) = scan(payload, &self.devices[handle as usize].layout, &mut self.numbers)
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

    pub fn tick(&mut self, now_ms: i64) -> Outcome {
        let mut outcome = Outcome::default();
        let mut due = self.timers.due(&mut self.devices, now_ms);
        due.sort_by_key(|handle| self.devices[*handle as usize].number);
        for handle in due {
            let device = &mut self.devices[handle as usize];
            evaluate(device, now_ms, Which::Due, &mut self.fired, &mut outcome);
            self.timers.note(device, handle);
        }
        outcome
    }

    pub fn next_timer_ms(&mut self) -> Option<i64> {
        self.timers.next(&mut self.devices)
    }

    pub fn checkpoint(&mut self, limit: usize) -> Vec<(u32, i64, Vec<u8>)> {
        let count = limit.min(self.changed.len());
        let taken: Vec<_> = self.changed.drain(..count).collect();
        let mut checkpoints = Vec::with_capacity(count);
        for handle in taken {
            let device = &mut self.devices[handle as usize];
            device.changed = false;
            let newest_ms = device.newest_ms;
            let mut latest = Vec::new();
            packing::put_latest_head(&mut latest, newest_ms);
            for slot in 0..device.layout.len() {
                let Some(value) = device.value(slot) else { continue };
                let (ts_ms, heard_ms) = device.times(slot);
                let of = &device.layout.slots[slot];
                let entry = LatestMetric { metric: of.metric, value, ts_ms, heard_ms, unit: of.unit.as_deref() };
                packing::put_latest(&mut latest, newest_ms, &entry);
            }
            checkpoints.push((device.number, newest_ms, latest));
        }
        checkpoints
    }

    pub fn latest(&self, number: u32) -> Vec<Latest<'_>> {
        let Some(handle) = self.handles.get(number) else { return Vec::new() };
        let device = &self.devices[handle as usize];
        let slots = device.layout.slots.iter().enumerate();
        let latest = slots.filter_map(|(slot, of)| {
            let value = device.value(slot)?;
            let (ts_ms, heard_ms) = device.times(slot);
            Some(Latest { name: &of.name, value, unit: of.unit.as_ref(), ts_ms, heard_ms })
        });
        latest.collect()
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
                outcome.watched.push(watched(device, usize::from(slot), ts_ms, &Value::Number(value)));
            }
        }
        if ts_ms < device.newest_ms {
            return;
        }
        device.take_numbers(readings, ts_ms, arrived_ms);
        self.drive(handle, arrived_ms, outcome);
    }

    fn take_message(&mut self, handle: u32, message: Message<'_>, arrived_ms: i64, outcome: &mut Outcome) {
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
                outcome.watched.push(watched(device, *slot, message.ts_ms, value));
            }
        }
        if message.ts_ms < device.newest_ms {
            return;
        }
        for (slot, value) in &accepted {
            device.set(*slot, value);
        }
        device.take_times(accepted.iter().map(|(slot, _)| *slot), message.ts_ms, arrived_ms);
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
                    slots.push(Slot { metric, name, unit: unit.map(Arc::from) });
                }
            }
            let Slot { metric, name, unit } = slots[place].clone();
            outcome.new_metrics.push(MetricReport { device: device.number, metric, name, unit });
        }
        if let Some(slots) = slots {
            device.grow(self.layouts.of(slots));
        }
        accepted
    }

    fn name(&self, metric: u32) -> Result<Arc<str>, Unreadable> {
        self.names.name(metric).cloned().ok_or(Unreadable("a metric number has no name; load the names first"))
    }

    fn handle(&mut self, number: u32) -> u32 {
        if let Some(handle) = self.handles.get(number) {
            return handle;
        }
        let device = Device::new(number, self.layouts.of(Vec::new()));
        let handle = match self.free.pop() {
            Some(handle) => {
                self.devices[handle as usize] = device;
                handle
            }
            None => {
                self.devices.push(device);
                (self.devices.len() - 1) as u32
            }
        };
        self.handles.set(number, handle);
        handle
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

    #[inline]
    fn mark_changed(&mut self, handle: u32) {
        let device = &mut self.devices[handle as usize];
        if !device.changed {
            device.changed = true;
            self.changed.push_back(handle);
        }
    }

    fn rearm(&mut self, handle: u32) {
        let device = &mut self.devices[handle as usize];
        rearm(device);
        self.timers.note(device, handle);
    }
}

fn number_of(names: &mut Names, name: &str, outcome: &mut Outcome) -> (u32, Arc<str>) {
    if let Some(known) = names.number(name).and_then(|number| Some((number, names.name(number)?.clone()))) {
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
    outcome.rows.push(Row { device: device.number, digest, ts_ms, end });
}

fn watched(device: &Device, slot: usize, ts_ms: i64, value: &Value<'_>) -> Watched {
    let of = &device.layout.slots[slot];
    let (value, text) = match value {
        Value::Number(value) => (Some(*value), None),
        Value::Bool(value) => (Some(f64::from(u8::from(*value))), Some(value.to_string().into())),
        Value::Text(text) => (None, Some((&**text).into())),
    };
    Watched { device: device.number, ts_ms, metric: of.name.clone(), value, text, unit: of.unit.clone() }
}
