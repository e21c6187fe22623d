//! A connection as other threads see it: a mailbox that they fill and that the connection's own task empties, and a waker for that task.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use bytestring::ByteString;
use parking_lot::{Mutex, MutexGuard};

use crate::topics::filter_matches;

/// Why the broker closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Another connection of the device uses the same client id (MQTT 5.0, 3.1.4).
    TakenOver,
    /// The device was removed or disconnected by the service, or its credentials changed.
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
    pub dup: bool,
    pub expires: Option<Instant>,
}

impl OutboundPublish {
    pub fn has_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
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
pub struct Mailbox {
    /// Sequence numbers of inbound publishes that the service has acknowledged.
    pub acknowledged: Vec<u64>,
    pub pending_out: VecDeque<OutboundPublish>,
    /// Sent at QoS 1 and not acknowledged by the client, with their packet ids.
    pub inflight_out: VecDeque<(u16, OutboundPublish)>,
    pub subscriptions: Vec<Subscription>,
    pub close: Option<CloseReason>,
    pub waker: Option<Waker>,
}

pub struct Connection {
    pub client_id: ByteString,
    pub mailbox: Mutex<Mailbox>,
}

/// What became of a message for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueResult {
    Queued,
    NotSubscribed,
    QueueFull,
}

impl Connection {
    /// Change the mailbox, then wake the connection's task.
    pub fn update(&self, change: impl FnOnce(&mut Mailbox)) {
        let mut mailbox = self.mailbox.lock();
        change(&mut mailbox);
        wake(mailbox);
    }

    pub fn acknowledge(&self, sequence: u64) {
        self.update(|mailbox| mailbox.acknowledged.push(sequence));
    }

    /// The first reason counts.
    pub fn close(&self, reason: CloseReason) {
        self.update(|mailbox| {
            mailbox.close.get_or_insert(reason);
        });
    }

    pub fn is_open(&self) -> bool {
        self.mailbox.lock().close.is_none()
    }

    /// Queue a message if a subscription covers `topic`, which is relative to the device's prefix.
    pub fn enqueue(&self, topic: &str, message: &OutboundPublish, limit: usize) -> EnqueueResult {
        let mut mailbox = self.mailbox.lock();
        if mailbox.close.is_some() {
            return EnqueueResult::NotSubscribed;
        }
        let covering = mailbox
            .subscriptions
            .iter()
            .filter(|subscription| filter_matches(&subscription.filter, topic));
        // Overlapping subscriptions: one copy, at the highest of their QoS (MQTT 5.0, 3.3.4).
        let Some((qos, retain)) = covering.fold(None, |best: Option<(u8, bool)>, subscription| {
            let (qos, retain) = best.unwrap_or((0, false));
            Some((
                qos.max(subscription.qos),
                retain || subscription.retain_as_published,
            ))
        }) else {
            return EnqueueResult::NotSubscribed;
        };
        if mailbox.pending_out.len() >= limit {
            return EnqueueResult::QueueFull;
        }
        let copy = OutboundPublish {
            qos: qos.min(message.qos),
            retain: retain && message.retain,
            ..message.clone()
        };
        mailbox.pending_out.push_back(copy);
        wake(mailbox);
        EnqueueResult::Queued
    }
}

/// Wake the connection's task, after the lock is released.
fn wake(mut mailbox: MutexGuard<'_, Mailbox>) {
    let waker = mailbox.waker.take();
    drop(mailbox);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// What the next connection of this session must send: first what was sent and not acknowledged, with DUP set, then the rest.
pub fn take_undelivered(mailbox: &mut Mailbox) -> VecDeque<OutboundPublish> {
    let resent = mailbox
        .inflight_out
        .drain(..)
        .map(|(_, message)| OutboundPublish {
            dup: true,
            ..message
        });
    let mut messages: VecDeque<_> = resent.collect();
    // A QoS-0 message is not kept for a later connection.
    messages.extend(
        mailbox
            .pending_out
            .drain(..)
            .filter(|message| message.qos > 0),
    );
    messages
}
