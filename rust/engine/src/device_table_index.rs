//! The index from a device's number to its place in the table of devices. The numbers are database keys, small and dense, so a paged
//! table finds a place in one step.

use std::collections::HashMap;

use foldhash::fast::RandomState;

const INDEX_BITS: u32 = 10;
/// Numbers from here on are in a hash table, so that a single large number does not cost many empty pages.
const MAX_DENSE: u32 = 1 << 24;
const NO_PLACE: u32 = u32::MAX;

type IndexPage = Box<[u32; 1 << INDEX_BITS]>;

#[derive(Default)]
pub struct DeviceTableIndex {
    pages: Vec<Option<IndexPage>>,
    sparse: HashMap<u32, u32, RandomState>,
}

impl DeviceTableIndex {
    #[inline]
    pub fn get(&self, number: u32) -> Option<u32> {
        if number >= MAX_DENSE {
            return self.sparse.get(&number).copied();
        }
        let page = self.pages.get((number >> INDEX_BITS) as usize)?.as_ref()?;
        let place = page[(number & ((1 << INDEX_BITS) - 1)) as usize];
        (place != NO_PLACE).then_some(place)
    }

    pub fn set(&mut self, number: u32, place: u32) {
        if number >= MAX_DENSE {
            self.sparse.insert(number, place);
            return;
        }
        let page = (number >> INDEX_BITS) as usize;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([NO_PLACE; 1 << INDEX_BITS]));
        page[(number & ((1 << INDEX_BITS) - 1)) as usize] = place;
    }

    pub fn remove(&mut self, number: u32) {
        if number >= MAX_DENSE {
            self.sparse.remove(&number);
        } else if self.get(number).is_some() {
            self.set(number, NO_PLACE);
        }
    }
}
