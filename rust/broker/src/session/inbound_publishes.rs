//! What a device publishes: rate-limited, authorised, queued, and acknowledged with its batch.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::connection_task::ConnectionTask;
use super::disconnect::DisconnectCause;
use crate::drop_reason::DropReason;
use crate::inbound_queue::{
    AckHandle, BrokerDeviceEvent, MESSAGE_OVERHEAD, QueuePermit, RawTelemetryMessage, TelemetryOrBrokerEvent,
};
use crate::topic_authorization::{self, FirmwareProfile};
use crate::wall_clock::now_ms;
use crate::wire::{Publish, reason};

impl ConnectionTask {
    /// Acknowledge a publish that is not queued, after those that came before it.
    fn acknowledge(&mut self, packet_id: u16, qos: u8, code: u8) {
        if qos > 0 {
            let sequence = self.pending_pubacks.push(packet_id);
            self.pending_pubacks.complete(sequence, code);
        }
    }

    /// Wait for the receive maximum and for the device's rate limit.
    pub(super) async fn throttle(&mut self, qos: u8) -> Result<(), DisconnectCause> {
        if qos > 0 && self.pending_pubacks.len() >= self.shared.limits.receive_maximum {
            self.wait_for_receive_maximum().await?;
        }
        let mut counted = false;
        while let Some(delay) = self.device.take_rate_token(Instant::now(), &self.shared.limits) {
            if !counted {
                self.shared.stats.throttled.increment();
                counted = true;
            }
            self.wait_for(tokio::time::sleep(delay)).await?;
        }
        Ok(())
    }

    pub(super) async fn publish(&mut self, publish: Publish) -> Result<(), DisconnectCause> {
        self.throttle(publish.qos).await?;
        if publish.dup {
            self.shared.stats.inbound_duplicates.increment();
        }
        let profile = self.credentials.profile;
        let topic = (publish.topic.len() <= self.shared.limits.max_topic)
            .then(|| topic_authorization::authorize_publish(&publish.topic, &self.device.id, profile))
            .flatten();
        let Some(topic) = topic else {
            self.drop_publish(&publish, DropReason::Forbidden, reason::NOT_AUTHORIZED);
            return Ok(());
        };
        if publish.payload.len() > self.shared.limits.max_payload {
            self.drop_publish(&publish, DropReason::Oversize, reason::QUOTA_EXCEEDED);
            return Ok(());
        }
        let bytes = MESSAGE_OVERHEAD + publish.payload.len() + topic.len();
        let Some(permit) = self.reserve(bytes, publish.qos).await? else {
            self.shared.stats.dropped_queue_full.increment();
            self.report_drop(DropReason::QueueFull);
            return Ok(());
        };
        let ack = (publish.qos > 0).then(|| AckHandle {
            sequence: self.pending_pubacks.push(publish.packet_id),
            connection: Arc::clone(&self.connection),
        });
        let message = self.inbound_message(topic, &publish.payload, publish.qos, publish.retain);
        self.shared.inbound_queue.push(message, ack, permit);
        Ok(())
    }

    /// Drop and count a publish, and acknowledge it all the same: otherwise the device would send it again and again.
    pub(super) fn drop_publish(&mut self, publish: &Publish, why: DropReason, code: u8) {
        let stats = &self.shared.stats;
        match why {
            DropReason::Forbidden => stats.dropped_forbidden.increment(),
            DropReason::Oversize => stats.dropped_oversize.increment(),
            DropReason::QueueFull => stats.dropped_queue_full.increment(),
        }
        self.report_drop(why);
        self.acknowledge(publish.packet_id, publish.qos, code);
    }

    /// The broker takes no QoS-2 publish, so there is nothing to release. The answer ends an exchange that a client remembers.
    pub(super) fn handle_pubrel(&mut self, packet_id: u16) {
        self.codec
            .pubcomp(&mut self.output, packet_id, reason::PACKET_IDENTIFIER_NOT_FOUND);
    }

    /// The payload is copied: a slice would keep the whole read buffer in memory.
    fn inbound_message(&self, topic: &str, payload: &[u8], qos: u8, retain: bool) -> TelemetryOrBrokerEvent {
        let stats = &self.shared.stats;
        let (at_ms, payload) = (now_ms(), Bytes::copy_from_slice(payload));
        stats.inbound_bytes.add(payload.len() as u64);
        if topic == "telemetry" && self.credentials.profile == FirmwareProfile::Native {
            stats.inbound_telemetry.increment();
            TelemetryOrBrokerEvent::Telemetry(RawTelemetryMessage {
                device: self.credentials.number,
                arrived_ms: at_ms,
                payload,
            })
        } else {
            stats.inbound_publish.increment();
            TelemetryOrBrokerEvent::Event(BrokerDeviceEvent::Publish {
                source: self.source(),
                topic: topic.to_owned(),
                payload,
                qos,
                retain,
                at_ms,
            })
        }
    }

    /// A permit of the inbound queue; None when it stays full for longer than a QoS-0 message waits.
    pub(super) async fn reserve(&mut self, bytes: usize, qos: u8) -> Result<Option<QueuePermit>, DisconnectCause> {
        if let Some(permit) = self.shared.inbound_queue.try_reserve(bytes) {
            return Ok(Some(permit));
        }
        self.shared.stats.waited_queue_full.increment();
        let shared = Arc::clone(&self.shared);
        let reserved = shared.inbound_queue.reserve(bytes);
        if qos == 0 {
            let limit = shared.limits.qos0_queue_timeout;
            let waited = self.wait_for(tokio::time::timeout(limit, reserved)).await?;
            return Ok(waited.ok().and_then(Result::ok));
        }
        Ok(self.wait_for(reserved).await?.ok())
    }

    fn report_drop(&self, why: DropReason) {
        let at_ms = now_ms();
        if !self.device.should_report(why, at_ms) {
            return;
        }
        if let Some(permit) = self.shared.inbound_queue.try_reserve(MESSAGE_OVERHEAD) {
            let event = BrokerDeviceEvent::Fault {
                source: self.source(),
                kind: why.name(),
                at_ms,
            };
            self.shared.inbound_queue.push_low_priority(event, permit);
        }
    }
}
