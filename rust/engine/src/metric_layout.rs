//! Which metrics a device reports, in the order of their first report: one layout for all devices that report the same.
//!
//! A layout never changes; a device that reports a new metric or unit moves to another one. A slot is a metric's position in the
//! layout and in the device's record. A fleet of equal devices stores names, numbers and units once, in the processor's cache.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::payload_parser::MAX_METRICS;
use crate::row_writer::EncodedKey;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetricSlot {
    pub metric: u32,
    pub name: Arc<str>,
    pub unit: Option<Arc<str>>,
}

#[derive(Debug, Default)]
pub struct MetricLayout {
    pub slots: Vec<MetricSlot>,
    /// A metric is named `u`, like the member that holds units.
    pub reports_u: bool,
    /// A metric is named like a member of the envelope: `ts`, `m` or `u`.
    pub reports_envelope: bool,
    /// By slot; the first bytes of its readings in the database.
    pub encoded_keys: Vec<EncodedKey>,
    /// By slot; only as many as a message may have readings.
    key_patterns: Vec<JsonKeyPattern>,
}

/// `"name":` as a compact JSON writer puts it.
#[derive(Debug)]
struct JsonKeyPattern {
    text: Box<[u8]>,
    /// The first 16 bytes, and a mask of those that belong to the key: one comparison instead of a call of memcmp.
    prefix: u128,
    mask: u128,
}

const PREFIX: usize = 16;

impl JsonKeyPattern {
    fn new(name: &str) -> Self {
        let text = format!("\"{name}\":").into_bytes();
        let mut prefix = [0; PREFIX];
        let mut mask = [0; PREFIX];
        for (index, byte) in text.iter().take(PREFIX).enumerate() {
            prefix[index] = *byte;
            mask[index] = 0xff;
        }
        Self {
            prefix: u128::from_le_bytes(prefix),
            mask: u128::from_le_bytes(mask),
            text: text.into(),
        }
    }

    #[inline(always)]
    fn is_prefix_of(&self, rest: &[u8]) -> bool {
        let prefix = match rest.first_chunk() {
            Some(prefix) => u128::from_le_bytes(*prefix),
            None => zero_padded(rest),
        };
        (prefix ^ self.prefix) & self.mask == 0 && (self.text.len() <= PREFIX || rest.starts_with(&self.text))
    }
}

/// The end of a payload that is shorter than a prefix, padded with zeros, which no key contains.
#[inline]
fn zero_padded(rest: &[u8]) -> u128 {
    let mut prefix = [0; PREFIX];
    prefix[..rest.len()].copy_from_slice(rest);
    u128::from_le_bytes(prefix)
}

/// Only the general path looks for a name in the slots from here on.
const MAX_SEARCHED: usize = 16;

impl MetricLayout {
    fn new(slots: Vec<MetricSlot>) -> Self {
        let searchable = slots.iter().take(MAX_METRICS);
        Self {
            reports_u: slots.iter().any(|slot| &*slot.name == "u"),
            reports_envelope: slots.iter().any(|slot| ["ts", "m", "u"].contains(&&*slot.name)),
            encoded_keys: slots.iter().map(|slot| EncodedKey::new(slot.metric)).collect(),
            key_patterns: searchable.map(|slot| JsonKeyPattern::new(&slot.name)).collect(),
            slots,
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn find_slot(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|slot| &*slot.name == name)
    }

    /// Where the value begins, if the key of `slot` and its colon begin at `at`.
    #[inline(always)]
    pub fn match_key(&self, payload: &[u8], at: usize, slot: usize) -> Option<usize> {
        let key = self.key_patterns.get(slot)?;
        key.is_prefix_of(payload.get(at..)?).then_some(at + key.text.len())
    }

    /// The slot whose key and colon begin at `at`, and where they end.
    pub fn find_key(&self, payload: &[u8], at: usize) -> Option<(usize, usize)> {
        let rest = payload.get(at..)?;
        let searched = &self.key_patterns[..self.key_patterns.len().min(MAX_SEARCHED)];
        let found = searched.iter().position(|key| key.is_prefix_of(rest))?;
        Some((found, at + self.key_patterns[found].text.len()))
    }
}

/// All layouts in use.
#[derive(Default)]
pub struct MetricLayouts {
    layouts: HashMap<Vec<MetricSlot>, Arc<MetricLayout>, RandomState>,
    /// At this size, layouts that no device uses are removed.
    sweep_at: usize,
}

impl MetricLayouts {
    pub fn get_or_create(&mut self, slots: Vec<MetricSlot>) -> Arc<MetricLayout> {
        if let Some(layout) = self.layouts.get(&slots) {
            return layout.clone();
        }
        if self.layouts.len() >= self.sweep_at {
            self.layouts.retain(|_, layout| Arc::strong_count(layout) > 1);
            self.sweep_at = self.layouts.len() * 2 + 64;
        }
        let layout = Arc::new(MetricLayout::new(slots.clone()));
        self.layouts.insert(slots, layout.clone());
        layout
    }
}
