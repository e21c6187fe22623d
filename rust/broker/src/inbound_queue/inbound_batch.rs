//! A batch of inbound messages: taken together, acknowledged together.

use std::sync::Arc;

use super::device_event::BrokerDeviceEvent;
use super::message::{AckHandle, QueuedInboundMessage, RawTelemetryMessage, TelemetryOrBrokerEvent};
use crate::shared_connection_state::CloseReason;
use crate::stats::BrokerStats;

pub struct BrokerInboundBatch {
    pub telemetry: Vec<RawTelemetryMessage>,
    pub events: Vec<BrokerDeviceEvent>,
    telemetry_acks: Vec<AckHandle>,
    event_acks: Vec<AckHandle>,
    stats: Arc<BrokerStats>,
}

impl BrokerInboundBatch {
    pub(super) fn new(messages: Vec<QueuedInboundMessage>, stats: Arc<BrokerStats>) -> Self {
        let mut batch = Self {
            telemetry: Vec::new(),
            events: Vec::new(),
            telemetry_acks: Vec::new(),
            event_acks: Vec::new(),
            stats,
        };
        for queued in messages {
            match queued.message {
                TelemetryOrBrokerEvent::Telemetry(message) => {
                    batch.telemetry.push(message);
                    batch.telemetry_acks.extend(queued.ack);
                }
                TelemetryOrBrokerEvent::Event(event) => {
                    batch.events.push(event);
                    batch.event_acks.extend(queued.ack);
                }
            }
        }
        batch
    }

    /// Acknowledge every message of the batch to its device. Further calls have no effect.
    pub fn ack(&mut self) {
        self.ack_events();
        self.ack_telemetry();
    }

    pub fn ack_events(&mut self) {
        acknowledge(&mut self.event_acks, &self.stats);
    }

    pub fn ack_telemetry(&mut self) {
        acknowledge(&mut self.telemetry_acks, &self.stats);
    }

    /// Close every connection that still waits for this batch, so that its device sends the messages again.
    pub fn nack(&mut self) {
        for ack in self.event_acks.drain(..).chain(self.telemetry_acks.drain(..)) {
            self.stats.inbound_nacked.increment();
            ack.connection.close(CloseReason::BatchRejected);
        }
    }
}

fn acknowledge(acks: &mut Vec<AckHandle>, stats: &BrokerStats) {
    stats.inbound_acked.add(acks.len() as u64);
    for ack in acks.drain(..) {
        ack.connection.acknowledge(ack.sequence);
    }
}

impl Drop for BrokerInboundBatch {
    /// No device waits for ever for a batch that was never acknowledged.
    fn drop(&mut self) {
        self.nack();
    }
}
