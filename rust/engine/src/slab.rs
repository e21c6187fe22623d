//! The numbers of all devices, a record each, in whole cache lines.
//!
//! Records of one size lie together without a gap: when one goes, the last takes its place. So a million devices cost no allocation
//! each, and a fleet whose rules come and go leaves no holes behind.

/// Words in a cache line of 64 bytes.
const LINE: usize = 8;
/// Lines in a page, about; large enough that its pointer is nothing beside it.
const PAGE_LINES: usize = 4096;

#[derive(Default)]
pub struct Slab {
    /// By lines a record; the first has none and stays empty.
    classes: Vec<Class>,
}

#[derive(Default)]
struct Class {
    pages: Vec<Page>,
    /// The handle of each record's device.
    owners: Vec<u32>,
    /// Records in a page, as a power of two.
    shift: u32,
}

struct Page {
    words: Box<[u64]>,
    /// The first word that begins a cache line.
    first: usize,
}

impl Page {
    fn new(words: usize) -> Self {
        let words = vec![0u64; words + LINE - 1].into_boxed_slice();
        let first = words.as_ptr().align_offset(LINE * 8) % LINE;
        Self { words, first }
    }
}

/// How many lines so many words take.
pub fn lines(words: usize) -> u16 {
    words.div_ceil(LINE).min(usize::from(u16::MAX)) as u16
}

impl Slab {
    /// A new record, full of whatever was there.
    pub fn take(&mut self, lines: u16, owner: u32) -> u32 {
        if lines == 0 {
            return 0;
        }
        let size = usize::from(lines);
        if self.classes.len() <= size {
            self.classes.resize_with(size + 1, Class::default);
        }
        let class = &mut self.classes[size];
        class.shift = (PAGE_LINES / size).max(1).ilog2();
        if class.owners.len() >> class.shift == class.pages.len() {
            class.pages.push(Page::new((size * LINE) << class.shift));
        }
        if class.owners.len() == class.owners.capacity() {
            class.owners.reserve_exact(class.owners.len() / 8 + 16);
        }
        class.owners.push(owner);
        (class.owners.len() - 1) as u32
    }

    /// Take a record back. The owner of the one that now lies there, if another does.
    pub fn give(&mut self, lines: u16, place: u32) -> Option<u32> {
        if lines == 0 {
            return None;
        }
        let last = self.classes[usize::from(lines)].owners.len() as u32 - 1;
        if place != last {
            let moved = self.words(lines, last).to_vec();
            self.words_mut(lines, place).copy_from_slice(&moved);
        }
        let class = &mut self.classes[usize::from(lines)];
        let owner = class.owners.swap_remove(place as usize);
        let moved = class.owners.get(place as usize).copied();
        // One page more than needed may stay: taking and giving by turns must not allocate.
        class
            .pages
            .truncate((class.owners.len() >> class.shift) + 2);
        moved.filter(|moved| *moved != owner)
    }

    #[inline]
    pub fn words(&self, lines: u16, place: u32) -> &[u64] {
        if lines == 0 {
            return &[];
        }
        let size = usize::from(lines) * LINE;
        let class = &self.classes[usize::from(lines)];
        let page = &class.pages[(place >> class.shift) as usize];
        let at = page.first + (place as usize & ((1 << class.shift) - 1)) * size;
        &page.words[at..at + size]
    }

    #[inline]
    pub fn words_mut(&mut self, lines: u16, place: u32) -> &mut [u64] {
        if lines == 0 {
            return &mut [];
        }
        let size = usize::from(lines) * LINE;
        let class = &mut self.classes[usize::from(lines)];
        let page = &mut class.pages[(place >> class.shift) as usize];
        let at = page.first + (place as usize & ((1 << class.shift) - 1)) * size;
        &mut page.words[at..at + size]
    }
}

#[cfg(test)]
mod tests {
    use super::{Slab, lines};

    #[test]
    fn the_last_record_takes_the_place_of_one_that_goes() {
        let mut slab = Slab::default();
        let count = 5_000;
        for owner in 0..count {
            assert_eq!(slab.take(3, owner), owner);
            slab.words_mut(3, owner).fill(u64::from(owner));
        }
        assert_eq!(slab.give(3, 7), Some(count - 1));
        assert_eq!(slab.words(3, 7), [u64::from(count) - 1; 24]);
        assert_eq!(slab.give(3, count - 2), None);
        assert_eq!(slab.words(3, 8), [8; 24]);
        for _ in 0..count - 2 {
            slab.give(3, 0);
        }
        assert_eq!(slab.take(3, 9), 0);
    }

    #[test]
    fn a_record_begins_a_cache_line() {
        let mut slab = Slab::default();
        for owner in 0..50 {
            let place = slab.take(lines(9), owner);
            let words = slab.words(2, place);
            assert_eq!((words.as_ptr().align_offset(64), words.len()), (0, 16));
        }
    }

    #[test]
    fn a_record_may_be_larger_than_a_page() {
        let mut slab = Slab::default();
        let size = lines(60_000);
        let (one, two) = (slab.take(size, 1), slab.take(size, 2));
        slab.words_mut(size, one).fill(1);
        slab.words_mut(size, two).fill(2);
        assert_eq!(slab.give(size, one), Some(2));
        assert_eq!(slab.words(size, one)[59_999], 2);
    }
}
