//! What the broker holds for one device, under that device's one lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use blake3::Hash;
use bytestring::ByteString;

use crate::clock::now_ms;
use crate::connection::{CloseReason, Connection, OutboundPublish, Subscription, take_undelivered};
use crate::rate_limit::TokenBucket;
use crate::topics::{FirmwareProfile, filter_matches};

/// A device's number, profile and password digest, as they were when a connection was opened.
/// `Hash` compares in constant time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CredentialSnapshot {
    pub number: u32,
    pub profile: FirmwareProfile,
    pub password_digest: Hash,
}

/// A session that outlives its connection (MQTT 5.0, 4.1).
pub(super) struct StoredSession {
    pub(super) client_id: ByteString,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) undelivered: VecDeque<OutboundPublish>,
    pub(super) expires: Instant,
}

pub(super) struct DeviceState {
    /// None before the device has credentials and after it was removed.
    pub(super) credentials: Option<CredentialSnapshot>,
    pub(super) connections: Vec<Arc<Connection>>,
    pub(super) stored_sessions: Vec<StoredSession>,
    /// Topic relative to the device's prefix, and the message.
    pub(super) retained: Vec<(Box<str>, OutboundPublish)>,
    pub(super) rate: TokenBucket,
    /// By `DropReason`: Unix milliseconds of its last report.
    pub(super) last_reports_ms: [i64; 3],
    /// Unix milliseconds; every subscription gets a later one.
    pub(super) last_subscribed_ms: i64,
}

/// What a session passes on to the client's next connection.
pub(super) type SessionState = (Vec<Subscription>, VecDeque<OutboundPublish>);

impl DeviceState {
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
        let same = |other: &Arc<Connection>| other.client_id == *client_id;
        let index = self.connections.iter().position(same)?;
        let old = self.connections.swap_remove(index);
        let mut mailbox = old.mailbox.lock();
        let session = (
            mailbox.subscriptions.clone(),
            take_undelivered(&mut mailbox),
        );
        drop(mailbox);
        old.close(CloseReason::TakenOver);
        Some(session)
    }

    /// Take the stored session of this client id, if there is one; expired sessions are dropped.
    pub(super) fn resume(&mut self, client_id: &ByteString, now: Instant) -> Option<SessionState> {
        self.stored_sessions.retain(|stored| stored.expires > now);
        let same = |stored: &StoredSession| stored.client_id == *client_id;
        let index = self.stored_sessions.iter().position(same)?;
        let stored = self.stored_sessions.swap_remove(index);
        Some((stored.subscriptions, stored.undelivered))
    }

    pub(super) fn retained_for(
        &self,
        subscription: &Subscription,
        now: Instant,
    ) -> Vec<OutboundPublish> {
        let covered = self.retained.iter().filter(|(topic, message)| {
            !message.has_expired(now) && filter_matches(&subscription.filter, topic)
        });
        let copies = covered.map(|(_, message)| OutboundPublish {
            qos: message.qos.min(subscription.qos),
            ..message.clone()
        });
        copies.collect()
    }
}
