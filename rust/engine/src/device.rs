//! What the engine keeps of a device: its latest values, and its rules in compact form.
//!
//! ```text
//! DeviceHeader, one cache line of 64 bytes (the compiler orders the fields)
//! ┌────────────────────────┬────┬────────────────────────────────────────────────────────┐
//! │ number                 │  4 │ the database's number of the device                    │
//! │ record_index           │  4 │ index of the record among records of its size          │
//! │ record_lines           │  2 │ size of the record in cache lines                      │
//! │ value_count            │  2 │ slots that have a value                                │
//! │ watched, changed,      │  3 │ flags                                                  │
//! │ time_by_device         │    │                                                        │
//! │ seen_batch, seen_index │  8 │ where the current batch lists the device as seen       │
//! │ newest_ms, received_ms │ 16 │ time and arrival of the newest message                 │
//! │ matched                │  8 │ one bit for each of the first 64 rules                 │
//! │ rule_layout            │  8 │ pointer, shared by devices with the same rules         │
//! │ rare                   │  8 │ pointer to RareState, or null                          │
//! │ (padding)              │  1 │                                                        │
//! └────────────────────────┴────┴────────────────────────────────────────────────────────┘
//!
//! Record, words of 8 bytes in the record arena, rounded up to cache lines
//! ┌──────────────┬────────────────────┬──────────────┬───────────────────┬───────────────┐
//! │ value        │ threshold          │ last fired   │ rule numbers      │ matched       │
//! │ f64          │ f64                │ i64, Unix ms │ 2 × u32           │ 64 bits       │
//! ├──────────────┼────────────────────┼──────────────┼───────────────────┼───────────────┤
//! │ 1 per metric │ 1 per plain        │ 1 per rule   │ 1 per two rules   │ 1 per 64 rules│
//! │              │ condition          │              │                   │ after the 64th│
//! └──────────────┴────────────────────┴──────────────┴───────────────────┴───────────────┘
//! ```
//!
//! Five metrics and five rules of two conditions take 64 + 192 bytes. A slot without a value, or with text, holds NaN. `RareState` has
//! what most devices do not need (text, booleans, times that differ between metrics, timed rules) and costs the others nothing.

use std::sync::Arc;

use crate::payload_parser::{MAX_AHEAD_MS, MessageTime, MetricValue};
use crate::rule_layout::{RuleLayout, WORD_BITS};
use crate::rules::{NEVER, NO_DEADLINE, TimedRule};

#[repr(align(64))]
pub struct DeviceHeader {
    pub number: u32,
    pub record_index: u32,
    pub record_lines: u16,
    pub value_count: u16,
    /// Its readings are reported one by one, for live subscribers.
    pub watched: bool,
    /// Its values differ from the last checkpoint.
    pub changed: bool,
    /// The time of the newest message is the device's `ts`, not the arrival.
    pub time_by_device: bool,
    /// The batch it was last seen in, and its index in that batch's list.
    pub seen_batch: u32,
    pub seen_index: u32,
    pub newest_ms: i64,
    /// Arrival of the newest message; of every value while `rare.times` is empty.
    pub received_ms: i64,
    /// One bit for each of the first 64 rules, so that an evaluation that changes nothing reads no more.
    pub matched: u64,
    pub rule_layout: Arc<RuleLayout>,
    pub rare: Option<Box<RareState>>,
}

const _: () = assert!(size_of::<DeviceHeader>() == 64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Number,
    Bool,
    Text,
}

pub struct RareState {
    /// By slot; empty while all values are numbers.
    pub kinds: Vec<ValueKind>,
    /// (slot, text)
    pub texts: Vec<(usize, Box<str>)>,
    /// By slot (time, arrival); empty while all values are the newest message's.
    pub times: Vec<(i64, i64)>,
    pub timed_rules: Vec<TimedRule>,
    /// The earliest deadline of the timed rules.
    pub deadline_ms: i64,
    /// The deadline under which the timer queue lists this device.
    pub queued_ms: i64,
    /// Arrival of the first of the late messages since the newest message; NEVER without any.
    pub late_since_ms: i64,
}

impl Default for RareState {
    fn default() -> Self {
        Self {
            kinds: vec![],
            texts: vec![],
            times: vec![],
            timed_rules: vec![],
            deadline_ms: NO_DEADLINE,
            queued_ms: NO_DEADLINE,
            late_since_ms: NEVER,
        }
    }
}

impl RareState {
    pub fn update_deadline(&mut self) {
        let deadlines = self.timed_rules.iter().map(|rule| rule.deadline_ms);
        self.deadline_ms = deadlines.min().unwrap_or(NO_DEADLINE);
    }
}

impl DeviceHeader {
    pub fn new(number: u32, rule_layout: Arc<RuleLayout>) -> Self {
        Self {
            number,
            record_index: 0,
            record_lines: 0,
            value_count: 0,
            watched: false,
            changed: false,
            time_by_device: false,
            seen_batch: 0,
            seen_index: 0,
            newest_ms: NEVER,
            received_ms: NEVER,
            matched: 0,
            rule_layout,
            rare: None,
        }
    }

    pub(crate) fn rare_mut(&mut self) -> &mut RareState {
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

    #[inline]
    pub(crate) fn set_newest(&mut self, time: MessageTime, received_ms: i64) {
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
        let number = f64::from_bits(words[slot]);
        match self.kind(slot) {
            ValueKind::Number => (!number.is_nan()).then_some(MetricValue::Number(number)),
            ValueKind::Bool => Some(MetricValue::Bool(number != 0.0)),
            ValueKind::Text => self.text(slot).map(|text| MetricValue::Text(text.into())),
        }
    }

    pub(crate) fn has_value(&self, words: &[u64], slot: usize) -> bool {
        !f64::from_bits(words[slot]).is_nan() || self.kind(slot) == ValueKind::Text
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
        (words[self.rule_layout.rule_numbers_offset() + index / 2] >> (index % 2 * 32)) as u32
    }

    pub fn last_fired(&self, words: &[u64], index: usize) -> i64 {
        words[self.rule_layout.last_fired_offset() + index].cast_signed()
    }

    pub fn matched(&self, words: &[u64], index: usize) -> bool {
        let bits = if index < WORD_BITS {
            self.matched
        } else {
            words[self.rule_layout.matched_offset() + index / WORD_BITS - 1]
        };
        bits >> (index % WORD_BITS) & 1 != 0
    }

    /// All values are numbers of the newest message.
    #[inline]
    pub(crate) fn has_plain_values(&self) -> bool {
        match &self.rare {
            None => true,
            Some(rare) => rare.kinds.is_empty() && rare.times.is_empty(),
        }
    }
}
