//! The order in which what has come up is taken.
//!
//! A device's events stay in order: while some of them wait in a lane, those that follow go to the same. Telemetry may overtake them;
//! it carries its own time. A batch takes of every lane, and of events so few that it is soon stored: a reading of a device that has
//! been here all the time waits for one such batch, however many others are just coming in.

use std::collections::{HashMap, VecDeque};

use super::{Entry, Event, Haste, Item, Source};

/// One in so many of a batch may be events of devices that are here.
const PROMPT_SHARE: usize = 4;
/// … and of devices that come and go: each costs the service some hundred times what a telemetry message does.
const PATIENT_SHARE: usize = 16;
/// A burst may have grown a lane to the bound; so many places are kept when it is empty.
const KEPT: usize = 4096;

#[derive(Default)]
pub(super) struct Lanes {
    telemetry: VecDeque<Entry>,
    prompt: VecDeque<Entry>,
    patient: VecDeque<Entry>,
    /// By device number: the lane in which its events wait, and how many.
    waiting: HashMap<u32, (Haste, u32)>,
}

impl Event {
    fn source(&self) -> &Source {
        match self {
            Self::Connect { source, .. }
            | Self::Disconnect { source, .. }
            | Self::Subscribe { source, .. }
            | Self::Publish { source, .. }
            | Self::Fault { source, .. } => source,
        }
    }
}

impl Lanes {
    pub fn push(&mut self, entry: Entry, haste: Haste) {
        let Item::Event(event) = &entry.item else {
            return self.telemetry.push_back(entry);
        };
        let device = event.source().device;
        let (lane, count) = self.waiting.entry(device).or_insert((haste, 0));
        *count += 1;
        match lane {
            Haste::Prompt => self.prompt.push_back(entry),
            Haste::Patient => self.patient.push_back(entry),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.telemetry.is_empty() && self.prompt.is_empty() && self.patient.is_empty()
    }

    /// At most `limit`.
    pub fn take(&mut self, limit: usize) -> Vec<Entry> {
        let share = |lane: &VecDeque<Entry>, part: usize, left: usize| {
            lane.len().min((limit / part).max(1)).min(left)
        };
        let prompt = share(&self.prompt, PROMPT_SHARE, limit);
        let patient = share(&self.patient, PATIENT_SHARE, limit - prompt);
        let telemetry = share(&self.telemetry, 1, limit - prompt - patient);
        let mut taken = Vec::with_capacity(prompt + patient + telemetry);
        taken.extend(self.prompt.drain(..prompt));
        taken.extend(self.patient.drain(..patient));
        for entry in &taken {
            if let Item::Event(event) = &entry.item {
                release(&mut self.waiting, event.source().device);
            }
        }
        taken.extend(self.telemetry.drain(..telemetry));
        if self.is_empty() {
            for lane in [&mut self.telemetry, &mut self.prompt, &mut self.patient] {
                lane.shrink_to(KEPT);
            }
            self.waiting.shrink_to(KEPT);
        }
        taken
    }
}

fn release(waiting: &mut HashMap<u32, (Haste, u32)>, device: u32) {
    if let Some((_, count)) = waiting.get_mut(&device) {
        *count -= 1;
        if *count == 0 {
            waiting.remove(&device);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::TelemetryMessage;
    use super::*;

    fn entry(item: Item) -> Entry {
        Entry {
            item,
            receipt: None,
            cost: 1,
        }
    }

    fn said(device: u32, at_ms: i64) -> Entry {
        let source = Source {
            device,
            device_id: "dev".into(),
        };
        entry(Item::Event(Event::Fault {
            source,
            kind: "said",
            at_ms,
        }))
    }

    fn measured(device: u32) -> Entry {
        let payload = Bytes::new();
        let arrived_ms = 0;
        entry(Item::Telemetry(TelemetryMessage {
            device,
            arrived_ms,
            payload,
        }))
    }

    fn of(taken: &[Entry], device: u32) -> Vec<i64> {
        let times = taken.iter().filter_map(|entry| match &entry.item {
            Item::Event(event @ Event::Fault { at_ms, .. }) if event.source().device == device => {
                Some(*at_ms)
            }
            _ => None,
        });
        times.collect()
    }

    #[test]
    fn who_is_here_does_not_wait_behind_those_that_come() {
        let mut lanes = Lanes::default();
        (0..10_000).for_each(|device| lanes.push(said(device, 1), Haste::Patient));
        lanes.push(said(70_000, 2), Haste::Prompt);
        lanes.push(measured(70_000), Haste::Prompt);
        let first = lanes.take(1_600);
        assert_eq!(of(&first, 70_000), [2]);
        assert!(
            first
                .iter()
                .any(|entry| matches!(entry.item, Item::Telemetry(_)))
        );
        assert_eq!(first.len(), 100 + 2);
    }

    #[test]
    fn the_events_of_one_device_stay_in_order_whatever_their_haste() {
        let mut lanes = Lanes::default();
        (0..200).for_each(|device| lanes.push(said(device, 0), Haste::Patient));
        for at_ms in 1..50 {
            let haste = if at_ms % 3 == 0 {
                Haste::Patient
            } else {
                Haste::Prompt
            };
            lanes.push(said(199, at_ms), haste);
        }
        let mut order = Vec::new();
        while !lanes.is_empty() {
            let taken = lanes.take(64);
            assert!(!taken.is_empty() && taken.len() <= 64);
            order.extend(of(&taken, 199));
        }
        assert_eq!(order, (0..50).collect::<Vec<_>>());
        assert!(lanes.waiting.is_empty());
    }

    #[test]
    fn every_lane_moves_however_full_the_others_are() {
        let mut lanes = Lanes::default();
        (0..500).for_each(|device| lanes.push(said(device, 0), Haste::Prompt));
        (500..1_000).for_each(|device| lanes.push(said(device, 0), Haste::Patient));
        (0..500).for_each(|device| lanes.push(measured(device), Haste::Prompt));
        let before = (
            lanes.prompt.len(),
            lanes.patient.len(),
            lanes.telemetry.len(),
        );
        assert_eq!(lanes.take(160).len(), 160);
        let after = (
            lanes.prompt.len(),
            lanes.patient.len(),
            lanes.telemetry.len(),
        );
        assert_eq!(
            (before.0 - after.0, before.1 - after.1, before.2 - after.2),
            (40, 10, 110)
        );
    }
}
