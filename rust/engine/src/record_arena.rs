//! Memory for the records of all devices, in whole cache lines.
//!
//! Records of equal size are stored together without gaps: when one is freed, the last one moves to its index. So a million records
//! need no allocation each, and rules that come and go leave no holes.

/// Words in a cache line of 64 bytes.
const LINE_WORDS: usize = 8;
/// Cache lines in a page, roughly; large enough that the page's pointer does not count.
const PAGE_LINES: usize = 4096;

#[derive(Default)]
pub struct RecordArena {
    /// By cache lines per record; the first is for empty records and stays empty.
    classes: Vec<SizeClass>,
}

#[derive(Default)]
struct SizeClass {
    pages: Vec<Page>,
    /// The handle of each record's device.
    owners: Vec<u32>,
    /// Binary logarithm of the records in a page.
    shift: u32,
}

struct Page {
    words: Box<[u64]>,
    /// The first word that begins a cache line.
    first: usize,
}

impl Page {
    fn new(words: usize) -> Self {
        let words = vec![0u64; words + LINE_WORDS - 1].into_boxed_slice();
        let first = words.as_ptr().align_offset(LINE_WORDS * 8) % LINE_WORDS;
        Self { words, first }
    }
}

/// Cache lines of a record of this many words.
pub fn cache_lines_for(words: usize) -> u16 {
    words.div_ceil(LINE_WORDS).min(usize::from(u16::MAX)) as u16
}

impl RecordArena {
    /// The index of a new record; its content is undefined.
    pub fn allocate(&mut self, cache_lines: u16, owner: u32) -> u32 {
        if cache_lines == 0 {
            return 0;
        }
        let size = usize::from(cache_lines);
        if self.classes.len() <= size {
            self.classes.resize_with(size + 1, SizeClass::default);
        }
        let class = &mut self.classes[size];
        class.shift = (PAGE_LINES / size).max(1).ilog2();
        if class.owners.len() >> class.shift == class.pages.len() {
            class.pages.push(Page::new((size * LINE_WORDS) << class.shift));
        }
        if class.owners.len() == class.owners.capacity() {
            class.owners.reserve_exact(class.owners.len() / 8 + 16);
        }
        class.owners.push(owner);
        (class.owners.len() - 1) as u32
    }

    /// Returns the owner of the record that has moved to `index`, if one has.
    pub fn free(&mut self, cache_lines: u16, index: u32) -> Option<u32> {
        if cache_lines == 0 {
            return None;
        }
        let last = self.classes[usize::from(cache_lines)].owners.len() as u32 - 1;
        if index != last {
            let moved = self.words(cache_lines, last).to_vec();
            self.words_mut(cache_lines, index).copy_from_slice(&moved);
        }
        let class = &mut self.classes[usize::from(cache_lines)];
        let owner = class.owners.swap_remove(index as usize);
        let moved = class.owners.get(index as usize).copied();
        // One spare page stays, so that alternating allocations and frees do not allocate memory.
        class.pages.truncate((class.owners.len() >> class.shift) + 2);
        moved.filter(|moved| *moved != owner)
    }

    #[inline]
    pub fn words(&self, cache_lines: u16, index: u32) -> &[u64] {
        if cache_lines == 0 {
            return &[];
        }
        let size = usize::from(cache_lines) * LINE_WORDS;
        let class = &self.classes[usize::from(cache_lines)];
        let page = &class.pages[(index >> class.shift) as usize];
        let at = page.first + (index as usize & ((1 << class.shift) - 1)) * size;
        &page.words[at..at + size]
    }

    #[inline]
    pub fn words_mut(&mut self, cache_lines: u16, index: u32) -> &mut [u64] {
        if cache_lines == 0 {
            return &mut [];
        }
        let size = usize::from(cache_lines) * LINE_WORDS;
        let class = &mut self.classes[usize::from(cache_lines)];
        let page = &mut class.pages[(index >> class.shift) as usize];
        let at = page.first + (index as usize & ((1 << class.shift) - 1)) * size;
        &mut page.words[at..at + size]
    }
}

#[cfg(test)]
mod tests {
    use super::{RecordArena, cache_lines_for};

    #[test]
    fn the_last_record_moves_to_the_index_of_a_freed_one() {
        let mut arena = RecordArena::default();
        let count = 5_000;
        for owner in 0..count {
            assert_eq!(arena.allocate(3, owner), owner);
            arena.words_mut(3, owner).fill(u64::from(owner));
        }
        assert_eq!(arena.free(3, 7), Some(count - 1));
        assert_eq!(arena.words(3, 7), [u64::from(count) - 1; 24]);
        assert_eq!(arena.free(3, count - 2), None);
        assert_eq!(arena.words(3, 8), [8; 24]);
        for _ in 0..count - 2 {
            arena.free(3, 0);
        }
        assert_eq!(arena.allocate(3, 9), 0);
    }

    #[test]
    fn a_record_begins_at_a_cache_line() {
        let mut arena = RecordArena::default();
        for owner in 0..50 {
            let index = arena.allocate(cache_lines_for(9), owner);
            let words = arena.words(2, index);
            assert_eq!((words.as_ptr().align_offset(64), words.len()), (0, 16));
        }
    }

    #[test]
    fn a_record_may_be_larger_than_a_page() {
        let mut arena = RecordArena::default();
        let size = cache_lines_for(60_000);
        let (one, two) = (arena.allocate(size, 1), arena.allocate(size, 2));
        arena.words_mut(size, one).fill(1);
        arena.words_mut(size, two).fill(2);
        assert_eq!(arena.free(size, one), Some(2));
        assert_eq!(arena.words(size, one)[59_999], 2);
    }
}
