//! A batch of inbound messages: taken together, acknowledged together.

use std::sync::Arc;

use super::message::{AckHandle, DeviceEvent, InboundMessage, QueuedMessage, TelemetryMessage};
use crate::connection::CloseReason;
use crate::stats::Stats;

pub struct InboundBatch {
    pub telemetry: Vec<TelemetryMessage>,
    pub events: Vec<DeviceEvent>,
    acks: Vec<AckHandle>,
    stats: Arc<Stats>,
}

impl InboundBatch {
    pub(super) fn new(messages: Vec<QueuedMessage>, stats: Arc<Stats>) -> Self {
        let mut batch = Self {
            telemetry: Vec::new(),
            events: Vec::new(),
            acks: Vec::new(),
            stats,
        };
        for queued in messages {
            match queued.message {
                InboundMessage::Telemetry(message) => batch.telemetry.push(message),
                InboundMessage::Event(event) => batch.events.push(event),
            }
            batch.acks.extend(queued.ack);
        }
        batch
    }

    /// Acknowledge every message of the batch to its device. Further calls have no effect.
    pub fn ack(&mut self) {
        self.stats.inbound_acked.add(self.acks.len() as u64);
        for ack in self.acks.drain(..) {
            ack.connection.acknowledge(ack.sequence);
        }
    }

    /// Close every connection that waits for this batch, so that its device sends the messages again.
    pub fn nack(&mut self) {
        self.stats.inbound_nacked.add(self.acks.len() as u64);
        for ack in self.acks.drain(..) {
            ack.connection.close(CloseReason::BatchRejected);
        }
    }
}

impl Drop for InboundBatch {
    /// No device waits for ever for a batch that was never acknowledged.
    fn drop(&mut self) {
        self.nack();
    }
}
