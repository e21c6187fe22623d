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
    /// A metric has the name that units come under.
    pub reports_u: bool,
    keys: Vec<Key>,
}

/// `"name":` of a slot, as a compact JSON writer puts it.
#[derive(Debug)]
struct Key {
    text: Box<[u8]>,
    /// The first sixteen bytes as two words, with the bits that belong to the key: two comparisons instead of a call.
    words: [u64; 2],
    masks: [u64; 2],
}

const WORDS: usize = 16;

impl Key {
    fn new(name: &str) -> Self {
        let text = format!("\"{name}\":").into_bytes();
        let mut head = [0; WORDS];
        let mut mask = [0; WORDS];
        for (place, byte) in text.iter().take(WORDS).enumerate() {
            head[place] = *byte;
            mask[place] = 0xff;
        }
        Self {
            words: words(&head),
            masks: words(&mask),
            text: text.into(),
        }
    }

    #[inline]
    fn begins(&self, payload: &[u8], at: usize) -> bool {
        let Some(head) = payload.get(at..).and_then(<[u8]>::first_chunk) else {
            return payload[at..].starts_with(&self.text);
        };
        let head = words(head);
        (head[0] ^ self.words[0]) & self.masks[0] == 0
            && (head[1] ^ self.words[1]) & self.masks[1] == 0
            && (self.text.len() <= WORDS || payload[at..].starts_with(&self.text))
    }
}

#[inline]
fn words(bytes: &[u8; WORDS]) -> [u64; 2] {
    let both = u128::from_le_bytes(*bytes);
    [both as u64, (both >> 64) as u64]
}

/// Above this a name is looked for in every slot only on the general path.
const SEARCHED: usize = 16;

impl Layout {
    fn new(slots: Vec<Slot>) -> Self {
        let keys = slots.iter().map(|slot| Key::new(&slot.name)).collect();
        Self {
            reports_u: slots.iter().any(|slot| &*slot.name == "u"),
            slots,
            keys,
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

    /// The slot whose quoted key and colon begin at `at`, and where they end. `guess` is tried first: devices repeat themselves.
    #[inline]
    pub fn key_at(&self, payload: &[u8], at: usize, guess: usize) -> Option<(usize, usize)> {
        if let Some(key) = self.keys.get(guess)
            && key.begins(payload, at)
        {
            return Some((guess, at + key.text.len()));
        }
        let searched = &self.keys[..self.keys.len().min(SEARCHED)];
        let found = searched.iter().position(|key| key.begins(payload, at))?;
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
