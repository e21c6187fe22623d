//! A device with its record: stores values and their times, and the state of rules.

use crate::compiled_rules::NO_DEADLINE;
use crate::device_record_layout::{DeviceRecordHeader, ValueKind, WORD_BITS};
use crate::payload_parser::{MessageTime, MetricValue};
use crate::reading_packing::LatestValue;

pub struct EngineDeviceRecord<'a> {
    pub header: &'a mut DeviceRecordHeader,
    pub words: &'a mut [u64],
}

impl EngineDeviceRecord<'_> {
    /// Stores a whole message of numbers, each slot once.
    #[inline]
    pub fn store_numbers(&mut self, readings: &[(u16, f64)], time: MessageTime, received_ms: i64, believed_until_ms: i64) {
        let count = readings.len();
        let is_complete = usize::from(self.header.value_count) == count && self.header.slots() == count;
        if is_complete && time.ts_ms >= self.header.newest_ms && self.header.has_plain_values() {
            let values = &mut self.words[self.header.values_offset()..][..count];
            for &(slot, value) in readings {
                values[usize::from(slot)] = value.to_bits();
            }
            self.header.set_newest(time, received_ms);
            return;
        }
        let slots = readings.iter().map(|(slot, _)| usize::from(*slot));
        self.keep_later(slots.clone(), time.ts_ms, believed_until_ms);
        for &(slot, value) in readings {
            self.store(usize::from(slot), &MetricValue::Number(value));
        }
        self.store_times(slots, time, received_ms);
    }

    pub fn store(&mut self, slot: usize, value: &MetricValue<'_>) {
        if !self.header.has_value(self.words, slot) {
            self.header.value_count += 1;
        }
        let (kind, number) = match value {
            MetricValue::Number(number) => (ValueKind::Number, *number),
            MetricValue::Bool(value) => (ValueKind::Bool, f64::from(u8::from(*value))),
            MetricValue::Text(_) => (ValueKind::Text, f64::NAN),
        };
        self.words[self.header.values_offset() + slot] = number.to_bits();
        let old_kind = self.header.kind(slot);
        if kind == old_kind && kind != ValueKind::Text {
            return;
        }
        if let MetricValue::Text(text) = value
            && old_kind == ValueKind::Text
            && self.header.text(slot) == Some(&**text)
        {
            return;
        }
        let slot_count = self.header.slots();
        let rare = self.header.rare_mut();
        rare.kinds.resize(slot_count, ValueKind::Number);
        rare.kinds[slot] = kind;
        rare.texts.retain(|(text_slot, _)| *text_slot != slot);
        if let MetricValue::Text(text) = value {
            rare.texts.push((slot, (&**text).into()));
        }
    }

    /// Stores the time and arrival of these slots, each once, after their values.
    pub fn store_times(&mut self, slots: impl ExactSizeIterator<Item = usize>, time: MessageTime, received_ms: i64) {
        let slot_count = self.header.slots();
        let old_times = (self.header.newest_ms, self.header.received_ms);
        let is_complete = slots.len() == usize::from(self.header.value_count);
        self.header.set_newest(time, received_ms);
        if is_complete {
            self.clear_times();
            return;
        }
        let times = &mut self.header.rare_mut().times;
        times.resize(slot_count, old_times);
        for slot in slots {
            times[slot] = (time.ts_ms, received_ms);
        }
        self.merge_times();
    }

    /// Drops the times by slot if they all equal the newest message's.
    fn merge_times(&mut self) {
        let header = &*self.header;
        let newest = (header.newest_ms, header.received_ms);
        let differs = (0..header.slots()).any(|slot| header.has_value(self.words, slot) && header.times(slot) != newest);
        if !differs {
            self.clear_times();
        }
    }

    fn clear_times(&mut self) {
        if let Some(rare) = self.header.rare.as_mut() {
            rare.times = Vec::new();
            let has_values = !rare.kinds.is_empty() || !rare.later.is_empty();
            if !has_values && rare.timed_rules.is_empty() && rare.queued_ms == NO_DEADLINE {
                self.header.rare = None;
            }
        }
    }

    /// Stores a checkpoint whose metrics are those of the record, in the same order; none arrived after `now_ms`.
    pub fn store_checkpoint(&mut self, metrics: &[LatestValue<'_>], now_ms: i64) {
        for (slot, entry) in metrics.iter().enumerate() {
            self.store(slot, &entry.value);
        }
        let times = metrics.iter().map(|entry| (entry.ts_ms, entry.received_ms.min(now_ms)));
        self.header.rare_mut().times = times.collect();
        self.merge_times();
    }

    /// The indices of the timed rules.
    pub fn timed_rules(&self) -> Vec<usize> {
        let rules = 0..self.header.rules();
        rules
            .filter(|index| self.header.rule(self.words, *index).is_timed())
            .collect()
    }

    pub fn set_last_fired(&mut self, index: usize, at_ms: i64) {
        self.words[self.header.last_fired_offset() + index] = at_ms.cast_unsigned();
    }

    pub fn set_matched(&mut self, index: usize, matched: bool) {
        let bits = if index < WORD_BITS {
            &mut self.header.matched
        } else {
            &mut self.words[self.header.matched_offset() + index / WORD_BITS - 1]
        };
        *bits = *bits & !(1 << (index % WORD_BITS)) | u64::from(matched) << (index % WORD_BITS);
    }
}
