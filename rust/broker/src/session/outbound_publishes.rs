//! What a device is sent, and its acknowledgements.

use std::time::Instant;

use super::connection_task::ConnectionTask;
use crate::shared_connection_state::{OutboundPublish, SharedConnectionState};
use crate::wire::Publish;

impl ConnectionTask {
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
