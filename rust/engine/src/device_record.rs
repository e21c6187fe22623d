//! What the engine keeps of a device: a header, and a record of its metrics, values and rules.
//!
//! ```text
//! DeviceRecordHeader, 56 bytes (the compiler orders the fields)
//! ┌────────────────────────┬────┬────────────────────────────────────────────────────────┐
//! │ number                 │  4 │ the database's number of the device                    │
//! │ seen_index             │  4 │ where the current batch lists the device as seen       │
//! │ slot_count             │  2 │ metrics                                                │
//! │ condition_count        │  2 │ conditions of plain rules                              │
//! │ rule_count             │  2 │                                                        │
//! │ value_count            │  2 │ slots that have a value                                │
//! │ flags                  │  7 │ watched, changed, …                                    │
//! │ newest_ms, received_ms │ 16 │ time and arrival of the newest message                 │
//! │ matched                │  8 │ one bit for each of the first 64 rules                 │
//! │ rare                   │  8 │ pointer to RareDeviceState, or null                    │
//! └────────────────────────┴────┴────────────────────────────────────────────────────────┘
//!
//! Record, words of 8 bytes; what a message that changes no rule reads comes first
//! ┌───────────┬──────────────────┬────────┬───────────┬──────────────────┬────────────┬───────────┐
//! │ metric    │ condition code   │ value  │ threshold │ rule             │ last fired │ matched   │
//! │ u32       │ u16              │ f64    │ f64       │ u32 + u32        │ i64, ms    │ 64 bits   │
//! ├───────────┼──────────────────┼────────┼───────────┼──────────────────┼────────────┼───────────┤
//! │ 1 per slot│ 1 per plain      │ 1 per  │ 1 per     │ number, and      │ 1 per rule │ 1 per 64  │
//! │ (its id)  │ condition        │ slot   │ code      │ PackedRuleHeader │            │ from 65th │
//! └───────────┴──────────────────┴────────┴───────────┴──────────────────┴────────────┴───────────┘
//! ```
//!
//! Five metrics and five rules of two conditions take 56 + 240 bytes. Nothing is shared between devices but the table of metrics, so a
//! device costs the same whatever the others report. A slot without a value, or with text, holds NaN. `RareDeviceState` has what most
//! devices do not need (text, booleans, times that differ between metrics, late values, timed rules) and costs the others nothing.
//!
//! Law: rules see the value that a message of their time drove. A value of a later time, which came late or was overtaken, is kept
//! beside it (`LaterValue`): `latest` shows it and rules do not see it. A device has such values only until a message of a later time
//! reports the metric. Defined by `domain/telemetry/reference_device.py`.

use std::borrow::Borrow;

use crate::compiled_rules::{NEVER, NO_DEADLINE, PackedRuleHeader, TimedRule};
use crate::payload_parser::{MAX_AHEAD_MS, MessageTime, MetricValue};
use crate::reading_packing::LatestValue;

pub const WORD_BITS: usize = 64;

#[derive(Default)]
pub struct DeviceRecordHeader {
    pub number: u32,
    /// Its index in the current batch's list of devices seen, if that entry is the device's.
    pub seen_index: u32,
    pub slot_count: u16,
    pub condition_count: u16,
    pub rule_count: u16,
    pub value_count: u16,
    /// No rule is timed, and a word has a bit for each condition and each rule.
    pub is_all_plain: bool,
    /// A metric is named `u`, like the member that holds units.
    pub reports_u: bool,
    /// A metric is named like a member of the envelope: `ts`, `m` or `u`.
    pub reports_envelope: bool,
    /// Its readings are reported one by one, for live subscribers.
    pub watched: bool,
    /// Its values differ from the last checkpoint.
    pub changed: bool,
    /// The last checkpoint has the time of the newest message.
    pub at_checkpoint: bool,
    /// The time of the newest message is the device's `ts`, not the arrival.
    pub time_by_device: bool,
    pub newest_ms: i64,
    /// Arrival of the newest message; of every value while `rare.times` is empty.
    pub received_ms: i64,
    /// One bit for each of the first 64 rules, so that an evaluation that changes nothing reads no more.
    pub matched: u64,
    pub rare: Option<Box<RareDeviceState>>,
}

const _: () = assert!(size_of::<DeviceRecordHeader>() == 56);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Number,
    Bool,
    Text,
}

pub struct RareDeviceState {
    /// By slot; empty while all values are numbers.
    pub kinds: Vec<ValueKind>,
    /// (slot, text)
    pub texts: Vec<(usize, Box<str>)>,
    /// By slot (time, arrival); empty while all values are the newest message's.
    pub times: Vec<(i64, i64)>,
    /// At most one of each slot.
    pub later: Vec<LaterValue>,
    pub timed_rules: Vec<TimedRule>,
    /// The earliest deadline of the timed rules.
    pub deadline_ms: i64,
    /// The deadline under which the timer queue lists this device.
    pub queued_ms: i64,
    /// Arrival of the first of the late messages since the newest message; NEVER without any.
    pub late_since_ms: i64,
}

impl Default for RareDeviceState {
    fn default() -> Self {
        Self {
            kinds: vec![],
            texts: vec![],
            times: vec![],
            later: vec![],
            timed_rules: vec![],
            deadline_ms: NO_DEADLINE,
            queued_ms: NO_DEADLINE,
            late_since_ms: NEVER,
        }
    }
}

impl RareDeviceState {
    pub fn update_deadline(&mut self) {
        let deadlines = self.timed_rules.iter().map(|rule| rule.deadline_ms);
        self.deadline_ms = deadlines.min().unwrap_or(NO_DEADLINE);
    }
}

/// A value of a later time than the slot's own, which rules see.
pub struct LaterValue {
    pub slot: usize,
    pub value: MetricValue<'static>,
    pub ts_ms: i64,
}

impl LaterValue {
    pub fn new(slot: usize, value: MetricValue<'_>, ts_ms: i64) -> Self {
        let value = match value {
            MetricValue::Number(number) => MetricValue::Number(number),
            MetricValue::Bool(value) => MetricValue::Bool(value),
            MetricValue::Text(text) => MetricValue::Text(text.into_owned().into()),
        };
        Self { slot, value, ts_ms }
    }
}

impl DeviceRecordHeader {
    pub fn new(number: u32) -> Self {
        Self {
            number,
            is_all_plain: true,
            newest_ms: NEVER,
            received_ms: NEVER,
            ..Self::default()
        }
    }

    #[inline(always)]
    pub fn slots(&self) -> usize {
        usize::from(self.slot_count)
    }

    #[inline(always)]
    pub fn conditions(&self) -> usize {
        usize::from(self.condition_count)
    }

    pub fn rules(&self) -> usize {
        usize::from(self.rule_count)
    }

    /// The first word of the values.
    #[inline(always)]
    pub fn values_offset(&self) -> usize {
        (2 * self.slots() + self.conditions()).div_ceil(4)
    }

    #[inline(always)]
    pub fn thresholds_offset(&self) -> usize {
        self.values_offset() + self.slots()
    }

    #[inline(always)]
    pub fn rules_offset(&self) -> usize {
        self.thresholds_offset() + self.conditions()
    }

    pub fn last_fired_offset(&self) -> usize {
        self.rules_offset() + self.rules()
    }

    /// The first word of the states of the rules beyond the first 64.
    pub fn matched_offset(&self) -> usize {
        self.last_fired_offset() + self.rules()
    }

    /// The metric of a slot, by its id.
    #[inline(always)]
    pub fn metric(words: &[u64], slot: usize) -> u32 {
        (words[slot / 2] >> (slot % 2 * 32)) as u32
    }

    /// Of a plain condition: `slot * 8 + mask`.
    #[inline(always)]
    pub fn condition_code(&self, words: &[u64], index: usize) -> u16 {
        let at = 2 * self.slots() + index;
        (words[at / 4] >> (at % 4 * 16)) as u16
    }

    #[inline(always)]
    pub fn number_of(&self, words: &[u64], slot: usize) -> f64 {
        f64::from_bits(words[self.values_offset() + slot])
    }

    /// The rule at `index` in firing order, without its number.
    #[inline(always)]
    pub fn rule(&self, words: &[u64], index: usize) -> PackedRuleHeader {
        PackedRuleHeader::from_bits((words[self.rules_offset() + index] >> 32) as u32)
    }

    pub(crate) fn rare_mut(&mut self) -> &mut RareDeviceState {
        self.rare.get_or_insert_default()
    }

    /// Whether a message is older than the newest one. When all have been for MAX_AHEAD_MS, the newest time is not believed.
    #[inline]
    pub(crate) fn is_late(&mut self, time: MessageTime, received_ms: i64) -> bool {
        if time.is_by_device() {
            time.ts_ms < self.newest_ms && self.is_late_still(received_ms)
        } else {
            received_ms.saturating_add(MAX_AHEAD_MS) < self.received_ms
        }
    }

    #[cold]
    fn is_late_still(&mut self, received_ms: i64) -> bool {
        let rare = self.rare_mut();
        if rare.late_since_ms == NEVER {
            rare.late_since_ms = received_ms;
        }
        received_ms.saturating_sub(rare.late_since_ms) < MAX_AHEAD_MS
    }

    /// Whether a restart replays a row of this time.
    #[inline]
    pub(crate) fn is_replayed(&self, ts_ms: i64) -> bool {
        ts_ms > self.newest_ms || (ts_ms == self.newest_ms && !self.at_checkpoint)
    }

    #[inline]
    pub(crate) fn set_newest(&mut self, time: MessageTime, received_ms: i64) {
        self.at_checkpoint &= time.ts_ms == self.newest_ms;
        self.newest_ms = time.ts_ms;
        self.received_ms = received_ms;
        self.time_by_device = time.is_by_device();
        if let Some(rare) = self.rare.as_mut() {
            rare.late_since_ms = NEVER;
        }
    }

    pub fn kind(&self, slot: usize) -> ValueKind {
        let kinds = self.rare.as_ref().map(|rare| &rare.kinds);
        kinds.and_then(|kinds| kinds.get(slot)).copied().unwrap_or(ValueKind::Number)
    }

    /// The latest value of a slot; None before the first.
    pub fn value(&self, words: &[u64], slot: usize) -> Option<MetricValue<'_>> {
        let number = self.number_of(words, slot);
        match self.kind(slot) {
            ValueKind::Number => (!number.is_nan()).then_some(MetricValue::Number(number)),
            ValueKind::Bool => Some(MetricValue::Bool(number != 0.0)),
            ValueKind::Text => self.text(slot).map(|text| MetricValue::Text(text.into())),
        }
    }

    pub(crate) fn has_value(&self, words: &[u64], slot: usize) -> bool {
        !self.number_of(words, slot).is_nan() || self.kind(slot) == ValueKind::Text
    }

    pub(crate) fn text(&self, slot: usize) -> Option<&str> {
        let texts = &self.rare.as_ref()?.texts;
        let found = texts.iter().find(|(text_slot, _)| *text_slot == slot);
        found.map(|(_, text)| &**text)
    }

    pub(crate) fn later(&self, slot: usize) -> Option<&LaterValue> {
        self.rare.as_ref()?.later.iter().find(|later| later.slot == slot)
    }

    /// (time, arrival) of a slot that has a value.
    pub fn times(&self, slot: usize) -> (i64, i64) {
        let times = self.rare.as_ref().and_then(|rare| rare.times.get(slot));
        times.copied().unwrap_or((self.newest_ms, self.received_ms))
    }

    /// The number of the rule at `index` in firing order.
    pub fn rule_number(&self, words: &[u64], index: usize) -> u32 {
        words[self.rules_offset() + index] as u32
    }

    pub fn last_fired(&self, words: &[u64], index: usize) -> i64 {
        words[self.last_fired_offset() + index].cast_signed()
    }

    pub fn matched(&self, words: &[u64], index: usize) -> bool {
        let bits = if index < WORD_BITS {
            self.matched
        } else {
            words[self.matched_offset() + index / WORD_BITS - 1]
        };
        bits >> (index % WORD_BITS) & 1 != 0
    }

    /// All values are numbers of the newest message, and no slot has a later one.
    #[inline]
    pub(crate) fn has_plain_values(&self) -> bool {
        match &self.rare {
            None => true,
            Some(rare) => rare.kinds.is_empty() && rare.times.is_empty() && rare.later.is_empty(),
        }
    }
}

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

    /// Before a message of this time, which drives rules, replaces the values of these slots. A time after `believed_until_ms` is
    /// not believed: the service's clock was ahead.
    pub fn keep_later(&mut self, slots: impl Iterator<Item = usize>, ts_ms: i64, believed_until_ms: i64) {
        for slot in slots {
            let is_kept = self.has_later_than(slot, ts_ms, believed_until_ms);
            let is_later = self.header.later(slot).is_some();
            if is_kept && !is_later {
                let own = self.header.value(self.words, slot);
                let own = own.map(|value| LaterValue::new(slot, value, self.header.times(slot).0));
                own.into_iter().for_each(|own| self.put_later(own));
            } else if is_later && !is_kept {
                self.header.rare_mut().later.retain(|later| later.slot != slot);
            }
        }
    }

    /// Stores a message that rules do not see. Returns whether one of its values is the latest of its metric now.
    #[cold]
    pub fn store_late<'a, V: Borrow<MetricValue<'a>>>(
        &mut self,
        values: impl Iterator<Item = (usize, V)>,
        ts_ms: i64,
        believed_until_ms: i64,
    ) -> bool {
        let mut has_changed = false;
        for (slot, value) in values {
            if !self.has_later_than(slot, ts_ms, believed_until_ms) {
                self.put_later(LaterValue::new(slot, value.borrow().clone(), ts_ms));
                has_changed = true;
            }
        }
        has_changed
    }

    pub(crate) fn put_later(&mut self, value: LaterValue) {
        let later = &mut self.header.rare_mut().later;
        later.retain(|other| other.slot != value.slot);
        later.push(value);
    }

    fn has_later_than(&self, slot: usize, ts_ms: i64, believed_until_ms: i64) -> bool {
        let own_ms = || self.header.has_value(self.words, slot).then(|| self.header.times(slot).0);
        let latest_ms = self.header.later(slot).map(|later| later.ts_ms).or_else(own_ms);
        latest_ms.is_some_and(|latest_ms| ts_ms < latest_ms && latest_ms <= believed_until_ms)
    }
}
