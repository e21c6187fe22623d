//! When time alone changes a rule: one queue of (deadline, device) whose entries are corrected when they come up.
//!
//! The deadline of a silence moves with every message. A device whose deadline moves to a later time therefore keeps its entry, and only
//! an earlier deadline adds one: many messages touch the queue at most once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::compiled_rules::NO_DEADLINE;
use crate::device_record::DeviceRecordHeader;
use crate::device_table::DeviceTable;

#[derive(Default)]
pub struct TimerQueue {
    entries: BinaryHeap<Reverse<(i64, u32)>>,
}

impl TimerQueue {
    /// Adds the device's deadline, if the queue has no earlier entry of it.
    pub fn schedule(&mut self, header: &mut DeviceRecordHeader) {
        let Some(rare) = header.rare.as_mut() else {
            return;
        };
        if rare.deadline_ms < rare.queued_ms {
            rare.queued_ms = rare.deadline_ms;
            self.entries.push(Reverse((rare.deadline_ms, header.number)));
        }
    }

    /// The earliest deadline of all devices.
    pub fn next_deadline(&mut self, devices: &mut DeviceTable) -> Option<i64> {
        while let Some(&Reverse((at_ms, number))) = self.entries.peek() {
            let place = devices.find(number);
            let rare = place.and_then(|place| devices.header(place).rare.as_ref());
            if rare.is_some_and(|rare| rare.queued_ms == at_ms && rare.deadline_ms == at_ms) {
                return Some(at_ms);
            }
            self.entries.pop();
            if let Some(place) = place {
                self.reschedule(devices.record(place).header, at_ms);
            }
        }
        None
    }

    /// The devices with a deadline up to `now_ms`, by number; their entries are removed.
    pub fn take_due(&mut self, devices: &mut DeviceTable, now_ms: i64) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some(&Reverse((at_ms, number))) = self.entries.peek()
            && at_ms <= now_ms
        {
            self.entries.pop();
            let Some(place) = devices.find(number) else { continue };
            let header = devices.record(place).header;
            let is_due = header.rare.as_mut().is_some_and(|rare| {
                let is_due = rare.queued_ms == at_ms && rare.deadline_ms <= now_ms;
                if is_due {
                    rare.queued_ms = NO_DEADLINE;
                }
                is_due
            });
            if is_due {
                due.push(number);
            } else {
                self.reschedule(header, at_ms);
            }
        }
        due.sort_unstable();
        due
    }

    /// Moves all entries by `step_ms`.
    pub fn shift(&mut self, step_ms: i64) {
        let entries = std::mem::take(&mut self.entries).into_vec();
        let shifted = entries
            .into_iter()
            .map(|Reverse((at_ms, number))| Reverse((at_ms.saturating_add(step_ms), number)));
        self.entries = shifted.collect();
    }

    fn reschedule(&mut self, header: &mut DeviceRecordHeader, removed_ms: i64) {
        if let Some(rare) = header.rare.as_mut()
            && rare.queued_ms == removed_ms
        {
            rare.queued_ms = NO_DEADLINE;
            self.schedule(header);
        }
    }
}
