//! When time alone changes a rule. One queue of (due, device); entries are corrected when they come up, not when they change.
//!
//! A silent condition's deadline moves with every message. So a device whose deadline moves later keeps its old entry, and only one
//! that moves earlier is queued anew: the queue is touched at most once for many messages.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::device::Device;
use crate::rules::NO_DUE;

#[derive(Default)]
pub struct Timers {
    queue: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Timers {
    /// After `device.cold.due` was set.
    pub fn note(&mut self, device: &mut Device, handle: u32) {
        let Some(cold) = device.cold.as_mut() else {
            return;
        };
        if cold.due < cold.queued {
            cold.queued = cold.due;
            self.queue.push(Reverse((cold.due, handle)));
        }
    }

    /// The earliest deadline there is.
    pub fn next(&mut self, devices: &mut [Device]) -> Option<i64> {
        while let Some(&Reverse((at, handle))) = self.queue.peek() {
            let device = &mut devices[handle as usize];
            let exact = device
                .cold
                .as_ref()
                .is_some_and(|cold| cold.queued == at && cold.due == at);
            if exact {
                return Some(at);
            }
            self.queue.pop();
            self.requeue(device, handle, at);
        }
        None
    }

    /// Handles of the devices with a deadline up to `now`, taken off the queue.
    pub fn due(&mut self, devices: &mut [Device], now: i64) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some(&Reverse((at, handle))) = self.queue.peek()
            && at <= now
        {
            self.queue.pop();
            let device = &mut devices[handle as usize];
            let ripe = device.cold.as_mut().is_some_and(|cold| {
                let ripe = cold.queued == at && cold.due <= now;
                if ripe {
                    cold.queued = NO_DUE;
                }
                ripe
            });
            if ripe {
                due.push(handle);
            } else {
                self.requeue(device, handle, at);
            }
        }
        due
    }

    fn requeue(&mut self, device: &mut Device, handle: u32, popped: i64) {
        if let Some(cold) = device.cold.as_mut()
            && cold.queued == popped
        {
            cold.queued = NO_DUE;
            self.note(device, handle);
        }
    }
}
