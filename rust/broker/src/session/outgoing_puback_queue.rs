//! QoS-1 publishes that were received and not acknowledged.
//!
//! Law: acknowledgements leave in the order of the publishes (MQTT 5.0, 4.6).

use std::collections::VecDeque;

struct PendingPuback {
    packet_id: u16,
    /// The reason code to acknowledge with, once it is known.
    reason: Option<u8>,
}

#[derive(Default)]
pub(super) struct OutgoingPubackQueue {
    publishes: VecDeque<PendingPuback>,
    /// Sequence number of the first publish.
    first: u64,
}

impl OutgoingPubackQueue {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.publishes.len()
    }

    /// Returns the sequence number for `complete`.
    #[inline]
    pub(super) fn push(&mut self, packet_id: u16) -> u64 {
        self.publishes.push_back(PendingPuback { packet_id, reason: None });
        self.first + self.publishes.len() as u64 - 1
    }

    #[inline]
    pub(super) fn complete(&mut self, sequence: u64, reason: u8) {
        let index = sequence.checked_sub(self.first).map(|index| index as usize);
        if let Some(publish) = index.and_then(|index| self.publishes.get_mut(index)) {
            publish.reason = Some(reason);
        }
    }

    /// `(packet id, reason)` of the first publish, if its reason is known.
    #[inline]
    pub(super) fn pop_completed(&mut self) -> Option<(u16, u8)> {
        let first = self.publishes.front()?;
        let completed = (first.packet_id, first.reason?);
        self.publishes.pop_front();
        self.first += 1;
        Some(completed)
    }
}
