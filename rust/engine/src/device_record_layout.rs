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
//! │ rare                   │  8 │ pointer to RareDeviceState, or null                          │
//! └────────────────────────┴────┴────────────────────────────────────────────────────────┘
//!
//! Record, words of 8 bytes; what a message that changes no rule reads comes first
//! ┌───────────┬──────────────────┬────────┬───────────┬─────────────┬────────────┬───────────┐
//! │ metric    │ condition code   │ value  │ threshold │ rule        │ last fired │ matched   │
//! │ u32       │ u16              │ f64    │ f64       │ u32 + u32   │ i64, ms    │ 64 bits   │
//! ├───────────┼──────────────────┼────────┼───────────┼─────────────┼────────────┼───────────┤
//! │ 1 per slot│ 1 per plain      │ 1 per  │ 1 per     │ number, and │ 1 per rule │ 1 per 64  │
//! │ (its id)  │ condition        │ slot   │ code      │ PackedRuleHeader │            │ from 65th │
//! └───────────┴──────────────────┴────────┴───────────┴─────────────┴────────────┴───────────┘
//! ```
//!
//! Five metrics and five rules of two conditions take 56 + 240 bytes. Nothing is shared between devices but the table of metrics, so a
//! device costs the same whatever the others report. A slot without a value, or with text, holds NaN. `RareDeviceState` has what most
//! devices do not need (text, booleans, times that differ between metrics, late values, timed rules) and costs the others nothing.

use crate::compiled_rules::{NEVER, NO_DEADLINE, PackedRuleHeader, TimedRule};
use crate::latest_values_hidden_from_rules::LatestValueHiddenFromRules;
use crate::payload_parser::{MAX_AHEAD_MS, MessageTime, MetricValue};

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
    pub later: Vec<LatestValueHiddenFromRules>,
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
