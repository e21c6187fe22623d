//! Which metrics a device reports, in the order it first did: shared by all devices that report the same.
//!
//! A layout never changes; a device that reports something new moves to another one. Values lie in slots, and a slot's name, number
//! and unit are looked up here, so that a fleet of equal devices keeps them once and close to the processor.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slot {
    pub metric: u32,
    pub name: Arc<str>,
    pub unit: Option<Arc<str>>,
}

#[derive(Debug, Default)]
pub struct Layout {
    pub slots: Vec<Slot>,
    /// `"name":` of each slot, as a compact JSON writer puts it.
    keys: Vec<Box<[u8]>>,
}

/// Above this a name is looked for in every slot only on the general path.
const SEARCHED: usize = 16;

impl Layout {
    fn new(slots: Vec<Slot>) -> Self {
        let keys = slots.iter().map(|slot| format!("\"{}\":", slot.name).into_bytes().into()).collect();
        Self { slots, keys }
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

    /// The slot whose quoted key and colon begin at `at`, and where they end. `guess` is tried first: devices repeat themselves.
    #[inline]
    pub fn key_at(&self, payload: &[u8], at: usize, guess: usize) -> Option<(usize, usize)> {
        let rest = &payload[at..];
        if let Some(key) = self.keys.get(guess)
            && rest.starts_with(key)
        {
            return Some((guess, at + key.len()));
        }
        let searched = &self.keys[..self.keys.len().min(SEARCHED)];
        let found = searched.iter().position(|key| rest.starts_with(key))?;
        Some((found, at + self.keys[found].len()))
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
