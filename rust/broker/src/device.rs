//! One device: its credentials, its open connections, and what is stored for it.
//!
//! Law: a client id is looked up within its device only, so two devices that choose the same one do not affect each other.

pub mod attach;
mod takeovers;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use blake3::Hash;
use bytestring::ByteString;
use parking_lot::Mutex;

use self::takeovers::{Closes, TakeoverLimit};
use crate::connection_handle::{CloseReason, ConnectionHandle, EnqueueResult, OutboundPublish, SessionState, Subscription};
use crate::inbound_queue::{
    BrokerDeviceEvent, FaultKind, InboundEventDevice, InboundQueue, MESSAGE_OVERHEAD, QueuePermit, now_ms,
};
use crate::limits::{BrokerLimits, TokenBucket};
use crate::stats::BrokerBacklogTotals;
use crate::topic_authorization::{self, FirmwareProfile, filter_matches};
use crate::wire::Will;

/// A device's number, profile and password digest, as they were when a connection was opened.
/// `Hash` compares in constant time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BrokerDeviceCredentials {
    pub number: u32,
    pub profile: FirmwareProfile,
    pub password_digest: Hash,
}

/// A session that outlives its connection (MQTT 5.0, 4.1).
struct DetachedMqttSession {
    client_id: ByteString,
    session: SessionState,
    /// Unix milliseconds: when its connection ended.
    detached_ms: i64,
    expires: Instant,
    will: Option<DelayedWill>,
}

/// What the broker holds for one device, under that device's one lock.
struct BrokerDeviceState {
    /// None before the device has credentials and after it was removed.
    credentials: Option<BrokerDeviceCredentials>,
    connections: Vec<Arc<ConnectionHandle>>,
    stored_sessions: Vec<DetachedMqttSession>,
    /// Topic relative to the device's prefix, and the message.
    retained: Vec<(Box<str>, OutboundPublish)>,
    rate: TokenBucket,
    takeovers: TakeoverLimit,
    /// By `FaultKind`: when it was last reported.
    last_reports: [Option<Instant>; FaultKind::COUNT],
    /// The number of the last connection: when it was opened (Unix ms), and greater than that of every earlier one.
    last_session: i64,
    /// Unix milliseconds; every subscription gets a later one.
    last_subscribed_ms: i64,
    /// Bytes; what the device's last connection announced. None without a limit.
    max_packet_size: Option<u32>,
}

pub struct Device {
    pub id: Arc<str>,
    state: Mutex<BrokerDeviceState>,
    /// Refused connections that wait for their answer.
    held_back: AtomicUsize,
}

const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Characters.
const MAX_REPORTED_TOPIC: usize = 128;
/// How long the answer to a refused client waits, so that one that tries again at once does not do so thousands of times a second.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);
/// Refused connections of one device that wait at the same time; further ones are answered at once.
const MAX_HELD_BACK: usize = 4;

impl Device {
    pub fn new(id: Arc<str>, limits: &BrokerLimits) -> Self {
        let state = BrokerDeviceState {
            credentials: None,
            connections: Vec::new(),
            stored_sessions: Vec::new(),
            retained: Vec::new(),
            rate: TokenBucket::full(limits.rate_burst),
            takeovers: TakeoverLimit::default(),
            last_reports: [None; FaultKind::COUNT],
            last_session: 0,
            last_subscribed_ms: 0,
            max_packet_size: None,
        };
        Self {
            id,
            state: Mutex::new(state),
            held_back: AtomicUsize::new(0),
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

    /// The device has connected to another instance. Whether there was a connection to close.
    pub fn close_for_other_instance(&self) -> bool {
        let mut state = self.state.lock();
        state.close_all(CloseReason::TakenOver);
        let closed = !state.connections.is_empty();
        if closed {
            state.takeovers.expect_return();
        }
        closed
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
    pub fn end_sessions(&self, queue: &InboundQueue) {
        self.state.lock().end_sessions(Instant::now(), queue);
    }

    /// Take one message from the device's rate limit: None when it may pass, else how long to wait before the next attempt.
    pub fn take_rate_token(&self, now: Instant, limits: &BrokerLimits) -> Option<Duration> {
        if limits.rate_per_second <= 0.0 {
            return None;
        }
        self.state.lock().rate.take(now, limits.rate_per_second, limits.rate_burst)
    }

    /// Tell the service of a fault, unless the last report of this kind is less than a minute old or the queue is full. `topic` is a
    /// whole topic or filter, or one below the device's prefix.
    pub fn report(&self, number: u32, kind: FaultKind, topic: &str, queue: &InboundQueue) {
        let now = Instant::now();
        let is_recent = |last: Instant| now.saturating_duration_since(last) < REPORT_INTERVAL;
        let mut state = self.state.lock();
        if state.last_reports[kind as usize].is_some_and(is_recent) {
            return;
        }
        let topic = topic_authorization::relative_topic(topic, &self.id).unwrap_or(topic);
        if let Some(permit) = queue.try_reserve(MESSAGE_OVERHEAD + topic.len()) {
            state.last_reports[kind as usize] = Some(now);
            let event = BrokerDeviceEvent::Fault {
                source: InboundEventDevice {
                    device: number,
                    device_id: Arc::clone(&self.id),
                },
                kind: kind.name(),
                at_ms: now_ms(),
                topic: topic.chars().take(MAX_REPORTED_TOPIC).collect(),
            };
            queue.push_low_priority(event, permit);
        }
    }

    /// Wait before a refused client is answered.
    pub async fn hold_back(&self) {
        struct Held<'d>(&'d AtomicUsize);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Relaxed);
            }
        }
        let before = self.held_back.fetch_add(1, Relaxed);
        let _held = Held(&self.held_back);
        if before < MAX_HELD_BACK {
            tokio::time::sleep(REFUSAL_DELAY).await;
        }
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

impl BrokerDeviceState {
    fn mark_subscribed(&mut self) {
        self.last_subscribed_ms = now_ms().max(self.last_subscribed_ms + 1);
    }

    fn close_all(&self, reason: CloseReason) {
        for connection in &self.connections {
            connection.close(reason);
        }
    }

    /// What a new connection of this client would close.
    fn would_close(&self, client_id: &ByteString, max_connections: usize) -> Closes {
        let open: Vec<_> = self.connections.iter().filter(|each| each.is_open()).collect();
        if open.iter().any(|other| other.client_id == *client_id) {
            Closes::SameClient
        } else if open.len() >= max_connections.max(1) {
            Closes::Evicted
        } else {
            Closes::Nothing
        }
    }

    /// Close the connection that uses this client id, if there is one, and take its session.
    fn take_over(&mut self, client_id: &ByteString) -> Option<SessionState> {
        let same = |other: &Arc<ConnectionHandle>| other.client_id == *client_id;
        let index = self.connections.iter().position(same)?;
        let old = self.connections.swap_remove(index);
        let session = SessionState::take(&mut old.shared_state.lock());
        old.close(CloseReason::TakenOver);
        Some(session)
    }

    /// Take the stored session of this client id, if there is one.
    fn resume(&mut self, client_id: &ByteString) -> Option<DetachedMqttSession> {
        let same = |stored: &DetachedMqttSession| stored.client_id == *client_id;
        let index = self.stored_sessions.iter().position(same)?;
        Some(self.stored_sessions.swap_remove(index))
    }

    /// Drop expired sessions, and publish every will whose delay is over.
    fn end_sessions(&mut self, now: Instant, queue: &InboundQueue) {
        for stored in &mut self.stored_sessions {
            let due = stored.expires <= now || stored.will.as_ref().is_some_and(|will| will.due <= now);
            if let Some(will) = stored.will.take_if(|_| due) {
                will.publish(queue);
            }
        }
        self.stored_sessions.retain(|stored| stored.expires > now);
    }

    /// Store a session. When the device has too many, the oldest one ends.
    fn store(&mut self, session: DetachedMqttSession, max_stored: usize, queue: &InboundQueue) {
        if self.stored_sessions.len() >= max_stored {
            let ended = self.stored_sessions.remove(0);
            ended.will.into_iter().for_each(|will| will.publish(queue));
        }
        self.stored_sessions.push(session);
    }

    /// Close the connections that were silent for the longest time until a new one finds a place.
    fn evict(&self, max_connections: usize) -> usize {
        let mut open: Vec<_> = self.connections.iter().filter(|each| each.is_open()).collect();
        let count = (open.len() + 1).saturating_sub(max_connections.max(1));
        open.sort_by_key(|connection| connection.shared_state.lock().last_received);
        for connection in &open[..count] {
            connection.close(CloseReason::Evicted);
        }
        count
    }

    fn retained_for(&self, subscription: &Subscription, now: Instant) -> Vec<OutboundPublish> {
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

/// A will that waits for its delay (MQTT 5.0, 3.1.3.2.2).
pub struct DelayedWill {
    pub source: InboundEventDevice,
    pub will: Will,
    pub permit: QueuePermit,
    pub due: Instant,
}

impl DelayedWill {
    pub fn publish(self, queue: &InboundQueue) {
        let event = BrokerDeviceEvent::Publish {
            source: self.source,
            topic: self.will.topic.to_string(),
            payload: self.will.payload,
            qos: self.will.qos,
            retain: self.will.retain,
            at_ms: now_ms(),
        };
        queue.push_low_priority(event, self.permit);
    }
}
