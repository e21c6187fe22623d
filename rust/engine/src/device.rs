//! What the engine keeps of a device: its last values, and its rules in compact form.
//!
//! The head is one cache line. Its numbers (values, thresholds, times of firing) are a record of the slab, in the order its shape
//! says. All that most devices do not have (text, booleans, times that differ between metrics, special rules) is behind one pointer
//! and costs the others nothing.

use std::sync::Arc;

use crate::message::Value;
use crate::packing::LatestMetric;
use crate::rules::{NEVER, NO_DUE, Special};
use crate::shape::{BITS, Shape};

#[repr(align(64))]
pub struct Device {
    pub number: u32,
    /// Its record's place among those of its size.
    pub place: u32,
    pub lines: u16,
    /// Slots that have a value.
    pub valued: u16,
    pub watched: bool,
    /// Its values differ from the last checkpoint.
    pub changed: bool,
    /// The batch it was last seen in, and where in that batch's list.
    pub seen_in: u32,
    pub seen_at: u32,
    pub newest_ms: i64,
    /// Arrival of the newest message; of every value while `cold.times` is empty.
    pub heard_ms: i64,
    /// A bit for each of the first 64 rules that matches, so that an evaluation in which nothing turns needs no more.
    pub matched: u64,
    pub shape: Arc<Shape>,
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

/// A device at hand, with its numbers.
pub struct Record<'a> {
    pub device: &'a mut Device,
    pub words: &'a mut [u64],
}

impl Device {
    pub fn new(number: u32, shape: Arc<Shape>) -> Self {
        Self {
            number,
            place: 0,
            lines: 0,
            valued: 0,
            watched: false,
            changed: false,
            seen_in: 0,
            seen_at: 0,
            newest_ms: NEVER,
            heard_ms: NEVER,
            matched: 0,
            shape,
            cold: None,
        }
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
    pub fn value(&self, words: &[u64], slot: usize) -> Option<Value<'_>> {
        let number = f64::from_bits(words[slot]);
        match self.kind(slot) {
            Kind::Number => (!number.is_nan()).then_some(Value::Number(number)),
            Kind::Bool => Some(Value::Bool(number != 0.0)),
            Kind::Text => self.text(slot).map(|text| Value::Text(text.into())),
        }
    }

    fn has_value(&self, words: &[u64], slot: usize) -> bool {
        !f64::from_bits(words[slot]).is_nan() || self.kind(slot) == Kind::Text
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

    /// The number of the rule at `index` of the firing order.
    pub fn rule(&self, words: &[u64], index: usize) -> u32 {
        (words[self.shape.rules() + index / 2] >> (index % 2 * 32)) as u32
    }

    pub fn last_fired(&self, words: &[u64], index: usize) -> i64 {
        words[self.shape.fired() + index].cast_signed()
    }

    pub fn matched(&self, words: &[u64], index: usize) -> bool {
        let bits = if index < BITS {
            self.matched
        } else {
            words[self.shape.more() + index / BITS - 1]
        };
        bits >> (index % BITS) & 1 != 0
    }

    /// All values are numbers, and all of the newest message.
    #[inline]
    fn is_simple(&self) -> bool {
        match &self.cold {
            None => true,
            Some(cold) => cold.kinds.is_empty() && cold.times.is_empty(),
        }
    }

    fn lacks_cold(&self) -> bool {
        self.cold.as_ref().is_some_and(|cold| {
            cold.kinds.is_empty()
                && cold.times.is_empty()
                && cold.specials.is_empty()
                && cold.queued == NO_DUE
        })
    }
}

impl Record<'_> {
    /// Take a whole message of numbers, each slot once.
    #[inline]
    pub fn take_numbers(&mut self, readings: &[(u16, f64)], ts_ms: i64, heard_ms: i64) {
        let count = readings.len();
        if usize::from(self.device.valued) == count
            && self.device.shape.slots() == count
            && self.device.is_simple()
        {
            for &(slot, value) in readings {
                self.words[usize::from(slot)] = value.to_bits();
            }
            self.device.newest_ms = ts_ms;
            self.device.heard_ms = heard_ms;
            return;
        }
        for &(slot, value) in readings {
            self.set(usize::from(slot), &Value::Number(value));
        }
        let slots = readings.iter().map(|(slot, _)| usize::from(*slot));
        self.take_times(slots, ts_ms, heard_ms);
    }

    pub fn set(&mut self, slot: usize, value: &Value<'_>) {
        if !self.device.has_value(self.words, slot) {
            self.device.valued += 1;
        }
        let (kind, number) = match value {
            Value::Number(number) => (Kind::Number, *number),
            Value::Bool(value) => (Kind::Bool, f64::from(u8::from(*value))),
            Value::Text(_) => (Kind::Text, f64::NAN),
        };
        self.words[slot] = number.to_bits();
        let before = self.device.kind(slot);
        if kind == before && kind != Kind::Text {
            return;
        }
        if let Value::Text(text) = value
            && before == Kind::Text
            && self.device.text(slot) == Some(&**text)
        {
            return;
        }
        let slots = self.device.shape.slots();
        let cold = self.device.cold();
        cold.kinds.resize(slots, Kind::Number);
        cold.kinds[slot] = kind;
        cold.texts.retain(|(at, _)| *at != slot);
        if let Value::Text(text) = value {
            cold.texts.push((slot, (&**text).into()));
        }
    }

    /// These slots, each once, were reported at this time and have their values.
    pub fn take_times(
        &mut self,
        slots: impl ExactSizeIterator<Item = usize>,
        ts_ms: i64,
        heard_ms: i64,
    ) {
        let count = self.device.shape.slots();
        let shared = (self.device.newest_ms, self.device.heard_ms);
        let whole = slots.len() == usize::from(self.device.valued);
        self.device.newest_ms = ts_ms;
        self.device.heard_ms = heard_ms;
        if whole {
            self.forget_times();
            return;
        }
        let times = &mut self.device.cold().times;
        times.resize(count, shared);
        for slot in slots {
            times[slot] = (ts_ms, heard_ms);
        }
        self.share_times();
    }

    /// Forget the times by slot where they are all the newest message's.
    pub fn share_times(&mut self) {
        let device = &*self.device;
        let shared = (device.newest_ms, device.heard_ms);
        let differs = (0..device.shape.slots())
            .any(|slot| device.has_value(self.words, slot) && device.times(slot) != shared);
        if !differs {
            self.forget_times();
        }
    }

    fn forget_times(&mut self) {
        if let Some(cold) = self.device.cold.as_mut() {
            cold.times = Vec::new();
            if self.device.lacks_cold() {
                self.device.cold = None;
            }
        }
    }

    /// The values of a checkpoint, whose metrics are the layout's in the same order.
    pub fn restore_values(&mut self, metrics: &[LatestMetric<'_>]) {
        for (slot, entry) in metrics.iter().enumerate() {
            self.set(slot, &entry.value);
        }
        let times = metrics.iter().map(|entry| (entry.ts_ms, entry.heard_ms));
        self.device.cold().times = times.collect();
        self.share_times();
    }

    pub fn set_fired(&mut self, index: usize, at_ms: i64) {
        self.words[self.device.shape.fired() + index] = at_ms.cast_unsigned();
    }

    pub fn set_matched(&mut self, index: usize, matched: bool) {
        let bits = if index < BITS {
            &mut self.device.matched
        } else {
            &mut self.words[self.device.shape.more() + index / BITS - 1]
        };
        *bits = *bits & !(1 << (index % BITS)) | u64::from(matched) << (index % BITS);
    }
}
