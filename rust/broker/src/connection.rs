//! A connection as other threads see it: what they leave for its own task to pick up, and a bell to wake that task.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use bytestring::ByteString;
use parking_lot::Mutex;

use crate::topics::matches;

/// Why the broker closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The same client of the same device has come again.
    TakenOver,
    /// The device may not be here any more, or not with this password.
    Expelled,
    /// The batch with its message was given up.
    Unconfirmed,
    Stopping,
}

/// A message on its way down to one connection. Cheap to clone.
#[derive(Clone)]
pub struct Downlink {
    pub topic: ByteString,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    pub deadline: Option<Instant>,
}

impl Downlink {
    pub fn expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

#[derive(Clone)]
pub struct Subscription {
    /// Below the device's prefix.
    pub pattern: Box<str>,
    pub qos: u8,
    pub retain_as_published: bool,
}

/// What other threads leave for a connection's own task to pick up.
#[derive(Default)]
pub struct Outbox {
    pub confirmed: Vec<u64>,
    pub waiting: VecDeque<Downlink>,
    /// Sent at QoS 1 and not acknowledged yet, by packet id.
    pub inflight: VecDeque<(u16, Downlink)>,
    pub subscriptions: Vec<Subscription>,
    pub close: Option<Close>,
    pub waker: Option<Waker>,
}

pub struct Connection {
    pub client_id: ByteString,
    pub outbox: Mutex<Outbox>,
}

/// What became of a message for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Queued,
    Unheard,
    Full,
}

impl Connection {
    fn wake(outbox: &mut Outbox) -> Option<Waker> {
        outbox.waker.take()
    }

    pub fn change(&self, apply: impl FnOnce(&mut Outbox)) {
        let mut outbox = self.outbox.lock();
        apply(&mut outbox);
        let waker = Self::wake(&mut outbox);
        drop(outbox);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub fn confirm(&self, sequence: u64) {
        self.change(|outbox| outbox.confirmed.push(sequence));
    }

    pub fn close(&self, why: Close) {
        self.change(|outbox| {
            outbox.close.get_or_insert(why);
        });
    }

    pub fn is_open(&self) -> bool {
        self.outbox.lock().close.is_none()
    }

    pub fn offer(&self, below: &str, message: &Downlink, bound: usize) -> Delivery {
        let mut outbox = self.outbox.lock();
        if outbox.close.is_some() {
            return Delivery::Unheard;
        }
        let heard = outbox
            .subscriptions
            .iter()
            .filter(|subscription| matches(&subscription.pattern, below));
        // Overlapping subscriptions: once, at the highest QoS of them (MQTT 5.0, 3.3.4).
        let Some((qos, retain)) = heard.fold(None, |best: Option<(u8, bool)>, subscription| {
            let (qos, retain) = best.unwrap_or((0, false));
            Some((
                qos.max(subscription.qos),
                retain || subscription.retain_as_published,
            ))
        }) else {
            return Delivery::Unheard;
        };
        if outbox.waiting.len() >= bound {
            return Delivery::Full;
        }
        let copy = Downlink {
            qos: qos.min(message.qos),
            retain: retain && message.retain,
            ..message.clone()
        };
        outbox.waiting.push_back(copy);
        let waker = Self::wake(&mut outbox);
        drop(outbox);
        if let Some(waker) = waker {
            waker.wake();
        }
        Delivery::Queued
    }
}

/// What a successor must send: first what was sent and never acknowledged, marked so, then what had not been sent.
pub fn unsent(outbox: &mut Outbox) -> VecDeque<Downlink> {
    let again = outbox.inflight.drain(..).map(|(_, message)| Downlink {
        dup: true,
        ..message
    });
    let mut messages: VecDeque<_> = again.collect();
    // A message at QoS 0 is worth nothing later.
    messages.extend(outbox.waiting.drain(..).filter(|message| message.qos > 0));
    messages
}
