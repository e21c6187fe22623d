//! When time alone changes a rule: one queue of (deadline, device) whose entries are corrected when they come up.
//!
//! The deadline of a silence moves with every message. A device whose deadline moves to a later time therefore keeps its entry, and only
//! an earlier deadline adds one: many messages touch the queue at most once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::device::DeviceHeader;
use crate::rules::NO_DEADLINE;

#[derive(Default)]
pub struct TimerQueue {
    entries: BinaryHeap<Reverse<(i64, u32)>>,
}

impl TimerQueue {
    /// Adds the device's deadline, if the queue has no earlier entry of it.
    pub fn schedule(&mut self, header: &mut DeviceHeader, handle: u32) {
        let Some(rare) = header.rare.as_mut() else {
            return;
        };
        if rare.deadline_ms < rare.queued_ms {
            rare.queued_ms = rare.deadline_ms;
            self.entries.push(Reverse((rare.deadline_ms, handle)));
        }
    }

    /// The earliest deadline of all devices.
    pub fn next_deadline(&mut self, headers: &mut [DeviceHeader]) -> Option<i64> {
        while let Some(&Reverse((at_ms, handle))) = self.entries.peek() {
            let header = &mut headers[handle as usize];
            let is_current = header
                .rare
                .as_ref()
                .is_some_and(|rare| rare.queued_ms == at_ms && rare.deadline_ms == at_ms);
            if is_current {
                return Some(at_ms);
            }
            self.entries.pop();
            self.reschedule(header, handle, at_ms);
        }
        None
    }

    /// Handles of the devices with a deadline up to `now_ms`; their entries are removed.
    pub fn take_due(&mut self, headers: &mut [DeviceHeader], now_ms: i64) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some(&Reverse((at_ms, handle))) = self.entries.peek()
            && at_ms <= now_ms
        {
            self.entries.pop();
            let header = &mut headers[handle as usize];
            let is_due = header.rare.as_mut().is_some_and(|rare| {
                let is_due = rare.queued_ms == at_ms && rare.deadline_ms <= now_ms;
                if is_due {
                    rare.queued_ms = NO_DEADLINE;
                }
                is_due
            });
            if is_due {
                due.push(handle);
            } else {
                self.reschedule(header, handle, at_ms);
            }
        }
        due
    }

    /// Moves all entries by `step_ms`.
    pub fn shift(&mut self, step_ms: i64) {
        let entries = std::mem::take(&mut self.entries).into_vec();
        let shifted = entries
            .into_iter()
            .map(|Reverse((at_ms, handle))| Reverse((at_ms.saturating_add(step_ms), handle)));
        self.entries = shifted.collect();
    }

    fn reschedule(&mut self, header: &mut DeviceHeader, handle: u32, removed_ms: i64) {
        if let Some(rare) = header.rare.as_mut()
            && rare.queued_ms == removed_ms
        {
            rare.queued_ms = NO_DEADLINE;
            self.schedule(header, handle);
        }
    }
}
