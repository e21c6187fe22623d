//! What a device is sent, and its acknowledgements.

use std::time::Instant;

use super::state::Session;
use crate::connection::OutboundPublish;
use crate::wire::Publish;

impl Session {
    /// Encode one message; a QoS-1 message is returned with its packet id, for the list of messages in flight.
    pub(super) fn send(&mut self, message: OutboundPublish) -> Option<(u16, OutboundPublish)> {
        let now = Instant::now();
        if message.has_expired(now) {
            self.shared.stats.outbound_expired.increment();
            return None;
        }
        let packet_id = if message.qos == 0 {
            0
        } else {
            self.next_packet_id()
        };
        let seconds_left = message
            .expires
            .map(|expires| (expires - now).as_secs_f64().ceil() as u32);
        let publish = Publish {
            topic: message.topic.clone(),
            payload: message.payload.clone(),
            qos: message.qos,
            retain: message.retain,
            dup: message.dup,
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

    /// 1 to 65,535, then 1 again. At most `send_quota` ids are in flight, so the next one is free.
    fn next_packet_id(&mut self) -> u16 {
        self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
        self.last_packet_id
    }

    pub(super) fn handle_puback(&mut self, packet_id: u16) {
        let mut mailbox = self.connection.mailbox.lock();
        let mut inflight = mailbox.inflight_out.iter();
        if let Some(index) = inflight.position(|(id, _)| *id == packet_id) {
            mailbox.inflight_out.remove(index);
            self.shared.stats.outbound_acked.increment();
        }
    }
}
