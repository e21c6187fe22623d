//! What the engine keeps of a device: its last values, and its rules in compact form.
//!
//! The hot part is one array of doubles (values, then thresholds), one of ops and one of rule cells. All that most devices do not
//! have (text, booleans, times that differ between metrics, special rules) is behind one pointer and costs the others nothing.

use std::sync::Arc;

use crate::layout::Layout;
use crate::message::Value;
use crate::packing::LatestMetric;
use crate::rules::{Cell, NEVER, NO_DUE, Special};

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
        Self {
            kinds: vec![],
            texts: vec![],
            times: vec![],
            specials: vec![],
            due: NO_DUE,
            queued: NO_DUE,
        }
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
        let lines = self
            .floats
            .iter()
            .step_by(8)
            .fold(0, |sum, number| sum ^ number.to_bits());
        lines ^ self.seen_in as u64 ^ self.matched ^ self.ops.first().copied().unwrap_or(0) as u64
    }

    pub(crate) fn cold(&mut self) -> &mut Cold {
        self.cold.get_or_insert_default()
    }

    pub fn kind(&self, slot: usize) -> Kind {
        let kinds = self.cold.as_ref().map(|cold| &cold.kinds);
        kinds
            .and_then(|kinds| kinds.get(slot))
            .copied()
            .unwrap_or(Kind::Number)
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
        texts
            .iter()
            .find(|(at, _)| *at == slot)
            .map(|(_, text)| &**text)
    }

    /// (time, arrival) of a slot that has a value.
    pub fn times(&self, slot: usize) -> (i64, i64) {
        let times = self.cold.as_ref().and_then(|cold| cold.times.get(slot));
        times.copied().unwrap_or((self.newest_ms, self.heard_ms))
    }

    /// Take a whole message of numbers, each slot once.
    #[inline]
    pub fn take_numbers(&mut self, readings: &[(u16, f64)], ts_ms: i64, heard_ms: i64) {
        let simple = self
            .cold
            .as_ref()
            .is_none_or(|cold| cold.kinds.is_empty() && cold.times.is_empty());
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
        self.take_times(
            readings.iter().map(|(slot, _)| usize::from(*slot)),
            ts_ms,
            heard_ms,
        );
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
        let differs = (0..self.layout.len())
            .any(|slot| self.value(slot).is_some() && self.times(slot) != shared);
        let Some(cold) = self.cold.as_mut() else {
            return;
        };
        if !differs {
            cold.times = Vec::new();
            if cold.kinds.is_empty() && cold.specials.is_empty() && cold.queued == NO_DUE {
                self.cold = None;
            }
        }
    }

    /// The values of a checkpoint, whose metrics are the layout's in the same order.
    pub fn restore_values(&mut self, metrics: &[LatestMetric<'_>]) {
        for (slot, entry) in metrics.iter().enumerate() {
            self.set(slot, &entry.value);
        }
        self.cold().times = metrics
            .iter()
            .map(|entry| (entry.ts_ms, entry.heard_ms))
            .collect();
        self.share_times();
    }
}
