//! Which metrics a device reports, in the order it first did: shared by all devices that report the same.
//!
//! A layout never changes; a device that reports something new moves to another one. Values lie in slots, and a slot's name, number
//! and unit are looked up here, so that a fleet of equal devices keeps them once and close to the processor.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::message::MAX_METRICS;
use crate::scratch;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slot {
    pub metric: u32,
    pub name: Arc<str>,
    pub unit: Option<Arc<str>>,
}

#[derive(Debug, Default)]
pub struct Layout {
    pub slots: Vec<Slot>,
    /// A metric has the name that units come under.
    pub reports_u: bool,
    /// A metric has a name that means something else in an envelope.
    pub reports_envelope: bool,
    /// What a reading of each slot begins with in the database.
    pub packed: Vec<scratch::Key>,
    /// Of as many slots as a message may have readings.
    keys: Vec<Key>,
}

/// `"name":` of a slot, as a compact JSON writer puts it.
#[derive(Debug)]
struct Key {
    text: Box<[u8]>,
    /// The first sixteen bytes, and the bits of them that belong to the key: one comparison instead of a call.
    head: u128,
    mask: u128,
}

const HEAD: usize = 16;

impl Key {
    fn new(name: &str) -> Self {
        let text = format!("\"{name}\":").into_bytes();
        let mut head = [0; HEAD];
        let mut mask = [0; HEAD];
        for (place, byte) in text.iter().take(HEAD).enumerate() {
            head[place] = *byte;
            mask[place] = 0xff;
        }
        Self {
            head: u128::from_le_bytes(head),
            mask: u128::from_le_bytes(mask),
            text: text.into(),
        }
    }

    #[inline(always)]
    fn begins(&self, rest: &[u8]) -> bool {
        let head = match rest.first_chunk() {
            Some(head) => u128::from_le_bytes(*head),
            None => padded(rest),
        };
        (head ^ self.head) & self.mask == 0
            && (self.text.len() <= HEAD || rest.starts_with(&self.text))
    }
}

/// The end of a payload, too short for a whole head: zeros, which no key holds, behind it.
#[inline]
fn padded(rest: &[u8]) -> u128 {
    let mut head = [0; HEAD];
    head[..rest.len()].copy_from_slice(rest);
    u128::from_le_bytes(head)
}

/// Above this a name is looked for in every slot only on the general path.
const SEARCHED: usize = 16;

impl Layout {
    fn new(slots: Vec<Slot>) -> Self {
        let named = slots.iter().take(MAX_METRICS);
        Self {
            reports_u: slots.iter().any(|slot| &*slot.name == "u"),
            reports_envelope: slots
                .iter()
                .any(|slot| ["ts", "m", "u"].contains(&&*slot.name)),
            packed: slots
                .iter()
                .map(|slot| scratch::Key::new(slot.metric))
                .collect(),
            keys: named.map(|slot| Key::new(&slot.name)).collect(),
            slots,
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|slot| &*slot.name == name)
    }

    /// Where the value begins, if the quoted key and the colon of `slot` begin at `at`.
    #[inline(always)]
    pub fn key_of(&self, payload: &[u8], at: usize, slot: usize) -> Option<usize> {
        let key = self.keys.get(slot)?;
        key.begins(payload.get(at..)?)
            .then_some(at + key.text.len())
    }

    /// The slot whose quoted key and colon begin at `at`, and where they end.
    pub fn key_at(&self, payload: &[u8], at: usize) -> Option<(usize, usize)> {
        let rest = payload.get(at..)?;
        let searched = &self.keys[..self.keys.len().min(SEARCHED)];
        let found = searched.iter().position(|key| key.begins(rest))?;
        Some((found, at + self.keys[found].text.len()))
    }
}

#[derive(Default)]
pub struct Layouts {
    known: HashMap<Vec<Slot>, Arc<Layout>, RandomState>,
    /// At this size those that no device uses are thrown out.
    sweep_at: usize,
}

impl Layouts {
    pub fn of(&mut self, slots: Vec<Slot>) -> Arc<Layout> {
        if let Some(layout) = self.known.get(&slots) {
            return layout.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, layout| Arc::strong_count(layout) > 1);
            self.sweep_at = self.known.len() * 2 + 64;
        }
        let layout = Arc::new(Layout::new(slots.clone()));
        self.known.insert(slots, layout.clone());
        layout
    }
}
