//! What is held for one device, under its one lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytestring::ByteString;

use super::Standing;
use crate::bucket::Bucket;
use crate::clock::now_ms;
use crate::connection::{Close, Connection, Downlink, Subscription, unsent};
use crate::topics::matches;

/// A session whose client has gone but wants to find it again.
pub(super) struct Stored {
    pub(super) client_id: ByteString,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) unsent: VecDeque<Downlink>,
    pub(super) until: Instant,
}

pub(super) struct State {
    /// None once the device has been expelled, and before it has been admitted.
    pub(super) standing: Option<Standing>,
    pub(super) connections: Vec<Arc<Connection>>,
    pub(super) stored: Vec<Stored>,
    pub(super) retained: Vec<(Box<str>, Downlink)>,
    pub(super) bucket: Bucket,
    pub(super) faults: [i64; 3],
    /// Unix milliseconds, and of each time another one.
    pub(super) subscribed_ms: i64,
}

/// What a session passes on to the next of the same client.
pub(super) type Inheritance = (Vec<Subscription>, VecDeque<Downlink>);

impl State {
    pub(super) fn subscribing(&mut self) {
        self.subscribed_ms = now_ms().max(self.subscribed_ms + 1);
    }

    pub(super) fn close_all(&self, why: Close) {
        for connection in &self.connections {
            connection.close(why);
        }
    }

    /// Close the connection of the same client, if there is one.
    pub(super) fn displace(&mut self, client_id: &ByteString) -> Option<Inheritance> {
        let same = |other: &Arc<Connection>| other.client_id == *client_id;
        let index = self.connections.iter().position(same)?;
        let old = self.connections.swap_remove(index);
        let mut outbox = old.outbox.lock();
        let inheritance = (outbox.subscriptions.clone(), unsent(&mut outbox));
        drop(outbox);
        old.close(Close::TakenOver);
        Some(inheritance)
    }

    /// Take up the stored session of this client, if there is one; those whose time is over go.
    pub(super) fn resume(&mut self, client_id: &ByteString, now: Instant) -> Option<Inheritance> {
        self.stored.retain(|stored| stored.until > now);
        let same = |stored: &Stored| stored.client_id == *client_id;
        let index = self.stored.iter().position(same)?;
        let stored = self.stored.swap_remove(index);
        Some((stored.subscriptions, stored.unsent))
    }

    pub(super) fn retained_for(&self, subscription: &Subscription, now: Instant) -> Vec<Downlink> {
        let kept = self.retained.iter();
        let covered = kept
            .filter(|(below, kept)| !kept.expired(now) && matches(&subscription.pattern, below));
        let copies = covered.map(|(_, kept)| Downlink {
            qos: kept.qos.min(subscription.qos),
            ..kept.clone()
        });
        copies.collect()
    }
}
