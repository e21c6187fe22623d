//! The engine: messages in, rows, edges and fired actions out. Defined by `domain/telemetry/reference.py`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::armed::specs;
use crate::device::{Cold, Device};
use crate::evaluate::{OFF, ON, Which, evaluate};
use crate::fleet::Fleet;
use crate::layout::{Layout, Layouts, Slot};
use crate::message::Value;
use crate::names::Names;
use crate::outcome::Outcome;
use crate::packing::{self, LatestMetric, Unreadable};
use crate::rules::Spec;
use crate::scan::Scanned;
use crate::shape::{Shape, Shapes};
use crate::special::rearm;
use crate::timers::Timers;

/// A device's metrics as a checkpoint may name them; far more than a device can report, far less than slots can count.
const MAX_RESTORED: usize = 4096;

/// So many messages' devices are brought into the cache at a time, once the fleet has outgrown the cache.
pub(crate) const AHEAD: usize = 16;

pub struct Latest<'a> {
    pub name: &'a Arc<str>,
    pub value: Value<'a>,
    pub unit: Option<&'a Arc<str>>,
    pub ts_ms: i64,
    pub heard_ms: i64,
}

pub struct Engine {
    pub(crate) fleet: Fleet,
    /// Of a device that has reported nothing and has no rule.
    pub(crate) bare: Arc<Shape>,
    pub(crate) names: Names,
    pub(crate) layouts: Layouts,
    pub(crate) shapes: Shapes,
    commands: HashMap<String, u32>,
    pub(crate) changed: VecDeque<u32>,
    pub(crate) timers: Timers,
    pub(crate) batch: u32,
    pub(crate) scanned: Scanned,
    pub(crate) packed: crate::scratch::Scratch,
    pub(crate) fired: Vec<(u32, u32)>,
    /// Handles of the messages that come next.
    pub(crate) near: [u32; AHEAD],
}

impl Default for Engine {
    fn default() -> Self {
        let (mut layouts, mut shapes) = (Layouts::default(), Shapes::default());
        Self {
            fleet: Fleet::default(),
            bare: shapes.bare(layouts.of(Vec::new())),
            names: Names::default(),
            layouts,
            shapes,
            commands: HashMap::from([("ON".to_owned(), ON), ("OFF".to_owned(), OFF)]),
            changed: VecDeque::new(),
            timers: Timers::default(),
            batch: 0,
            scanned: Scanned::default(),
            packed: Default::default(),
            fired: Vec::new(),
            near: [0; AHEAD],
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
        self.fleet.put_rules(handle, &specs, &mut self.shapes);
        self.rearm(handle);
    }

    pub fn drop_device(&mut self, number: u32) {
        let Some(handle) = self.fleet.handles.get(number) else {
            return;
        };
        self.changed.retain(|changed| *changed != handle);
        self.fleet.drop(handle, &self.bare);
    }

    pub fn watch(&mut self, number: u32, on: bool) {
        let handle = self.handle(number);
        self.fleet.devices[handle as usize].watched = on;
    }

    pub fn set_metric(&mut self, number: u32, name: &str) {
        self.names.set(number, name);
    }

    pub fn restore(&mut self, number: u32, latest: &[u8]) -> Result<(), Unreadable> {
        let (newest_ms, metrics) = packing::read_latest(latest)?;
        let layout = self.layout_of(&metrics)?;
        let shape = self.shapes.bare(layout);
        let handle = self.handle(number);
        let (device, words) = self.fleet.look(handle);
        let specs = specs(device, words);
        let values = vec![f64::NAN.to_bits(); shape.slots()];
        self.fleet.reshape(handle, shape, &values);
        let mut record = self.fleet.record(handle);
        let device = &mut *record.device;
        device.valued = 0;
        device.newest_ms = newest_ms;
        device.heard_ms = metrics.first().map_or(newest_ms, |entry| entry.heard_ms);
        if let Some(cold) = device.cold.as_mut() {
            let queued = cold.queued;
            **cold = Cold {
                queued,
                ..Cold::default()
            };
        }
        record.restore_values(&metrics);
        self.fleet.put_rules(handle, &specs, &mut self.shapes);
        self.rearm(handle);
        Ok(())
    }

    /// Of a checkpoint's metrics, in their order.
    fn layout_of(&mut self, metrics: &[LatestMetric<'_>]) -> Result<Arc<Layout>, Unreadable> {
        if metrics.len() > MAX_RESTORED {
            return Err(Unreadable(
                "a checkpoint names more metrics than a device can have",
            ));
        }
        let slot = |entry: &LatestMetric<'_>| {
            Ok(Slot {
                metric: entry.metric,
                name: self.name(entry.metric)?,
                unit: entry.unit.map(Arc::from),
            })
        };
        let slots = metrics.iter().map(slot).collect::<Result<_, _>>()?;
        Ok(self.layouts.of(slots))
    }

    pub fn replay(&mut self, number: u32, ts_ms: i64, packed: &[u8]) -> Result<(), Unreadable> {
        let mut readings = Vec::new();
        for reading in packing::readings(packed) {
            let (metric, value) = reading?;
            readings.push((self.name(metric)?, metric, value));
        }
        let handle = self.handle(number);
        let device = &self.fleet.devices[handle as usize];
        if ts_ms < device.newest_ms {
            return Ok(());
        }
        let slots = with_reported(&device.shape.layout.slots, &readings);
        if slots.len() > MAX_RESTORED {
            return Err(Unreadable("more metrics than a device can have"));
        }
        if slots.len() != device.shape.slots() {
            let layout = self.layouts.of(slots);
            self.fleet.grow(handle, layout, &mut self.shapes);
        }
        let mut record = self.fleet.record(handle);
        let layout = record.device.shape.layout.clone();
        let mut reported = Vec::with_capacity(readings.len());
        for (name, _, value) in &readings {
            if let Some(slot) = layout.find(name) {
                record.set(slot, value);
                reported.push(slot);
            }
        }
        reported.sort_unstable();
        reported.dedup();
        record.take_times(reported.into_iter(), ts_ms, ts_ms);
        self.mark_changed(handle);
        self.rearm(handle);
        Ok(())
    }

    pub fn tick(&mut self, now_ms: i64) -> Outcome {
        let mut outcome = Outcome::default();
        let mut due = self.timers.due(&mut self.fleet.devices, now_ms);
        due.sort_by_key(|handle| self.fleet.devices[*handle as usize].number);
        for handle in due {
            let mut record = self.fleet.record(handle);
            let fired = &mut self.fired;
            evaluate(&mut record, now_ms, Which::Due, fired, &mut outcome);
            self.timers.note(record.device, handle);
        }
        outcome
    }

    pub fn next_timer_ms(&mut self) -> Option<i64> {
        self.timers.next(&mut self.fleet.devices)
    }

    pub fn checkpoint(&mut self, limit: usize) -> Vec<(u32, i64, Vec<u8>)> {
        let count = limit.min(self.changed.len());
        let taken: Vec<_> = self.changed.drain(..count).collect();
        let mut checkpoints = Vec::with_capacity(count);
        for handle in taken {
            self.fleet.devices[handle as usize].changed = false;
            let (device, words) = self.fleet.look(handle);
            checkpoints.push((
                device.number,
                device.newest_ms,
                packed_latest(device, words),
            ));
        }
        checkpoints
    }

    pub fn latest(&self, number: u32) -> Vec<Latest<'_>> {
        let Some(handle) = self.fleet.handles.get(number) else {
            return Vec::new();
        };
        let (device, words) = self.fleet.look(handle);
        let slots = device.shape.layout.slots.iter().enumerate();
        let latest = slots.filter_map(|(slot, of)| {
            let value = device.value(words, slot)?;
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

    #[inline]
    pub(crate) fn handle(&mut self, number: u32) -> u32 {
        self.fleet.handle(number, &self.bare)
    }

    #[inline]
    pub(crate) fn mark_changed(&mut self, handle: u32) {
        let device = &mut self.fleet.devices[handle as usize];
        if !device.changed {
            device.changed = true;
            self.changed.push_back(handle);
        }
    }

    fn rearm(&mut self, handle: u32) {
        let mut record = self.fleet.record(handle);
        rearm(&mut record);
        self.timers.note(record.device, handle);
    }
}

/// The slots of a device after it reported these (name, metric, value).
fn with_reported(slots: &[Slot], readings: &[(Arc<str>, u32, Value<'_>)]) -> Vec<Slot> {
    let mut slots = slots.to_vec();
    for (name, metric, _) in readings {
        if !slots.iter().any(|slot| slot.name == *name) {
            slots.push(Slot {
                metric: *metric,
                name: name.clone(),
                unit: None,
            });
        }
    }
    slots
}

fn packed_latest(device: &Device, words: &[u64]) -> Vec<u8> {
    let newest_ms = device.newest_ms;
    let mut latest = Vec::new();
    packing::put_latest_head(&mut latest, newest_ms);
    for (slot, of) in device.shape.layout.slots.iter().enumerate() {
        let Some(value) = device.value(words, slot) else {
            continue;
        };
        let (ts_ms, heard_ms) = device.times(slot);
        let entry = LatestMetric {
            metric: of.metric,
            value,
            ts_ms,
            heard_ms,
            unit: of.unit.as_deref(),
        };
        packing::put_latest(&mut latest, newest_ms, &entry);
    }
    latest
}
