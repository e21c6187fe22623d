//! All devices with the layouts they share, and the index from a device's number to its handle.
//!
//! A handle is a device's position in the table. Device numbers are database keys, small and dense, so a paged table finds a handle in
//! one step.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::device::DeviceHeader;
use crate::device_record::DeviceRecord;
use crate::metric_layout::MetricLayouts;
use crate::record_arena::{self, RecordArena};
use crate::rule_layout::{RuleLayout, RuleLayouts};

const PAGE_BITS: u32 = 10;
/// Numbers from here on are in a hash table, so that a single large number does not cost many empty pages.
const MAX_DENSE: u32 = 1 << 24;
const NO_HANDLE: u32 = u32::MAX;

type IndexPage = Box<[u32; 1 << PAGE_BITS]>;

#[derive(Default)]
pub struct HandleIndex {
    pages: Vec<Option<IndexPage>>,
    sparse: HashMap<u32, u32, RandomState>,
}

impl HandleIndex {
    #[inline]
    pub fn get(&self, number: u32) -> Option<u32> {
        if number >= MAX_DENSE {
            return self.sparse.get(&number).copied();
        }
        let page = self.pages.get((number >> PAGE_BITS) as usize)?.as_ref()?;
        let handle = page[(number & ((1 << PAGE_BITS) - 1)) as usize];
        (handle != NO_HANDLE).then_some(handle)
    }

    fn set(&mut self, number: u32, handle: u32) {
        if number >= MAX_DENSE {
            self.sparse.insert(number, handle);
            return;
        }
        let page = (number >> PAGE_BITS) as usize;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([NO_HANDLE; 1 << PAGE_BITS]));
        page[(number & ((1 << PAGE_BITS) - 1)) as usize] = handle;
    }

    fn remove(&mut self, number: u32) {
        if number >= MAX_DENSE {
            self.sparse.remove(&number);
        } else if self.get(number).is_some() {
            self.set(number, NO_HANDLE);
        }
    }
}

pub struct DeviceTable {
    /// By handle.
    pub headers: Vec<DeviceHeader>,
    pub handles: HandleIndex,
    pub metric_layouts: MetricLayouts,
    pub rule_layouts: RuleLayouts,
    /// Of a device without metrics and rules.
    empty_layout: Arc<RuleLayout>,
    arena: RecordArena,
    free: Vec<u32>,
}

impl Default for DeviceTable {
    fn default() -> Self {
        let mut metric_layouts = MetricLayouts::default();
        let mut rule_layouts = RuleLayouts::default();
        Self {
            headers: Vec::new(),
            handles: HandleIndex::default(),
            empty_layout: rule_layouts.without_rules(metric_layouts.get_or_create(Vec::new())),
            metric_layouts,
            rule_layouts,
            arena: RecordArena::default(),
            free: Vec::new(),
        }
    }
}

impl DeviceTable {
    /// The device's handle; adds a new device.
    #[inline]
    pub fn handle(&mut self, number: u32) -> u32 {
        match self.handles.get(number) {
            Some(handle) => handle,
            None => self.add(number),
        }
    }

    #[cold]
    fn add(&mut self, number: u32) -> u32 {
        let header = DeviceHeader::new(number, self.empty_layout.clone());
        let handle = match self.free.pop() {
            Some(handle) => {
                self.headers[handle as usize] = header;
                handle
            }
            None => {
                if self.headers.len() == self.headers.capacity() {
                    // Grows by an eighth, not by half: with a million devices the spare capacity would be the largest cost.
                    self.headers.reserve_exact(self.headers.len() / 8 + 64);
                }
                self.headers.push(header);
                (self.headers.len() - 1) as u32
            }
        };
        self.handles.set(number, handle);
        handle
    }

    /// Another device may get the handle.
    pub fn remove(&mut self, handle: u32) {
        self.resize(handle, 0);
        self.handles.remove(self.headers[handle as usize].number);
        self.headers[handle as usize] = DeviceHeader::new(0, self.empty_layout.clone());
        self.free.push(handle);
    }

    pub fn used_handles(&self) -> impl Iterator<Item = u32> {
        let is_used = |handle: &u32| self.handles.get(self.headers[*handle as usize].number) == Some(*handle);
        (0..self.headers.len() as u32).filter(is_used)
    }

    /// Handles of all devices, by ascending number.
    pub fn handles_by_number(&self) -> Vec<u32> {
        let mut handles: Vec<u32> = self.used_handles().collect();
        handles.sort_unstable_by_key(|handle| self.headers[*handle as usize].number);
        handles
    }

    #[inline]
    pub fn record(&mut self, handle: u32) -> DeviceRecord<'_> {
        let header = &mut self.headers[handle as usize];
        let words = self.arena.words_mut(header.record_lines, header.record_index);
        DeviceRecord { header, words }
    }

    /// The device's header and the words of its record.
    #[inline]
    pub fn view(&self, handle: u32) -> (&DeviceHeader, &[u64]) {
        let header = &self.headers[handle as usize];
        let words = self.arena.words(header.record_lines, header.record_index);
        (header, words)
    }

    /// Gives the device another layout, and a record with these words.
    pub fn replace_record(&mut self, handle: u32, layout: Arc<RuleLayout>, words: &[u64]) {
        self.resize(handle, record_arena::cache_lines_for(words.len()));
        let record = self.record(handle);
        record.words[..words.len()].copy_from_slice(words);
        record.header.rule_layout = layout;
    }

    fn resize(&mut self, handle: u32, lines: u16) {
        let header = &mut self.headers[handle as usize];
        if header.record_lines == lines {
            return;
        }
        let (old_lines, old_index) = (header.record_lines, header.record_index);
        header.record_index = self.arena.allocate(lines, handle);
        header.record_lines = lines;
        if let Some(moved) = self.arena.free(old_lines, old_index) {
            self.headers[moved as usize].record_index = old_index;
        }
    }

    /// Reads a few bytes of each device, so that the processor waits for the memory of all of them at once.
    pub fn prefetch(&self, handles: &[u32]) {
        let headers = handles.iter().map(|handle| &self.headers[*handle as usize]);
        let sum = headers.fold(0, |sum, header| sum ^ header.record_index ^ u32::from(header.record_lines));
        std::hint::black_box(sum);
        let mut sum = 0;
        for handle in handles {
            let (_, words) = self.view(*handle);
            // Values and thresholds come first; the rest is read only when a rule changes.
            for line in words.chunks(8).take(3) {
                sum ^= line[0];
            }
        }
        std::hint::black_box(sum);
    }
}
