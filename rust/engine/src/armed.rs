//! A device's rules: put, taken out again as they are now, and moved along when the device reports a new metric.

use std::sync::Arc;

use crate::device::Device;
use crate::fleet::Fleet;
use crate::layout::Layout;
use crate::rules::{Cell, Check, Condition, NEVER, NO_DUE, Spec, Test, compile};
use crate::shape::{Shape, Shapes};

impl Fleet {
    /// Move a device to a layout that begins with the present one's metrics.
    pub fn grow(&mut self, handle: u32, layout: Arc<Layout>, shapes: &mut Shapes) {
        let (device, words) = self.look(handle);
        let specs = specs(device, words);
        let was_special: Vec<_> = cells(device).iter().map(|cell| cell.is_special()).collect();
        let device = &mut self.devices[handle as usize];
        let shared = (device.newest_ms, device.heard_ms);
        let mut dues = Vec::new();
        if let Some(cold) = device.cold.as_mut() {
            if !cold.times.is_empty() {
                cold.times.resize(layout.len(), shared);
            }
            dues = cold.specials.iter().map(|special| special.due).collect();
        }
        self.put(handle, layout, &specs, shapes);
        self.keep_dues(handle, &was_special, &dues);
    }

    /// A rule that waited for a metric may now be plain; one that has a deadline is special before and after, and keeps it.
    fn keep_dues(&mut self, handle: u32, was_special: &[bool], dues: &[i64]) {
        let device = &mut self.devices[handle as usize];
        let shape = device.shape.clone();
        let mut dues = dues.iter();
        let Some(cold) = device.cold.as_mut() else {
            return;
        };
        let mut specials = cold.specials.iter_mut();
        for (cell, was_special) in shape.cells.iter().zip(was_special) {
            let due = if *was_special { dues.next() } else { None };
            if cell.is_special()
                && let Some(special) = specials.next()
            {
                special.due = due.copied().unwrap_or(NO_DUE);
            }
        }
    }

    /// Replace the rules by `specs`, which are in firing order.
    pub fn put_rules(&mut self, handle: u32, specs: &[Spec], shapes: &mut Shapes) {
        let layout = self.devices[handle as usize].shape.layout.clone();
        self.put(handle, layout, specs, shapes);
    }

    fn put(&mut self, handle: u32, layout: Arc<Layout>, specs: &[Spec], shapes: &mut Shapes) {
        let compiled = compile(specs, &layout);
        let shape = shapes.of(layout, &compiled.ops, &compiled.cells);
        let (device, words) = self.look(handle);
        let known = device.shape.slots().min(words.len());
        let numbers = numbers(&words[..known], &compiled.thresholds, specs, &shape);
        self.reshape(handle, shape, &numbers);
        let mut record = self.record(handle);
        record.device.matched = 0;
        for (index, spec) in specs.iter().enumerate() {
            record.set_matched(index, spec.matched);
        }
        if record.device.cold.is_some() || !compiled.specials.is_empty() {
            record.device.cold().specials = compiled.specials;
        }
    }
}

/// The words of a record, in the shape's order; rules beyond the first 64 do not match yet.
fn numbers(values: &[u64], thresholds: &[f64], specs: &[Spec], shape: &Shape) -> Vec<u64> {
    let mut numbers = Vec::with_capacity(shape.words());
    numbers.extend_from_slice(values);
    numbers.resize(shape.slots(), f64::NAN.to_bits());
    numbers.extend(thresholds.iter().map(|threshold| threshold.to_bits()));
    numbers.extend(specs.iter().map(|spec| spec.last_fired.cast_unsigned()));
    for pair in specs.chunks(2) {
        let second = pair.get(1).map_or(0, |spec| u64::from(spec.rule));
        numbers.push(u64::from(pair[0].rule) | second << 32);
    }
    numbers.resize(shape.words(), 0);
    numbers
}

fn cells(device: &Device) -> &[Cell] {
    &device.shape.cells[..]
}

/// The rules in firing order as they were put, with their present states.
pub fn specs(device: &Device, words: &[u64]) -> Vec<Spec> {
    let shape = &device.shape;
    let mut specials = device.cold.iter().flat_map(|cold| &cold.specials);
    let thresholds = words.get(shape.slots()..shape.fired()).unwrap_or_default();
    let mut plain = shape.ops.iter().zip(thresholds);
    let mut specs = Vec::with_capacity(shape.cells.len());
    for (index, cell) in shape.cells.iter().enumerate() {
        let special = if cell.is_special() {
            specials.next()
        } else {
            None
        };
        let conditions = match special {
            Some(special) => conditions_of(&special.conditions),
            None => plain
                .by_ref()
                .take(cell.count())
                .map(|(op, value)| condition(shape, *op, f64::from_bits(*value)))
                .collect(),
        };
        specs.push(Spec {
            rule: device.rule(words, index),
            priority: 0,
            any: special.map_or(cell.any(), |special| special.any),
            conditions,
            clear: special.map_or_else(Vec::new, |special| conditions_of(&special.clear)),
            for_ms: special.map_or(0, |special| special.for_ms),
            cooldown_ms: special.map_or(0, |special| special.cooldown_ms),
            command: cell.command(),
            matched: device.matched(words, index),
            held_since: special.map_or(NEVER, |special| special.held_since),
            last_fired: device.last_fired(words, index),
        });
    }
    specs
}

fn condition(shape: &Shape, op: u16, threshold: f64) -> Condition {
    let metric = shape.layout.slots[usize::from(op >> 3)].name.clone();
    Condition {
        metric,
        test: Test::Number((op & 7) as u8, threshold),
    }
}

fn conditions_of(checks: &[Check]) -> Vec<Condition> {
    checks.iter().map(|check| check.condition.clone()).collect()
}
