//! One registered device: its credentials, its open connections, and what is stored for it.
//!
//! Law: a client id is looked up within its device only, so two devices that choose the same one do not affect each other.

mod attach;
mod delayed_will;
mod device_state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use blake3::Hash;
use parking_lot::Mutex;

use self::device_state::BrokerDeviceState;
use crate::drop_reason::DropReason;
use crate::inbound_queue::{InMemoryInboundQueue, InboundEventDevice};
use crate::limits::BrokerLimits;
use crate::rate_limit::TokenBucket;
use crate::shared_connection_state::{CloseReason, ConnectionHandle, EnqueueResult, OutboundPublish, Subscription};
use crate::stats::BrokerBacklogTotals;

pub use self::attach::{AttachResult, ConnectSessionOptions, SessionExpiryAndWill};
pub use self::delayed_will::DelayedWill;
pub use self::device_state::BrokerDeviceCredentials;

pub struct BrokerDeviceEntry {
    pub id: Arc<str>,
    state: Mutex<BrokerDeviceState>,
}

const DROP_REPORT_INTERVAL_MS: i64 = 60_000;

impl BrokerDeviceEntry {
    pub fn new(id: Arc<str>, limits: &BrokerLimits) -> Self {
        let state = BrokerDeviceState {
            credentials: None,
            connections: Vec::new(),
            stored_sessions: Vec::new(),
            retained: Vec::new(),
            rate: TokenBucket::full(limits.rate_burst),
            last_reports_ms: [i64::MIN / 2; 3],
            last_session: 0,
            last_subscribed_ms: 0,
            max_packet_size: None,
        };
        Self {
            id,
            state: Mutex::new(state),
        }
    }

    /// The device in its events.
    pub fn event_source(&self, credentials: BrokerDeviceCredentials) -> InboundEventDevice {
        InboundEventDevice {
            device: credentials.number,
            device_id: Arc::clone(&self.id),
        }
    }

    /// Connections that were opened with other credentials are closed.
    pub fn set_credentials(&self, credentials: BrokerDeviceCredentials) {
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
    pub fn credentials(&self, password_digest: Hash) -> Option<BrokerDeviceCredentials> {
        self.state
            .lock()
            .credentials
            .filter(|credentials| credentials.password_digest == password_digest)
    }

    pub fn current_credentials(&self) -> Option<BrokerDeviceCredentials> {
        self.state.lock().credentials
    }

    pub fn is_connected(&self) -> bool {
        self.state.lock().connections.iter().any(|connection| connection.is_open())
    }

    /// Bytes; the Maximum Packet Size of the device's last connection. None without a limit.
    pub fn max_packet_size(&self) -> Option<u32> {
        self.state.lock().max_packet_size
    }

    /// Drop expired sessions, and publish every will whose delay is over.
    pub fn end_sessions(&self, queue: &InMemoryInboundQueue) {
        self.state.lock().end_sessions(Instant::now(), queue);
    }

    /// Take one message from the device's rate limit: None when it may pass, else how long to wait before the next attempt.
    pub fn take_rate_token(&self, now: Instant, limits: &BrokerLimits) -> Option<Duration> {
        if limits.rate_per_second <= 0.0 {
            return None;
        }
        self.state.lock().rate.take(now, limits.rate_per_second, limits.rate_burst)
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
        connection: &ConnectionHandle,
        subscriptions: Vec<(Subscription, u8)>,
        has_new: bool,
        limits: &BrokerLimits,
    ) -> usize {
        let mut state = self.state.lock();
        if has_new {
            state.mark_subscribed();
        }
        let (now, mut left_out) = (Instant::now(), 0);
        connection.update(|shared_state| {
            for (subscription, retain_handling) in subscriptions {
                let existing = shared_state
                    .subscriptions
                    .iter()
                    .position(|other| other.filter == subscription.filter);
                if retain_handling == 0 || (retain_handling == 1 && existing.is_none()) {
                    let free = limits.outbound_queue.saturating_sub(shared_state.pending_out.len());
                    let copies = state.retained_for(&subscription, now);
                    left_out += copies.len().saturating_sub(free);
                    shared_state.pending_out.extend(copies.into_iter().take(free));
                }
                match existing {
                    Some(index) => shared_state.subscriptions[index] = subscription,
                    None => shared_state.subscriptions.push(subscription),
                }
            }
        });
        left_out
    }

    pub fn add_depths(&self, depths: &mut BrokerBacklogTotals) {
        let state = self.state.lock();
        for connection in &state.connections {
            let shared_state = connection.shared_state.lock();
            depths.outbound_pending += shared_state.pending_out.len() as u64;
            depths.outbound_inflight += (shared_state.inflight_out.len() + shared_state.resend.len()) as u64;
        }
        depths.stored_sessions += state.stored_sessions.len() as u64;
        let stored = state.stored_sessions.iter();
        depths.outbound_pending += stored.map(|stored| stored.session.undelivered().count() as u64).sum::<u64>();
    }

    /// Retain the message if its retain flag is set, and queue it for every connection. `topic` is relative to the device's prefix.
    pub fn publish(&self, topic: &str, message: &OutboundPublish, limits: &BrokerLimits) -> Vec<EnqueueResult> {
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
