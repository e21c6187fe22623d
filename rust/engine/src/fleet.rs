//! From a device's number to its place. Numbers are database keys, small and dense: a paged table finds them in one step.

use std::collections::HashMap;

use foldhash::fast::RandomState;

const PAGE_BITS: u32 = 10;
/// Numbers from here on are looked up in a hash table, so that an odd one does not cost pages of nothing.
const DENSE: u32 = 1 << 24;
const NOWHERE: u32 = u32::MAX;

type Page = Box<[u32; 1 << PAGE_BITS]>;

#[derive(Default)]
pub struct Handles {
    pages: Vec<Option<Page>>,
    sparse: HashMap<u32, u32, RandomState>,
}

impl Handles {
    #[inline]
    pub fn get(&self, number: u32) -> Option<u32> {
        if number >= DENSE {
            return self.sparse.get(&number).copied();
        }
        let page = self.pages.get((number >> PAGE_BITS) as usize)?.as_ref()?;
        let handle = page[(number & ((1 << PAGE_BITS) - 1)) as usize];
        (handle != NOWHERE).then_some(handle)
    }

    pub fn set(&mut self, number: u32, handle: u32) {
        if number >= DENSE {
            self.sparse.insert(number, handle);
            return;
        }
        let page = (number >> PAGE_BITS) as usize;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([NOWHERE; 1 << PAGE_BITS]));
        page[(number & ((1 << PAGE_BITS) - 1)) as usize] = handle;
    }

    pub fn remove(&mut self, number: u32) -> Option<u32> {
        let handle = self.get(number)?;
        if number >= DENSE {
            self.sparse.remove(&number);
        } else {
            self.set(number, NOWHERE);
        }
        Some(handle)
    }
}
