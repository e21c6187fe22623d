//! What the engine keeps of a device: its last values, and its rules in compact form.
//!
//! The hot part is one array of doubles (values, then thresholds), one of ops and one of rule cells. All that most devices do not
//! have (text, booleans, times that differ between metrics, special rules) is behind one pointer and costs the others nothing.

use std::sync::Arc;

use crate::layout::Layout;
use crate::message::Value;
use crate::rules::{Cell, Check, Condition, NEVER, NO_DUE, Spec, Special, Test, compile};

/// Of the bit set in which a plain evaluation gathers its conditions.
const BITS: usize = 64;

pub struct Device {
    pub number: u32,
    pub watched: bool,
    /// No special rules, and few enough conditions for one bit each.
    pub is_all_plain: bool,
    /// Its values differ from the last checkpoint.
    pub changed: bool,
    /// The batch it was last seen in, and where in that batch's list.
    pub seen_in: u32,
    pub seen_at: u32,
    pub newest_ms: i64,
    /// Arrival of the newest message; of every value while `cold.times` is empty.
    pub heard_ms: i64,
    pub valued: u32,
    pub layout: Arc<Layout>,
    /// `layout.len()` values (NaN: none, or text), then the thresholds of the plain conditions.
    pub floats: Box<[f64]>,
    /// The ops of the plain conditions, then the heads of the rules.
    pub ops: Box<[u16]>,
    /// A bit for each of the first 64 rules that matches, so that an evaluation in which nothing turns needs no cell.
    pub matched: u64,
    pub cells: Box<[Cell]>,
    pub cold: Option<Box<Cold>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Number,
    Bool,
    Text,
}

pub struct Cold {
    /// By slot; empty while all are numbers.
    pub kinds: Vec<Kind>,
    pub texts: Vec<(usize, Box<str>)>,
    /// By slot (time, arrival); empty while all are the newest message's.
    pub times: Vec<(i64, i64)>,
    pub specials: Vec<Special>,
    /// The earliest of the specials' deadlines, and the time of this device's entry in the timers' queue.
    pub due: i64,
    pub queued: i64,
}

impl Default for Cold {
    fn default() -> Self {
        Self { kinds: vec![], texts: vec![], times: vec![], specials: vec![], due: NO_DUE, queued: NO_DUE }
    }
}

impl Device {
    pub fn new(number: u32, layout: Arc<Layout>) -> Self {
        Self {
            number,
            watched: false,
            is_all_plain: true,
            changed: false,
            seen_in: 0,
            seen_at: 0,
            newest_ms: NEVER,
            heard_ms: NEVER,
            valued: 0,
            layout,
            floats: Box::default(),
            ops: Box::default(),
            matched: 0,
            cells: Box::default(),
            cold: None,
        }
    }

    /// Something of every cache line that a plain evaluation reads.
    #[inline]
    pub fn touch(&self) -> u64 {
        let lines = self.floats.iter().step_by(8).fold(0, |sum, number| sum ^ number.to_bits());
        lines ^ self.seen_in as u64 ^ self.matched ^ self.ops.first().copied().unwrap_or(0) as u64
    }

    fn cold(&mut self) -> &mut Cold {
        self.cold.get_or_insert_default()
    }

    pub fn kind(&self, slot: usize) -> Kind {
        let kinds = self.cold.as_ref().map(|cold| &cold.kinds);
        kinds.and_then(|kinds| kinds.get(slot)).copied().unwrap_or(Kind::Number)
    }

    /// The last value of a slot; None before the first.
    pub fn value(&self, slot: usize) -> Option<Value<'_>> {
        let number = self.floats[slot];
        match self.kind(slot) {
            Kind::Number => (!number.is_nan()).then_some(Value::Number(number)),
            Kind::Bool => Some(Value::Bool(number != 0.0)),
            Kind::Text => self.text(slot).map(|text| Value::Text(text.into())),
        }
    }

    fn text(&self, slot: usize) -> Option<&str> {
        let texts = &self.cold.as_ref()?.texts;
        texts.iter().find(|(at, _)| *at == slot).map(|(_, text)| &**text)
    }

    /// (time, arrival) of a slot that has a value.
    pub fn times(&self, slot: usize) -> (i64, i64) {
        let times = self.cold.as_ref().and_then(|cold| cold.times.get(slot));
        times.copied().unwrap_or((self.newest_ms, self.heard_ms))
    }

    /// Take a whole message of numbers, each slot once.
    #[inline]
    pub fn take_numbers(&mut self, readings: &[(u16, f64)], ts_ms: i64, heard_ms: i64) {
        let simple = self.cold.as_ref().is_none_or(|cold| cold.kinds.is_empty() && cold.times.is_empty());
        if simple && readings.len() == self.layout.len() && self.valued as usize == readings.len() {
            for &(slot, value) in readings {
                self.floats[usize::from(slot)] = value;
            }
            self.newest_ms = ts_ms;
            self.heard_ms = heard_ms;
            return;
        }
        for &(slot, value) in readings {
            self.set(usize::from(slot), &Value::Number(value));
        }
        self.take_times(readings.iter().map(|(slot, _)| usize::from(*slot)), ts_ms, heard_ms);
    }

    pub fn set(&mut self, slot: usize, value: &Value<'_>) {
        if self.value(slot).is_none() {
            self.valued += 1;
        }
        let (kind, number) = match value {
            Value::Number(number) => (Kind::Number, *number),
            Value::Bool(value) => (Kind::Bool, f64::from(u8::from(*value))),
            Value::Text(_) => (Kind::Text, f64::NAN),
        };
        self.floats[slot] = number;
        if kind == Kind::Number && self.kind(slot) == Kind::Number {
            return;
        }
        let slots = self.layout.len();
        let cold = self.cold();
        cold.kinds.resize(slots, Kind::Number);
        cold.kinds[slot] = kind;
        cold.texts.retain(|(at, _)| *at != slot);
        if let Value::Text(text) = value {
            cold.texts.push((slot, (&**text).into()));
        }
    }

    /// These slots were reported at this time.
    pub fn take_times(&mut self, slots: impl Iterator<Item = usize>, ts_ms: i64, heard_ms: i64) {
        let count = self.layout.len();
        let shared = (self.newest_ms, self.heard_ms);
        let times = &mut self.cold().times;
        times.resize(count, shared);
        for slot in slots {
            times[slot] = (ts_ms, heard_ms);
        }
        self.newest_ms = ts_ms;
        self.heard_ms = heard_ms;
        self.share_times();
    }

    /// Forget the times by slot where they are all the newest message's.
    pub fn share_times(&mut self) {
        let shared = (self.newest_ms, self.heard_ms);
        let differs = (0..self.layout.len()).any(|slot| self.value(slot).is_some() && self.times(slot) != shared);
        let Some(cold) = self.cold.as_mut() else { return };
        if !differs {
            cold.times = Vec::new();
            if cold.kinds.is_empty() && cold.specials.is_empty() && cold.queued == NO_DUE {
                self.cold = None;
            }
        }
    }

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
        let Some(cold) = self.cold.as_mut() else { return };
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
        self.matched = matched.fold(0, |bits, (index, cell)| bits | u64::from(cell.matched()) << index);
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
            let special = if cell.is_special() { specials.next() } else { None };
            let conditions = match special {
                Some(special) => conditions_of(&special.conditions),
                None => plain.by_ref().take(cell.count()).map(|(op, value)| self.condition(*op, *value)).collect(),
            };
            specs.push(Spec {
                rule: cell.rule,
                priority: 0,
                any: special.map_or(cell.any(), |special| special.any),
                conditions,
                clear: special.map(|special| conditions_of(&special.clear)).unwrap_or_default(),
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
        Condition { metric, test: Test::Number((op & 7) as u8, threshold) }
    }
}

fn conditions_of(checks: &[Check]) -> Vec<Condition> {
    checks.iter().map(|check| check.condition.clone()).collect()
}

impl Device {
    /// The values of a checkpoint, whose metrics are the layout's in the same order.
    pub fn restore_values(&mut self, metrics: &[crate::packing::LatestMetric<'_>]) {
        for (slot, entry) in metrics.iter().enumerate() {
            self.set(slot, &entry.value);
        }
        self.cold().times = metrics.iter().map(|entry| (entry.ts_ms, entry.heard_ms)).collect();
        self.share_times();
    }
}
