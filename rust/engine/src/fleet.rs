//! The devices, and the way from a device's number to its place. Numbers are database keys, small and dense: a paged table finds them
//! in one step.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::device::{Device, Record};
use crate::shape::Shape;
use crate::slab::{self, Slab};

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

#[derive(Default)]
pub struct Fleet {
    pub devices: Vec<Device>,
    pub handles: Handles,
    slab: Slab,
    free: Vec<u32>,
}

impl Fleet {
    /// The device's handle; a device that is new has the shape `bare`.
    #[inline]
    pub fn handle(&mut self, number: u32, bare: &Arc<Shape>) -> u32 {
        match self.handles.get(number) {
            Some(handle) => handle,
            None => self.add(number, bare),
        }
    }

    #[cold]
    fn add(&mut self, number: u32, bare: &Arc<Shape>) -> u32 {
        let device = Device::new(number, bare.clone());
        let handle = match self.free.pop() {
            Some(handle) => {
                self.devices[handle as usize] = device;
                handle
            }
            None => {
                if self.devices.len() == self.devices.capacity() {
                    // An eighth more instead of twice as much: at a million devices the slack would be their largest cost.
                    self.devices.reserve_exact(self.devices.len() / 8 + 64);
                }
                self.devices.push(device);
                (self.devices.len() - 1) as u32
            }
        };
        self.handles.set(number, handle);
        handle
    }

    /// Forget a device; its handle is given to another.
    pub fn drop(&mut self, handle: u32, bare: &Arc<Shape>) {
        self.resize(handle, 0);
        self.handles.remove(self.devices[handle as usize].number);
        self.devices[handle as usize] = Device::new(0, bare.clone());
        self.free.push(handle);
    }

    #[inline]
    pub fn record(&mut self, handle: u32) -> Record<'_> {
        let device = &mut self.devices[handle as usize];
        let words = self.slab.words_mut(device.lines, device.place);
        Record { device, words }
    }

    #[inline]
    pub fn look(&self, handle: u32) -> (&Device, &[u64]) {
        let device = &self.devices[handle as usize];
        (device, self.slab.words(device.lines, device.place))
    }

    /// Give the device another shape and other numbers.
    pub fn reshape(&mut self, handle: u32, shape: Arc<Shape>, numbers: &[u64]) {
        self.resize(handle, slab::lines(numbers.len()));
        let record = self.record(handle);
        record.words[..numbers.len()].copy_from_slice(numbers);
        record.device.shape = shape;
    }

    fn resize(&mut self, handle: u32, lines: u16) {
        let device = &mut self.devices[handle as usize];
        if device.lines == lines {
            return;
        }
        let old = (device.lines, device.place);
        device.place = self.slab.take(lines, handle);
        device.lines = lines;
        if let Some(moved) = self.slab.give(old.0, old.1) {
            self.devices[moved as usize].place = old.1;
        }
    }

    /// Read a little of each device before any is worked on: the processor then waits for all of them at once.
    pub fn touch(&self, handles: &[u32]) {
        let heads = handles.iter().map(|handle| &self.devices[*handle as usize]);
        let sum = heads.fold(0, |sum, device| {
            sum ^ device.place ^ u32::from(device.lines)
        });
        std::hint::black_box(sum);
        let mut sum = 0;
        for handle in handles {
            let (_, words) = self.look(*handle);
            // Values and thresholds come first; the last line of a record is read only when a rule turns.
            for line in words.chunks(8).take(3) {
                sum ^= line[0];
            }
        }
        std::hint::black_box(sum);
    }
}
