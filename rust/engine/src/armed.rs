//! A device's rules: put, taken out again as they are now, and moved along when the device reports a new metric.

use std::sync::Arc;

use crate::device::Device;
use crate::layout::Layout;
use crate::rules::{Cell, Check, Condition, NEVER, NO_DUE, Spec, Test, compile};

/// Of the bit set in which a plain evaluation gathers its conditions.
const BITS: usize = 64;

impl Device {
    /// Move to a layout that begins with the present one's metrics.
    pub fn grow(&mut self, layout: Arc<Layout>) {
        let specs = self.specs();
        let values = &self.floats[..self.layout.len()];
        let fresh = std::iter::repeat_n(f64::NAN, layout.len() - values.len());
        self.floats = values.iter().copied().chain(fresh).collect();
        let shared = (self.newest_ms, self.heard_ms);
        let mut dues = Vec::new();
        if let Some(cold) = self.cold.as_mut() {
            if !cold.times.is_empty() {
                cold.times.resize(layout.len(), shared);
            }
            dues = cold.specials.iter().map(|special| special.due).collect();
        }
        self.layout = layout;
        if !specs.is_empty() {
            self.compile_again(&specs, &dues);
        }
    }

    /// A rule that waited for a metric may now be plain; one that has a deadline is special before and after, and keeps it.
    fn compile_again(&mut self, specs: &[Spec], dues: &[i64]) {
        let was_special: Vec<_> = self.cells.iter().map(Cell::is_special).collect();
        self.put_rules(specs);
        let mut dues = dues.iter();
        let Some(cold) = self.cold.as_mut() else {
            return;
        };
        let mut specials = cold.specials.iter_mut();
        for (cell, was_special) in self.cells.iter().zip(was_special) {
            let due = if was_special { dues.next() } else { None };
            if cell.is_special()
                && let Some(special) = specials.next()
            {
                special.due = due.copied().unwrap_or(NO_DUE);
            }
        }
    }

    /// Replace the rules by `specs`, which are in firing order.
    pub fn put_rules(&mut self, specs: &[Spec]) {
        let compiled = compile(specs, &self.layout);
        let values = &self.floats[..self.layout.len()];
        self.floats = values.iter().copied().chain(compiled.thresholds).collect();
        let fits = compiled.ops.len() < BITS && compiled.cells.len() <= BITS;
        self.is_all_plain = compiled.specials.is_empty() && fits;
        let heads = compiled.cells.iter().map(Cell::head);
        self.ops = compiled.ops.iter().copied().chain(heads).collect();
        let matched = compiled.cells.iter().take(BITS).enumerate();
        self.matched = matched.fold(0, |bits, (index, cell)| {
            bits | u64::from(cell.matched()) << index
        });
        self.cells = compiled.cells.into();
        if self.cold.is_some() || !compiled.specials.is_empty() {
            self.cold().specials = compiled.specials;
        }
    }

    /// The rules in firing order as they were put, with their present states.
    pub fn specs(&self) -> Vec<Spec> {
        let mut specials = self.cold.iter().flat_map(|cold| &cold.specials);
        let thresholds = &self.floats[self.layout.len()..];
        let mut plain = self.ops.iter().zip(thresholds);
        let mut specs = Vec::with_capacity(self.cells.len());
        for cell in &self.cells {
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
                    .map(|(op, value)| self.condition(*op, *value))
                    .collect(),
            };
            specs.push(Spec {
                rule: cell.rule,
                priority: 0,
                any: special.map_or(cell.any(), |special| special.any),
                conditions,
                clear: special
                    .map(|special| conditions_of(&special.clear))
                    .unwrap_or_default(),
                for_ms: special.map_or(0, |special| special.for_ms),
                cooldown_ms: special.map_or(0, |special| special.cooldown_ms),
                command: cell.command(),
                matched: cell.matched(),
                held_since: special.map_or(NEVER, |special| special.held_since),
                last_fired: cell.last_fired,
            });
        }
        specs
    }

    pub fn set_matched(&mut self, index: usize, matched: bool) {
        self.cells[index].set_matched(matched);
        if index < BITS {
            self.matched = self.matched & !(1 << index) | u64::from(matched) << index;
        }
    }

    fn condition(&self, op: u16, threshold: f64) -> Condition {
        let metric = self.layout.slots[usize::from(op >> 3)].name.clone();
        Condition {
            metric,
            test: Test::Number((op & 7) as u8, threshold),
        }
    }
}

fn conditions_of(checks: &[Check]) -> Vec<Condition> {
    checks.iter().map(|check| check.condition.clone()).collect()
}
