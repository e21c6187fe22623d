//! The engine: messages in, rows, edges and fired actions out. Defined by `domain/telemetry/reference.py`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::device::{Cold, Device};
use crate::evaluate::{OFF, ON, Which, evaluate};
use crate::fleet::Handles;
use crate::layout::{Layouts, Slot};
use crate::message::Value;
use crate::names::Names;
use crate::outcome::Outcome;
use crate::packing::{self, LatestMetric, Scratch, Unreadable};
use crate::rules::Spec;
use crate::scan::Numbers;
use crate::special::rearm;
use crate::timers::Timers;

/// A device's metrics as a checkpoint may name them; far more than a device can report, far less than slots can count.
const MAX_RESTORED: usize = 4096;

pub struct Latest<'a> {
    pub name: &'a Arc<str>,
    pub value: Value<'a>,
    pub unit: Option<&'a Arc<str>>,
    pub ts_ms: i64,
    pub heard_ms: i64,
}

pub struct Engine {
    pub(crate) devices: Vec<Device>,
    pub(crate) handles: Handles,
    free: Vec<u32>,
    pub(crate) names: Names,
    pub(crate) layouts: Layouts,
    commands: HashMap<String, u32>,
    pub(crate) changed: VecDeque<u32>,
    pub(crate) timers: Timers,
    pub(crate) batch: u32,
    pub(crate) numbers: Numbers,
    pub(crate) packed: Scratch,
    pub(crate) fired: Vec<(u32, u32)>,
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
        let Some(handle) = self.handles.remove(number) else {
            return;
        };
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
            return Err(Unreadable(
                "a checkpoint names more metrics than a device can have",
            ));
        }
        let mut slots = Vec::with_capacity(metrics.len());
        for entry in &metrics {
            let unit = entry.unit.map(Arc::from);
            slots.push(Slot {
                metric: entry.metric,
                name: self.name(entry.metric)?,
                unit,
            });
        }
        let layout = self.layouts.of(slots);
        let handle = self.handle(number);
        let device = &mut self.devices[handle as usize];
        let specs = device.specs();
        let queued = device.cold.as_ref().map(|cold| cold.queued);
        let cold = queued.map(|queued| {
            Box::new(Cold {
                queued,
                ..Cold::default()
            })
        });
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
                slots.push(Slot {
                    metric: *metric,
                    name: name.clone(),
                    unit: None,
                });
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
                let Some(value) = device.value(slot) else {
                    continue;
                };
                let (ts_ms, heard_ms) = device.times(slot);
                let of = &device.layout.slots[slot];
                let entry = LatestMetric {
                    metric: of.metric,
                    value,
                    ts_ms,
                    heard_ms,
                    unit: of.unit.as_deref(),
                };
                packing::put_latest(&mut latest, newest_ms, &entry);
            }
            checkpoints.push((device.number, newest_ms, latest));
        }
        checkpoints
    }

    pub fn latest(&self, number: u32) -> Vec<Latest<'_>> {
        let Some(handle) = self.handles.get(number) else {
            return Vec::new();
        };
        let device = &self.devices[handle as usize];
        let slots = device.layout.slots.iter().enumerate();
        let latest = slots.filter_map(|(slot, of)| {
            let value = device.value(slot)?;
            let (ts_ms, heard_ms) = device.times(slot);
            Some(Latest {
                name: &of.name,
                value,
                unit: of.unit.as_ref(),
                ts_ms,
                heard_ms,
            })
        });
        latest.collect()
    }

    fn name(&self, metric: u32) -> Result<Arc<str>, Unreadable> {
        self.names.name(metric).cloned().ok_or(Unreadable(
            "a metric number has no name; load the names first",
        ))
    }

    pub(crate) fn handle(&mut self, number: u32) -> u32 {
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
                if self.devices.len() == self.devices.capacity() {
                    // An eighth more instead of twice as much: at a million devices the slack would be their largest cost.
                    self.devices.reserve_exact(self.devices.len() / 8 + 64);
                }
                self.devices.push(device);
                (self.devices.len() - 1) as u32
            }
        };
        self.handles.set(number, handle);
        handle
    }

    #[inline]
    pub(crate) fn mark_changed(&mut self, handle: u32) {
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
