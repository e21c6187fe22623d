//! One registered device: its credentials, its open connections, and what is stored for it.
//!
//! Law: a client id is looked up within its device only, so two devices that choose the same one do not affect each other.

mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use blake3::Hash;
use bytestring::ByteString;
use parking_lot::Mutex;

use self::state::{DeviceState, StoredSession};
use crate::connection::{
    CloseReason, Connection, EnqueueResult, Mailbox, OutboundPublish, Subscription,
    take_undelivered,
};
use crate::drop_reason::DropReason;
use crate::limits::Limits;
use crate::rate_limit::TokenBucket;
use crate::stats::QueueDepths;

pub use self::state::CredentialSnapshot;

pub struct RegisteredDevice {
    pub id: Arc<str>,
    state: Mutex<DeviceState>,
}

pub enum AttachError {
    /// The password has changed, or the device was removed, since authentication.
    CredentialsChanged,
    TooManyConnections,
}

pub struct AttachedConnection {
    pub connection: Arc<Connection>,
    pub session_present: bool,
    pub took_over: bool,
}

const DROP_REPORT_INTERVAL_MS: i64 = 60_000;

impl RegisteredDevice {
    pub fn new(id: Arc<str>, limits: &Limits) -> Self {
        let state = DeviceState {
            credentials: None,
            connections: Vec::new(),
            stored_sessions: Vec::new(),
            retained: Vec::new(),
            rate: TokenBucket::full(limits.rate_burst),
            last_reports_ms: [i64::MIN / 2; 3],
            last_subscribed_ms: 0,
        };
        Self {
            id,
            state: Mutex::new(state),
        }
    }

    /// Connections that were opened with other credentials are closed.
    pub fn set_credentials(&self, credentials: CredentialSnapshot) {
        let mut state = self.state.lock();
        if state.credentials != Some(credentials) {
            state.close_all(CloseReason::Revoked);
            state.credentials = Some(credentials);
        }
    }

    /// Close all connections and drop everything stored.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.credentials = None;
        state.retained.clear();
        state.stored_sessions.clear();
        state.close_all(CloseReason::Revoked);
    }

    /// Whether there was a connection to close.
    pub fn close_all(&self, reason: CloseReason) -> bool {
        let state = self.state.lock();
        state.close_all(reason);
        !state.connections.is_empty()
    }

    /// None when the password is another.
    pub fn credentials(&self, password_digest: Hash) -> Option<CredentialSnapshot> {
        self.state
            .lock()
            .credentials
            .filter(|credentials| credentials.password_digest == password_digest)
    }

    pub fn is_connected(&self) -> bool {
        self.state
            .lock()
            .connections
            .iter()
            .any(|connection| connection.is_open())
    }

    /// Add a connection to the device, taking over or resuming the client's session unless `clean_start`. `announce` runs under the
    /// device's lock, so the connect event precedes every other event of the connection.
    pub fn attach(
        &self,
        credentials: CredentialSnapshot,
        client_id: ByteString,
        clean_start: bool,
        limits: &Limits,
        announce: impl FnOnce(),
    ) -> Result<AttachedConnection, AttachError> {
        let mut state = self.state.lock();
        if state.credentials != Some(credentials) {
            return Err(AttachError::CredentialsChanged);
        }
        let taken_over = state.take_over(&client_id);
        let took_over = taken_over.is_some();
        if !took_over && state.connections.len() >= limits.max_connections_per_device {
            return Err(AttachError::TooManyConnections);
        }
        let stored = state.resume(&client_id, Instant::now());
        let session = taken_over.or(stored).filter(|_| !clean_start);
        let session_present = session.is_some();
        let (subscriptions, pending_out) = session.unwrap_or_default();
        if !subscriptions.is_empty() {
            state.mark_subscribed();
        }
        let mailbox = Mailbox {
            subscriptions,
            pending_out,
            ..Mailbox::default()
        };
        let connection = Arc::new(Connection {
            client_id,
            mailbox: Mutex::new(mailbox),
        });
        state.connections.push(Arc::clone(&connection));
        announce();
        Ok(AttachedConnection {
            connection,
            session_present,
            took_over,
        })
    }

    /// Remove a connection from the device, unless another has taken it over. The session is stored for `session_expiry`. `announce`
    /// runs under the device's lock; its argument says whether the device has no connection left.
    pub fn detach(
        &self,
        connection: &Arc<Connection>,
        session_expiry: Duration,
        limits: &Limits,
        announce: impl FnOnce(bool),
    ) {
        let mut state = self.state.lock();
        let same = |other: &Arc<Connection>| Arc::ptr_eq(other, connection);
        let Some(index) = state.connections.iter().position(same) else {
            return;
        };
        state.connections.swap_remove(index);
        let max_stored = limits.max_stored_sessions_per_device;
        if !session_expiry.is_zero() && state.credentials.is_some() && max_stored > 0 {
            let mut mailbox = connection.mailbox.lock();
            let stored = StoredSession {
                client_id: connection.client_id.clone(),
                subscriptions: std::mem::take(&mut mailbox.subscriptions),
                undelivered: take_undelivered(&mut mailbox),
                expires: Instant::now() + session_expiry,
            };
            drop(mailbox);
            if state.stored_sessions.len() >= max_stored {
                state.stored_sessions.remove(0);
            }
            state.stored_sessions.push(stored);
        }
        announce(state.connections.is_empty());
    }

    /// Take one message from the device's rate limit: None when it may pass, else how long to wait before the next attempt.
    pub fn take_rate_token(&self, now: Instant, limits: &Limits) -> Option<Duration> {
        if limits.rate_per_second <= 0.0 {
            return None;
        }
        self.state
            .lock()
            .rate
            .take(now, limits.rate_per_second, limits.rate_burst)
    }

    /// Whether the last report of this reason is at least a minute old; if so, now is the last report.
    pub fn should_report(&self, reason: DropReason, now_ms: i64) -> bool {
        let last = &mut self.state.lock().last_reports_ms[reason as usize];
        let due = now_ms - *last >= DROP_REPORT_INTERVAL_MS;
        if due {
            *last = now_ms;
        }
        due
    }

    /// When a connection of the device last added a subscription (Unix ms; 0: never). Its subscribe event has the same time.
    pub fn last_subscribed_ms(&self) -> i64 {
        self.state.lock().last_subscribed_ms
    }

    /// Add subscriptions, each with its retain handling, and queue the retained messages that they cover, in one step for every
    /// publisher. Returns how many retained messages found no place: repeated SUBSCRIBE packets do not grow the queue beyond its
    /// limit. `has_new`: some of the subscriptions are new and will be announced.
    pub fn subscribe(
        &self,
        connection: &Connection,
        subscriptions: Vec<(Subscription, u8)>,
        has_new: bool,
        limits: &Limits,
    ) -> usize {
        let mut state = self.state.lock();
        if has_new {
            state.mark_subscribed();
        }
        let (now, mut left_out) = (Instant::now(), 0);
        connection.update(|mailbox| {
            for (subscription, retain_handling) in subscriptions {
                let existing = mailbox
                    .subscriptions
                    .iter()
                    .position(|other| other.filter == subscription.filter);
                if retain_handling == 0 || (retain_handling == 1 && existing.is_none()) {
                    let free = limits
                        .outbound_queue
                        .saturating_sub(mailbox.pending_out.len());
                    let copies = state.retained_for(&subscription, now);
                    left_out += copies.len().saturating_sub(free);
                    mailbox.pending_out.extend(copies.into_iter().take(free));
                }
                match existing {
                    Some(index) => mailbox.subscriptions[index] = subscription,
                    None => mailbox.subscriptions.push(subscription),
                }
            }
        });
        left_out
    }

    pub fn add_depths(&self, depths: &mut QueueDepths) {
        let state = self.state.lock();
        for connection in &state.connections {
            let mailbox = connection.mailbox.lock();
            depths.outbound_pending += mailbox.pending_out.len() as u64;
            depths.outbound_inflight += mailbox.inflight_out.len() as u64;
        }
        depths.stored_sessions += state.stored_sessions.len() as u64;
        let undelivered = state.stored_sessions.iter();
        depths.outbound_pending += undelivered
            .map(|stored| stored.undelivered.len() as u64)
            .sum::<u64>();
    }

    /// Retain the message if its retain flag is set, and queue it for every connection. `topic` is relative to the device's prefix.
    pub fn publish(
        &self,
        topic: &str,
        message: &OutboundPublish,
        limits: &Limits,
    ) -> Vec<EnqueueResult> {
        let mut state = self.state.lock();
        if message.retain {
            state.retained.retain(|(retained, _)| &**retained != topic);
            if !message.payload.is_empty() {
                if state.retained.len() >= limits.max_retained_per_device {
                    state.retained.remove(0);
                }
                state.retained.push((topic.into(), message.clone()));
            }
        }
        state
            .connections
            .iter()
            .map(|connection| connection.enqueue(topic, message, limits.outbound_queue))
            .collect()
    }
}
