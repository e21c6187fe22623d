//! What the broker holds for one device, under that device's one lock.

use std::sync::Arc;
use std::time::Instant;

use blake3::Hash;
use bytestring::ByteString;

use super::delayed_will::DelayedWill;
use crate::inbound_queue::InMemoryInboundQueue;
use crate::rate_limit::TokenBucket;
use crate::shared_connection_state::{CloseReason, ConnectionHandle, OutboundPublish, SessionState, Subscription};
use crate::topic_authorization::{FirmwareProfile, filter_matches};
use crate::wall_clock::now_ms;

/// A device's number, profile and password digest, as they were when a connection was opened.
/// `Hash` compares in constant time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BrokerDeviceCredentials {
    pub number: u32,
    pub profile: FirmwareProfile,
    pub password_digest: Hash,
}

/// A session that outlives its connection (MQTT 5.0, 4.1).
pub(super) struct DetachedMqttSession {
    pub(super) client_id: ByteString,
    pub(super) session: SessionState,
    /// Unix milliseconds: when its connection ended.
    pub(super) detached_ms: i64,
    pub(super) expires: Instant,
    pub(super) will: Option<DelayedWill>,
}

pub(super) struct BrokerDeviceState {
    /// None before the device has credentials and after it was removed.
    pub(super) credentials: Option<BrokerDeviceCredentials>,
    pub(super) connections: Vec<Arc<ConnectionHandle>>,
    pub(super) stored_sessions: Vec<DetachedMqttSession>,
    /// Topic relative to the device's prefix, and the message.
    pub(super) retained: Vec<(Box<str>, OutboundPublish)>,
    pub(super) rate: TokenBucket,
    /// By `DropReason`: Unix milliseconds of its last report.
    pub(super) last_reports_ms: [i64; 3],
    /// The number of the last connection: when it was opened (Unix ms), and greater than that of every earlier one.
    pub(super) last_session: i64,
    /// Unix milliseconds; every subscription gets a later one.
    pub(super) last_subscribed_ms: i64,
    /// Bytes; what the device's last connection announced. None without a limit.
    pub(super) max_packet_size: Option<u32>,
}

impl BrokerDeviceState {
    pub(super) fn mark_subscribed(&mut self) {
        self.last_subscribed_ms = now_ms().max(self.last_subscribed_ms + 1);
    }

    pub(super) fn close_all(&self, reason: CloseReason) {
        for connection in &self.connections {
            connection.close(reason);
        }
    }

    /// Close the connection that uses this client id, if there is one, and take its session.
    pub(super) fn take_over(&mut self, client_id: &ByteString) -> Option<SessionState> {
        let same = |other: &Arc<ConnectionHandle>| other.client_id == *client_id;
        let index = self.connections.iter().position(same)?;
        let old = self.connections.swap_remove(index);
        let session = SessionState::take(&mut old.shared_state.lock());
        old.close(CloseReason::TakenOver);
        Some(session)
    }

    /// Take the stored session of this client id, if there is one.
    pub(super) fn resume(&mut self, client_id: &ByteString) -> Option<DetachedMqttSession> {
        let same = |stored: &DetachedMqttSession| stored.client_id == *client_id;
        let index = self.stored_sessions.iter().position(same)?;
        Some(self.stored_sessions.swap_remove(index))
    }

    /// Drop expired sessions, and publish every will whose delay is over.
    pub(super) fn end_sessions(&mut self, now: Instant, queue: &InMemoryInboundQueue) {
        for stored in &mut self.stored_sessions {
            let due = stored.expires <= now || stored.will.as_ref().is_some_and(|will| will.due <= now);
            if let Some(will) = stored.will.take_if(|_| due) {
                will.publish(queue);
            }
        }
        self.stored_sessions.retain(|stored| stored.expires > now);
    }

    /// Store a session. When the device has too many, the oldest one ends.
    pub(super) fn store(&mut self, session: DetachedMqttSession, max_stored: usize, queue: &InMemoryInboundQueue) {
        if self.stored_sessions.len() >= max_stored {
            let ended = self.stored_sessions.remove(0);
            ended.will.into_iter().for_each(|will| will.publish(queue));
        }
        self.stored_sessions.push(session);
    }

    /// Close the connections that were silent for the longest time until a new one finds a place.
    pub(super) fn evict(&self, max_connections: usize) -> usize {
        let mut open: Vec<_> = self.connections.iter().filter(|each| each.is_open()).collect();
        let count = (open.len() + 1).saturating_sub(max_connections.max(1));
        open.sort_by_key(|connection| connection.shared_state.lock().last_received);
        for connection in &open[..count] {
            connection.close(CloseReason::Evicted);
        }
        count
    }

    pub(super) fn retained_for(&self, subscription: &Subscription, now: Instant) -> Vec<OutboundPublish> {
        let covered = self
            .retained
            .iter()
            .filter(|(topic, message)| !message.has_expired(now) && filter_matches(&subscription.filter, topic));
        let copies = covered.map(|(_, message)| OutboundPublish {
            qos: message.qos.min(subscription.qos),
            ..message.clone()
        });
        copies.collect()
    }
}
