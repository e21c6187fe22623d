//! A connection as other threads see it: what they leave for its task, which empties it, and a waker for that task.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use bytestring::ByteString;
use parking_lot::{Mutex, MutexGuard};

use crate::topic_authorization::filter_matches;

/// Why the broker closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Another connection of the device uses the same client id (MQTT 5.0, 3.1.4), here or at another instance.
    TakenOver,
    /// The device has opened more connections than it may have, and this one was silent for the longest time.
    Evicted,
    /// The service removed the device, or changed its credentials.
    Revoked,
    /// The service rejected the batch that holds a message of this connection.
    BatchRejected,
    ShuttingDown,
}

/// A message queued for one connection, or retained. Cheap to clone.
#[derive(Clone)]
pub struct OutboundPublish {
    pub topic: ByteString,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    pub expires: Option<Instant>,
}

impl OutboundPublish {
    pub fn has_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Bytes of the PUBLISH to an MQTT 5 client (MQTT 5.0, 2.1.4 and 3.3.2).
    fn packet_size(&self, qos: u8) -> usize {
        let packet_id = if qos > 0 { 2 } else { 0 };
        let properties = if self.expires.is_some() { 6 } else { 1 };
        let remaining = 2 + self.topic.len() + packet_id + properties + self.payload.len();
        let length_bytes = match remaining {
            0..=0x7f => 1,
            0x80..=0x3fff => 2,
            0x4000..=0x1f_ffff => 3,
            _ => 4,
        };
        1 + length_bytes + remaining
    }
}

#[derive(Clone)]
pub struct Subscription {
    /// Relative to the device's prefix.
    pub filter: Box<str>,
    pub qos: u8,
    pub retain_as_published: bool,
}

/// What other threads leave for the connection's own task.
#[derive(Default)]
pub struct SharedConnectionState {
    /// Sequence numbers of inbound publishes that the service has acknowledged.
    pub acknowledged: Vec<u64>,
    pub pending_out: VecDeque<OutboundPublish>,
    /// Sent at QoS 1 and not acknowledged by the client, with their packet ids.
    pub inflight_out: VecDeque<(u16, OutboundPublish)>,
    /// Sent to an earlier connection of the session and not acknowledged; to be sent again with the same packet ids.
    pub resend: VecDeque<(u16, OutboundPublish)>,
    pub subscriptions: Vec<Subscription>,
    pub close: Option<CloseReason>,
    /// When the client last sent bytes.
    pub last_received: Option<Instant>,
    pub waker: Option<Waker>,
}

pub struct ConnectionHandle {
    pub client_id: ByteString,
    /// Bytes; the largest packet that the client accepts. None without a limit.
    pub max_packet_size: Option<u32>,
    /// Unix milliseconds; 0 for a new session. Until then the resumed session was connected: what was sent to it before is
    /// acknowledged, or the broker sends it again.
    pub session_held_until_ms: i64,
    pub shared_state: Mutex<SharedConnectionState>,
}

/// What became of a message for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueResult {
    Queued,
    NotSubscribed,
    QueueFull,
    /// The packet is larger than the client's maximum packet size.
    TooLarge,
}

impl ConnectionHandle {
    /// Change the shared state, then wake the connection's task.
    pub fn update(&self, change: impl FnOnce(&mut SharedConnectionState)) {
        let mut shared_state = self.shared_state.lock();
        change(&mut shared_state);
        wake(shared_state);
    }

    pub fn acknowledge(&self, sequence: u64) {
        self.update(|shared_state| shared_state.acknowledged.push(sequence));
    }

    /// The first reason counts.
    pub fn close(&self, reason: CloseReason) {
        self.update(|shared_state| {
            shared_state.close.get_or_insert(reason);
        });
    }

    pub fn is_open(&self) -> bool {
        self.shared_state.lock().close.is_none()
    }

    /// Queue a message if a subscription covers `topic`, which is relative to the device's prefix.
    pub fn enqueue(&self, topic: &str, message: &OutboundPublish, limit: usize) -> EnqueueResult {
        let mut shared_state = self.shared_state.lock();
        if shared_state.close.is_some() {
            return EnqueueResult::NotSubscribed;
        }
        let covering = shared_state
            .subscriptions
            .iter()
            .filter(|subscription| filter_matches(&subscription.filter, topic));
        // Overlapping subscriptions: one copy, at the highest of their QoS (MQTT 5.0, 3.3.4).
        let Some((qos, retain)) = covering.fold(None, |best: Option<(u8, bool)>, subscription| {
            let (qos, retain) = best.unwrap_or((0, false));
            Some((qos.max(subscription.qos), retain || subscription.retain_as_published))
        }) else {
            return EnqueueResult::NotSubscribed;
        };
        let qos = qos.min(message.qos);
        if !self.accepts(message, qos) {
            return EnqueueResult::TooLarge;
        }
        if shared_state.pending_out.len() >= limit {
            return EnqueueResult::QueueFull;
        }
        let copy = OutboundPublish {
            qos,
            retain: retain && message.retain,
            ..message.clone()
        };
        shared_state.pending_out.push_back(copy);
        wake(shared_state);
        EnqueueResult::Queued
    }

    fn accepts(&self, message: &OutboundPublish, qos: u8) -> bool {
        let fits = |limit| message.packet_size(qos) <= limit as usize;
        self.max_packet_size.is_none_or(fits)
    }
}

/// Wake the connection's task, after the lock is released.
fn wake(mut shared_state: MutexGuard<'_, SharedConnectionState>) {
    let waker = shared_state.waker.take();
    drop(shared_state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// What a session passes on to the client's next connection (MQTT 5.0, 4.1).
#[derive(Default)]
pub struct SessionState {
    pub subscriptions: Vec<Subscription>,
    pub resend: VecDeque<(u16, OutboundPublish)>,
    pub pending: VecDeque<OutboundPublish>,
}

impl SessionState {
    /// Take the session out of a connection. A QoS-0 message is not kept for a later connection.
    pub fn take(shared_state: &mut SharedConnectionState) -> Self {
        let mut resend = std::mem::take(&mut shared_state.inflight_out);
        resend.append(&mut shared_state.resend);
        let mut pending = std::mem::take(&mut shared_state.pending_out);
        pending.retain(|message| message.qos > 0);
        Self {
            subscriptions: std::mem::take(&mut shared_state.subscriptions),
            resend,
            pending,
        }
    }

    /// Messages that the client has not acknowledged.
    pub fn undelivered(&self) -> impl Iterator<Item = &OutboundPublish> {
        let sent = self.resend.iter().map(|(_, message)| message);
        sent.chain(&self.pending)
    }

    /// Whether every undelivered message fits into a packet of this size.
    pub fn fits(&self, max_packet_size: Option<u32>) -> bool {
        max_packet_size.is_none_or(|limit| {
            self.undelivered()
                .all(|message| message.packet_size(message.qos) <= limit as usize)
        })
    }
}
