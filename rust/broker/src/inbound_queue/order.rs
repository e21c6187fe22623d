//! The order in which queued messages are taken.
//!
//! Law: the events of one device stay in order. While some of them wait in one queue, later ones join the same queue. Telemetry may
//! overtake events; it carries its own time. A batch takes from every queue, and only so many events that the service stores it
//! quickly: a message of a connected device waits for one such batch, even while ten thousand others connect.

use std::collections::{HashMap, VecDeque};

use super::message::{QueuedInboundMessage, TelemetryOrBrokerEvent};

/// High-priority events are at most this fraction of a batch: one in four.
const HIGH_FRACTION: usize = 4;
/// Low-priority events are one in sixteen: each costs the service about a hundred times as much as a telemetry message.
const LOW_FRACTION: usize = 16;
/// An empty queue keeps the memory of this many entries; a burst may have grown it to the limit.
const RETAINED_CAPACITY: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboundEventPriority {
    /// What connected devices publish.
    High,
    /// Connects, disconnects, subscriptions, faults and wills.
    Low,
}

#[derive(Default)]
pub(super) struct InboundPriorityQueues {
    telemetry: VecDeque<QueuedInboundMessage>,
    high: VecDeque<QueuedInboundMessage>,
    low: VecDeque<QueuedInboundMessage>,
    /// By device number: the queue that holds its events, and how many.
    queued_events: HashMap<u32, (InboundEventPriority, u32)>,
}

impl InboundPriorityQueues {
    pub fn push(&mut self, queued: QueuedInboundMessage, priority: InboundEventPriority) {
        let TelemetryOrBrokerEvent::Event(event) = &queued.message else {
            return self.telemetry.push_back(queued);
        };
        let device = event.source().device;
        let (priority, count) = self.queued_events.entry(device).or_insert((priority, 0));
        *count += 1;
        match priority {
            InboundEventPriority::High => self.high.push_back(queued),
            InboundEventPriority::Low => self.low.push_back(queued),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.telemetry.is_empty() && self.high.is_empty() && self.low.is_empty()
    }

    /// At most `limit` messages.
    pub fn take(&mut self, limit: usize) -> Vec<QueuedInboundMessage> {
        let share = |queue: &VecDeque<QueuedInboundMessage>, fraction: usize, left: usize| {
            queue.len().min((limit / fraction).max(1)).min(left)
        };
        let high = share(&self.high, HIGH_FRACTION, limit);
        let low = share(&self.low, LOW_FRACTION, limit - high);
        let telemetry = share(&self.telemetry, 1, limit - high - low);
        let mut taken = Vec::with_capacity(high + low + telemetry);
        taken.extend(self.high.drain(..high));
        taken.extend(self.low.drain(..low));
        for queued in &taken {
            if let TelemetryOrBrokerEvent::Event(event) = &queued.message {
                self.forget_event(event.source().device);
            }
        }
        taken.extend(self.telemetry.drain(..telemetry));
        if self.is_empty() {
            for queue in [&mut self.telemetry, &mut self.high, &mut self.low] {
                queue.shrink_to(RETAINED_CAPACITY);
            }
            self.queued_events.shrink_to(RETAINED_CAPACITY);
        }
        taken
    }

    fn forget_event(&mut self, device: u32) {
        if let Some((_, count)) = self.queued_events.get_mut(&device) {
            *count -= 1;
            if *count == 0 {
                self.queued_events.remove(&device);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::inbound_queue::message::{BrokerDeviceEvent, InboundEventDevice, RawTelemetryMessage};

    fn queued(message: TelemetryOrBrokerEvent) -> QueuedInboundMessage {
        QueuedInboundMessage {
            message,
            ack: None,
            bytes: 1,
        }
    }

    fn event(device: u32, at_ms: i64) -> QueuedInboundMessage {
        let source = InboundEventDevice {
            device,
            device_id: "dev".into(),
        };
        queued(TelemetryOrBrokerEvent::Event(BrokerDeviceEvent::Fault {
            source,
            kind: "test",
            at_ms,
            topic: String::new(),
        }))
    }

    fn telemetry(device: u32) -> QueuedInboundMessage {
        queued(TelemetryOrBrokerEvent::Telemetry(RawTelemetryMessage {
            device,
            arrived_ms: 0,
            payload: Bytes::new(),
        }))
    }

    fn event_times(taken: &[QueuedInboundMessage], device: u32) -> Vec<i64> {
        let times = taken.iter().filter_map(|queued| match &queued.message {
            TelemetryOrBrokerEvent::Event(event @ BrokerDeviceEvent::Fault { at_ms, .. }) if event.source().device == device => {
                Some(*at_ms)
            }
            _ => None,
        });
        times.collect()
    }

    #[test]
    fn messages_of_connected_devices_do_not_wait_behind_connecting_devices() {
        let mut queues = InboundPriorityQueues::default();
        (0..10_000).for_each(|device| queues.push(event(device, 1), InboundEventPriority::Low));
        queues.push(event(70_000, 2), InboundEventPriority::High);
        queues.push(telemetry(70_000), InboundEventPriority::High);
        let first = queues.take(1_600);
        assert_eq!(event_times(&first, 70_000), [2]);
        assert!(
            first
                .iter()
                .any(|queued| matches!(queued.message, TelemetryOrBrokerEvent::Telemetry(_)))
        );
        assert_eq!(first.len(), 100 + 2);
    }

    #[test]
    fn the_events_of_one_device_stay_in_order_whatever_their_priority() {
        let mut queues = InboundPriorityQueues::default();
        (0..200).for_each(|device| queues.push(event(device, 0), InboundEventPriority::Low));
        for at_ms in 1..50 {
            let priority = if at_ms % 3 == 0 {
                InboundEventPriority::Low
            } else {
                InboundEventPriority::High
            };
            queues.push(event(199, at_ms), priority);
        }
        let mut order = Vec::new();
        while !queues.is_empty() {
            let taken = queues.take(64);
            assert!(!taken.is_empty() && taken.len() <= 64);
            order.extend(event_times(&taken, 199));
        }
        assert_eq!(order, (0..50).collect::<Vec<_>>());
        assert!(queues.queued_events.is_empty());
    }

    #[test]
    fn every_batch_takes_from_each_queue() {
        let mut queues = InboundPriorityQueues::default();
        (0..500).for_each(|device| queues.push(event(device, 0), InboundEventPriority::High));
        (500..1_000).for_each(|device| queues.push(event(device, 0), InboundEventPriority::Low));
        (0..500).for_each(|device| queues.push(telemetry(device), InboundEventPriority::High));
        assert_eq!(queues.take(160).len(), 160);
        let left = (queues.high.len(), queues.low.len(), queues.telemetry.len());
        assert_eq!(left, (500 - 40, 500 - 10, 500 - 110));
    }
}
