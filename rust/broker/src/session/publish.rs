//! What a device publishes: rate-limited, authorised, queued, and acknowledged with its batch; and what it is sent, with its
//! acknowledgements.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::connection::{ConnectionTask, DisconnectCause, Retransmission};
use crate::connection_handle::{OutboundPublish, SharedConnectionState};
use crate::inbound_queue::{
    AckHandle, BrokerDeviceEvent, FaultKind, MESSAGE_OVERHEAD, QueuePermit, RawTelemetryMessage, TelemetryOrBrokerEvent, now_ms,
};
use crate::topic_authorization::{self, FirmwareProfile};
use crate::wire::{Publish, reason};

impl ConnectionTask {
    /// Acknowledge a publish that is not queued, after those that came before it.
    fn acknowledge(&mut self, publish: &Publish, code: u8) {
        if publish.qos > 0 {
            let sequence = self.pending_pubacks.push(publish.packet_id, self.digest(publish));
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

    fn digest(&self, publish: &Publish) -> u64 {
        self.shared.digest_keys.hash_one((&publish.topic[..], &publish.payload[..]))
    }

    /// Whether the client sends again, on this connection, what is stored or about to be: the same packet id and the same bytes, with
    /// DUP. It is acknowledged once more only if its PUBACK was sent before the copy was read.
    fn is_retransmission(&mut self, publish: &Publish) -> bool {
        if !publish.dup || publish.qos == 0 {
            return false;
        }
        self.shared.stats.inbound_duplicates.increment();
        let found = self.pending_pubacks.find(publish.packet_id, self.digest(publish));
        if let Some(Retransmission::Acknowledged(code)) = found {
            self.acknowledge(publish, code);
        }
        found.is_some()
    }

    pub(super) async fn publish(&mut self, publish: Publish) -> Result<(), DisconnectCause> {
        if publish.qos > 1 {
            // The broker announces Maximum QoS 1.
            self.report(FaultKind::QosTwo, &publish.topic);
            return Err(DisconnectCause::ProtocolError(reason::QOS_NOT_SUPPORTED));
        }
        self.throttle(publish.qos).await?;
        if self.is_retransmission(&publish) {
            return Ok(());
        }
        let profile = self.credentials.profile;
        let topic = (publish.topic.len() <= self.shared.limits.max_topic)
            .then(|| topic_authorization::authorize_publish(&publish.topic, &self.device.id, profile))
            .flatten();
        let Some(topic) = topic else {
            let own = topic_authorization::relative_topic(&publish.topic, &self.device.id);
            let why = own.map_or(FaultKind::TopicNotAllowed, |_| FaultKind::Forbidden);
            self.drop_publish(&publish, why, reason::NOT_AUTHORIZED);
            return Ok(());
        };
        if publish.payload.len() > self.shared.limits.max_payload {
            self.drop_publish(&publish, FaultKind::Oversize, reason::QUOTA_EXCEEDED);
            return Ok(());
        }
        let bytes = MESSAGE_OVERHEAD + publish.payload.len() + topic.len();
        let Some(permit) = self.reserve(bytes, publish.qos).await? else {
            self.shared.stats.dropped_queue_full.increment();
            self.report(FaultKind::QueueFull, topic);
            return Ok(());
        };
        let ack = (publish.qos > 0).then(|| AckHandle {
            sequence: self.pending_pubacks.push(publish.packet_id, self.digest(&publish)),
            connection: Arc::clone(&self.connection),
        });
        let message = self.inbound_message(topic, &publish.payload, publish.qos, publish.retain);
        self.shared.inbound_queue.push(message, ack, permit);
        Ok(())
    }

    /// Drop and count a publish, and acknowledge it all the same: otherwise the device would send it again and again.
    pub(super) fn drop_publish(&mut self, publish: &Publish, why: FaultKind, code: u8) {
        let stats = &self.shared.stats;
        if why == FaultKind::Oversize {
            stats.dropped_oversize.increment();
        } else {
            stats.dropped_forbidden.increment();
        }
        self.report(why, &publish.topic);
        self.acknowledge(publish, code);
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

    /// Send the next message: first those that an earlier connection of the session sent, with DUP and the same packet id
    /// (MQTT-4.4.0-1). False when there is none.
    pub(super) fn send_next(&mut self, shared_state: &mut SharedConnectionState) -> bool {
        let sent = if let Some((packet_id, message)) = shared_state.resend.pop_front() {
            self.send(message, packet_id, true)
        } else if let Some(message) = shared_state.pending_out.pop_front() {
            let packet_id = if message.qos == 0 {
                0
            } else {
                self.next_packet_id(shared_state)
            };
            self.send(message, packet_id, false)
        } else {
            return false;
        };
        shared_state.inflight_out.extend(sent);
        true
    }

    /// Encode one message; a QoS-1 message is returned with its packet id, for the list of messages in flight.
    fn send(&mut self, message: OutboundPublish, packet_id: u16, dup: bool) -> Option<(u16, OutboundPublish)> {
        let now = Instant::now();
        if message.has_expired(now) {
            self.shared.stats.outbound_expired.increment();
            return None;
        }
        let seconds_left = message.expires.map(|expires| (expires - now).as_secs_f64().ceil() as u32);
        let publish = Publish {
            topic: message.topic.clone(),
            payload: message.payload.clone(),
            qos: message.qos,
            retain: message.retain,
            dup,
            packet_id,
            message_expiry_s: seconds_left,
        };
        let stats = &self.shared.stats;
        if self.codec.publish(&mut self.output, &publish).is_err() {
            stats.outbound_too_large.increment();
            return None;
        }
        stats.outbound_sent.increment();
        (message.qos > 0).then_some((packet_id, message))
    }

    /// The next id from 1 to 65,535, then from 1 again, that no unacknowledged message has (MQTT-2.2.1-4).
    fn next_packet_id(&mut self, shared_state: &SharedConnectionState) -> u16 {
        let taken = |id: u16| shared_state.inflight_out.iter().any(|(other, _)| *other == id);
        loop {
            self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
            if !taken(self.last_packet_id) {
                return self.last_packet_id;
            }
        }
    }

    pub(super) fn handle_puback(&mut self, packet_id: u16) {
        let mut shared_state = self.connection.shared_state.lock();
        let mut inflight = shared_state.inflight_out.iter();
        if let Some(index) = inflight.position(|(id, _)| *id == packet_id) {
            shared_state.inflight_out.remove(index);
            self.shared.stats.outbound_acked.increment();
        }
    }
}
