//! All devices, each at its place.
//!
//! Devices whose records have the same size lie together in pages without gaps: when one is removed, or its record changes its size,
//! the last one of that size moves to its place. So a million records need no allocation each, and rules that come and go leave no
//! holes.
//!
//! The index from a device's number to its place is a paged table: the numbers are database keys, small and dense, so a place is found
//! in one step.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use prefetch_index::prefetch_index;

use crate::device_record::{DeviceRecordHeader, EngineDeviceRecord};
use crate::metrics::{Metric, MetricInterner};
use crate::payload_parser::MAX_METRICS;

/// A place is a page's number times `PAGE_DEVICES` plus the position in that page.
const PAGE_BITS: u32 = 8;
const PAGE_DEVICES: usize = 1 << PAGE_BITS;
const LINE_WORDS: usize = 8;

/// Up to `PAGE_DEVICES` devices whose records have `size` words.
#[derive(Default)]
struct DeviceTablePage {
    size: usize,
    headers: Vec<DeviceRecordHeader>,
    words: Vec<u64>,
}

#[derive(Default)]
pub struct DeviceTable {
    pub metrics: MetricInterner,
    index: DeviceTableIndex,
    pages: Vec<DeviceTablePage>,
    /// By size the numbers of its pages; all are full but the last.
    classes: HashMap<usize, Vec<u32>, RandomState>,
    free_pages: Vec<u32>,
    len: usize,
}

fn split(place: u32) -> (usize, usize) {
    ((place >> PAGE_BITS) as usize, place as usize & (PAGE_DEVICES - 1))
}

impl DeviceTable {
    #[inline]
    pub fn find(&self, number: u32) -> Option<u32> {
        self.index.get(number)
    }

    /// The device's place; adds a new device.
    #[inline]
    pub fn place(&mut self, number: u32) -> u32 {
        match self.index.get(number) {
            Some(place) => place,
            None => {
                self.len += 1;
                self.put(DeviceRecordHeader::new(number), &[])
            }
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// All devices.
    pub fn headers(&self) -> impl Iterator<Item = &DeviceRecordHeader> {
        self.pages.iter().flat_map(|page| &page.headers)
    }

    #[inline]
    pub fn header(&self, place: u32) -> &DeviceRecordHeader {
        let (page, at) = split(place);
        &self.pages[page].headers[at]
    }

    #[inline]
    pub fn record(&mut self, place: u32) -> EngineDeviceRecord<'_> {
        let (page, at) = split(place);
        let page = &mut self.pages[page];
        let words = &mut page.words[at * page.size..][..page.size];
        EngineDeviceRecord {
            header: &mut page.headers[at],
            words,
        }
    }

    /// The device's header and the words of its record.
    #[inline]
    pub fn view(&self, place: u32) -> (&DeviceRecordHeader, &[u64]) {
        let (page, at) = split(place);
        let page = &self.pages[page];
        (&page.headers[at], &page.words[at * page.size..][..page.size])
    }

    #[inline]
    pub fn metrics_of(&self, place: u32) -> DeviceMetricSlots<'_> {
        let (header, words) = self.view(place);
        DeviceMetricSlots {
            header,
            words,
            table: &self.metrics,
        }
    }

    pub fn remove(&mut self, number: u32) {
        if let Some(place) = self.index.get(number) {
            self.take(place);
            self.index.remove(number);
            self.len -= 1;
        }
    }

    /// Gives the device a record of these words, whose counts its header has already; returns its new place.
    pub fn replace_record(&mut self, place: u32, words: &[u64]) -> u32 {
        if self.pages[split(place).0].size == words.len() {
            self.record(place).words.copy_from_slice(words);
            return place;
        }
        let header = self.take(place);
        self.put(header, words)
    }

    /// Adds a device whose number has no place, or a former one.
    fn put(&mut self, header: DeviceRecordHeader, words: &[u64]) -> u32 {
        let pages = self.classes.entry(words.len()).or_default();
        let open = pages.last().copied();
        let open = open.filter(|page| self.pages[*page as usize].headers.len() < PAGE_DEVICES);
        let number = open.unwrap_or_else(|| {
            let number = self.free_pages.pop().unwrap_or_else(|| {
                self.pages.push(DeviceTablePage::default());
                (self.pages.len() - 1) as u32
            });
            let page = &mut self.pages[number as usize];
            page.size = words.len();
            if !pages.is_empty() {
                page.headers.reserve_exact(PAGE_DEVICES);
                page.words.reserve_exact(PAGE_DEVICES * words.len());
            }
            pages.push(number);
            number
        });
        let page = &mut self.pages[number as usize];
        let place = number << PAGE_BITS | page.headers.len() as u32;
        self.index.set(header.number, place);
        page.headers.push(header);
        page.words.extend_from_slice(words);
        place
    }

    /// Takes the device out of its page; the index still has its number.
    fn take(&mut self, place: u32) -> DeviceRecordHeader {
        let (page, at) = split(place);
        let size = self.pages[page].size;
        let pages = self.classes.get_mut(&size).expect("a page is of a class");
        let last = *pages.last().expect("a class has a page") as usize;
        let moved = self.pages[last].headers.pop().expect("no page of a class is empty");
        let moved_at = self.pages[last].headers.len() * size;
        let moved_words = self.pages[last].words.split_off(moved_at);
        if self.pages[last].headers.is_empty() {
            pages.pop();
            self.pages[last] = DeviceTablePage::default();
            self.free_pages.push(last as u32);
        }
        if moved.number == self.pages[page].headers.get(at).map_or(moved.number, |header| header.number) {
            return moved;
        }
        self.index.set(moved.number, place);
        self.pages[page].words[at * size..][..size].copy_from_slice(&moved_words);
        std::mem::replace(&mut self.pages[page].headers[at], moved)
    }

    /// Removes metrics that no device reports, when so many may be there that it is worth it.
    pub fn sweep_metrics(&mut self) {
        if !self.metrics.is_crowded() {
            return;
        }
        let mut used = vec![false; self.metrics.len()];
        for page in &self.pages {
            for (at, header) in page.headers.iter().enumerate() {
                for slot in 0..header.slots() {
                    used[DeviceRecordHeader::metric(&page.words[at * page.size..], slot) as usize] = true;
                }
            }
        }
        self.metrics.sweep(&used);
    }

    /// Asks the processor to bring a device into its cache, and does not wait for it.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        let Some(place) = self.index.get(number) else { return };
        let (page, at) = split(place);
        let page = &self.pages[page];
        prefetch_index(&page.headers, at);
        prefetch_index(&page.headers, at + 1);
        let begin = at * page.size;
        for line in (begin..begin + page.size).step_by(LINE_WORDS) {
            prefetch_index(&page.words, line);
        }
        prefetch_index(&page.words, begin + page.size);
    }
}

/// The metrics that a device reports, by slot.
#[derive(Clone, Copy)]
pub struct DeviceMetricSlots<'a> {
    pub header: &'a DeviceRecordHeader,
    pub words: &'a [u64],
    pub table: &'a MetricInterner,
}

/// Only the general path looks for a name in the slots from here on.
const MAX_SEARCHED: usize = 16;

impl<'a> DeviceMetricSlots<'a> {
    pub fn len(self) -> usize {
        self.header.slots()
    }

    #[inline(always)]
    pub fn id(self, slot: usize) -> u32 {
        DeviceRecordHeader::metric(self.words, slot)
    }

    pub fn ids(self) -> impl Iterator<Item = u32> + 'a {
        (0..self.len()).map(move |slot| self.id(slot))
    }

    pub fn metric(self, slot: usize) -> &'a Metric {
        self.table.get(self.id(slot))
    }

    pub fn find_slot(self, name: &str) -> Option<usize> {
        self.ids().position(|id| *self.table.get(id).name == *name)
    }

    /// Where the value begins, if the key of `slot` and its colon begin at `at`.
    #[inline(always)]
    pub fn match_key(self, payload: &[u8], at: usize, slot: usize) -> Option<usize> {
        if slot >= self.len().min(MAX_METRICS) {
            return None;
        }
        self.table.pattern(self.id(slot)).matches(payload, at)
    }

    /// The slot whose key and colon begin at `at`, and where they end.
    pub fn find_key(self, payload: &[u8], at: usize) -> Option<(usize, usize)> {
        let searched = 0..self.len().min(MAX_SEARCHED);
        searched
            .into_iter()
            .find_map(|slot| Some((slot, self.match_key(payload, at, slot)?)))
    }
}

const INDEX_BITS: u32 = 10;
/// Numbers from here on are in a hash table, so that a single large number does not cost many empty pages.
const MAX_DENSE: u32 = 1 << 24;
const NO_PLACE: u32 = u32::MAX;

type IndexPage = Box<[u32; 1 << INDEX_BITS]>;

/// From a device's number to its place.
#[derive(Default)]
struct DeviceTableIndex {
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

#[cfg(test)]
mod tests {
    use super::DeviceTable;

    #[test]
    fn the_last_record_of_a_size_moves_to_the_place_of_a_removed_one() {
        let mut table = DeviceTable::default();
        let count = 5_000;
        for number in 1..=count {
            let place = table.place(number);
            table.replace_record(place, &[u64::from(number); 3]);
        }
        for number in (1..=count).step_by(2) {
            table.remove(number);
        }
        for number in (2..=count).step_by(4) {
            let place = table.find(number).unwrap();
            table.replace_record(place, &[u64::from(number); 7]);
        }
        assert_eq!(table.len(), count as usize / 2);
        for number in 1..=count {
            let Some(place) = table.find(number) else {
                assert_eq!(number % 2, 1);
                continue;
            };
            let (header, words) = table.view(place);
            let size = if number % 4 == 2 { 7 } else { 3 };
            assert_eq!((header.number, words), (number, &vec![u64::from(number); size][..]));
        }
    }
}
