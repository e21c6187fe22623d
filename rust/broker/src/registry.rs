//! Who may come in, who is here, and what waits for them.
//!
//! A client id belongs to its device: connections are found by (device, client id), so two devices that choose the same client
//! id never meet. Lock order: a device's state, then a connection's outbox, then the uplink queue.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use blake3::Hash;
use bytes::Bytes;
use bytestring::ByteString;
use parking_lot::{Mutex, RwLock};

use crate::limits::Limits;
use crate::topics::{Profile, matches};

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

    fn change(&self, apply: impl FnOnce(&mut Outbox)) {
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

    fn is_open(&self) -> bool {
        self.outbox.lock().close.is_none()
    }

    fn offer(&self, below: &str, message: &Downlink, bound: usize) -> Delivery {
        let mut outbox = self.outbox.lock();
        if outbox.close.is_some() {
            return Delivery::Unheard;
        }
        let heard = outbox.subscriptions.iter().filter(|subscription| matches(&subscription.pattern, below));
        // Overlapping subscriptions: once, at the highest QoS of them (MQTT 5.0, 3.3.4).
        let Some((qos, retain)) = heard.fold(None, |best: Option<(u8, bool)>, subscription| {
            let (qos, retain) = best.unwrap_or((0, false));
            Some((qos.max(subscription.qos), retain || subscription.retain_as_published))
        }) else {
            return Delivery::Unheard;
        };
        if outbox.waiting.len() >= bound {
            return Delivery::Full;
        }
        let copy = Downlink { qos: qos.min(message.qos), retain: retain && message.retain, ..message.clone() };
        outbox.waiting.push_back(copy);
        let waker = Self::wake(&mut outbox);
        drop(outbox);
        if let Some(waker) = waker {
            waker.wake();
        }
        Delivery::Queued
    }
}

/// A session whose client has gone but wants to find it again.
struct Stored {
    client_id: ByteString,
    subscriptions: Vec<Subscription>,
    unsent: VecDeque<Downlink>,
    until: Instant,
}

struct Bucket {
    tokens: f64,
    filled: Instant,
}

struct State {
    number: u32,
    profile: Profile,
    digest: Option<Hash>,
    connections: Vec<Arc<Connection>>,
    stored: Vec<Stored>,
    retained: Vec<(Box<str>, Downlink)>,
    bucket: Bucket,
    faults: [i64; 3],
}

pub struct Device {
    pub id: Arc<str>,
    state: Mutex<State>,
}

/// What a device is and may do, as it stood when its connection was opened.
#[derive(Clone, Copy)]
pub struct Standing {
    pub number: u32,
    pub profile: Profile,
    digest: Hash,
}

/// A kind of message that was dropped; the index of its last report.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Forbidden = 0,
    Oversize = 1,
    QueueFull = 2,
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Oversize => "oversize",
            Self::QueueFull => "queue_full",
        }
    }
}

pub enum Refusal {
    /// The password has changed or the device has been expelled since it was checked.
    Gone,
    /// Too many connections of this device.
    Full,
}

pub struct Attached {
    pub connection: Arc<Connection>,
    pub session_present: bool,
    pub took_over: bool,
}

const FAULT_INTERVAL_MS: i64 = 60_000;

impl Device {
    /// Enter the connection into the device's list. `announce` runs under the same lock, before anything of the new connection.
    pub fn attach(
        &self,
        standing: Standing,
        client_id: ByteString,
        clean: bool,
        limits: &Limits,
        announce: impl FnOnce(),
    ) -> Result<Attached, Refusal> {
        let mut state = self.state.lock();
        if state.digest != Some(standing.digest) {
            return Err(Refusal::Gone);
        }
        let now = Instant::now();
        state.stored.retain(|stored| stored.until > now);
        let mut inherited = None;
        let mut took_over = false;
        if let Some(index) = state.connections.iter().position(|other| other.client_id == client_id) {
            let old = state.connections.swap_remove(index);
            took_over = true;
            let mut outbox = old.outbox.lock();
            inherited = Some((outbox.subscriptions.clone(), unsent(&mut outbox)));
            drop(outbox);
            old.close(Close::TakenOver);
        } else if state.connections.len() >= limits.connections_per_device {
            return Err(Refusal::Full);
        }
        if let Some(index) = state.stored.iter().position(|stored| stored.client_id == client_id) {
            let stored = state.stored.swap_remove(index);
            inherited.get_or_insert((stored.subscriptions, stored.unsent));
        }
        let inherited = inherited.filter(|_| !clean);
        let session_present = inherited.is_some();
        let (subscriptions, waiting) = inherited.unwrap_or_default();
        let outbox = Outbox { subscriptions, waiting, ..Outbox::default() };
        let connection = Arc::new(Connection { client_id, outbox: Mutex::new(outbox) });
        state.connections.push(Arc::clone(&connection));
        announce();
        Ok(Attached { connection, session_present, took_over })
    }

    /// Take the connection out of the list, unless another has taken its place. `announce` runs under the same lock and is told
    /// whether the device has no connection left.
    pub fn detach(&self, connection: &Arc<Connection>, keep: Duration, limits: &Limits, announce: impl FnOnce(bool)) {
        let mut state = self.state.lock();
        let Some(index) = state.connections.iter().position(|other| Arc::ptr_eq(other, connection)) else { return };
        state.connections.swap_remove(index);
        if !keep.is_zero() && state.digest.is_some() && limits.stored_sessions_per_device > 0 {
            let mut outbox = connection.outbox.lock();
            let stored = Stored {
                client_id: connection.client_id.clone(),
                subscriptions: std::mem::take(&mut outbox.subscriptions),
                unsent: unsent(&mut outbox),
                until: Instant::now() + keep,
            };
            drop(outbox);
            if state.stored.len() >= limits.stored_sessions_per_device {
                state.stored.remove(0);
            }
            state.stored.push(stored);
        }
        announce(state.connections.is_empty());
    }

    /// One message's worth of the device's rate: None when it may go on, else how long to wait before asking again.
    pub fn spend(&self, now: Instant, limits: &Limits) -> Option<Duration> {
        if limits.rate_per_second <= 0.0 {
            return None;
        }
        let mut state = self.state.lock();
        let bucket = &mut state.bucket;
        let gained = now.saturating_duration_since(bucket.filled).as_secs_f64() * limits.rate_per_second;
        bucket.tokens = (bucket.tokens + gained).min(limits.rate_burst);
        bucket.filled = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return None;
        }
        // At least a millisecond: the timer is no finer.
        Some(Duration::from_secs_f64(((1.0 - bucket.tokens) / limits.rate_per_second).max(0.001)))
    }

    /// Whether this fault has not been reported for a minute.
    pub fn report(&self, fault: Fault, now_ms: i64) -> bool {
        let last = &mut self.state.lock().faults[fault as usize];
        let due = now_ms - *last >= FAULT_INTERVAL_MS;
        if due {
            *last = now_ms;
        }
        due
    }

    /// Enter subscriptions and lay the retained messages they cover into the outbox, in one step for every publisher.
    pub fn subscribe(&self, connection: &Connection, wanted: Vec<(Subscription, u8)>) {
        let state = self.state.lock();
        let now = Instant::now();
        connection.change(|outbox| {
            for (subscription, retain_handling) in wanted {
                let same = outbox.subscriptions.iter().position(|other| other.pattern == subscription.pattern);
                let greeted = retain_handling == 0 || (retain_handling == 1 && same.is_none());
                let covered = state.retained.iter().filter(|(below, kept)| {
                    greeted && !kept.expired(now) && matches(&subscription.pattern, below)
                });
                let copies: Vec<_> = covered
                    .map(|(_, kept)| Downlink { qos: kept.qos.min(subscription.qos), ..kept.clone() })
                    .collect();
                outbox.waiting.extend(copies);
                match same {
                    Some(index) => outbox.subscriptions[index] = subscription,
                    None => outbox.subscriptions.push(subscription),
                }
            }
        });
    }

    fn publish(&self, below: &str, message: &Downlink, limits: &Limits) -> Vec<Delivery> {
        let mut state = self.state.lock();
        if message.retain {
            state.retained.retain(|(kept, _)| &**kept != below);
            if !message.payload.is_empty() {
                if state.retained.len() >= limits.retained_per_device {
                    state.retained.remove(0);
                }
                state.retained.push((below.into(), message.clone()));
            }
        }
        state.connections.iter().map(|connection| connection.offer(below, message, limits.downlink_queue)).collect()
    }

    fn close_all(state: &State, why: Close) {
        for connection in &state.connections {
            connection.close(why);
        }
    }
}

/// What a successor must send: first what was sent and never acknowledged, marked so, then what had not been sent.
fn unsent(outbox: &mut Outbox) -> VecDeque<Downlink> {
    let again = outbox.inflight.drain(..).map(|(_, message)| Downlink { dup: true, ..message });
    let mut messages: VecDeque<_> = again.collect();
    // A message at QoS 0 is worth nothing later.
    messages.extend(outbox.waiting.drain(..).filter(|message| message.qos > 0));
    messages
}

pub struct Registry {
    devices: RwLock<HashMap<Arc<str>, Arc<Device>>>,
    key: [u8; 32],
}

impl Registry {
    /// `key`: made anew at each start; only digests of passwords are held.
    pub fn new(key: [u8; 32]) -> Self {
        Self { devices: RwLock::new(HashMap::new()), key }
    }

    fn digest(&self, password: &[u8]) -> Hash {
        blake3::keyed_hash(&self.key, password)
    }

    pub fn admit(&self, device_id: &str, number: u32, password: &str, profile: Profile, limits: &Limits) {
        let digest = self.digest(password.as_bytes());
        let found = self.devices.read().get(device_id).cloned();
        let device = found.unwrap_or_else(|| {
            let id: Arc<str> = device_id.into();
            let state = State {
                number,
                profile,
                digest: None,
                connections: Vec::new(),
                stored: Vec::new(),
                retained: Vec::new(),
                bucket: Bucket { tokens: limits.rate_burst, filled: Instant::now() },
                faults: [i64::MIN / 2; 3],
            };
            let device = Arc::new(Device { id: Arc::clone(&id), state: Mutex::new(state) });
            Arc::clone(self.devices.write().entry(id).or_insert(device))
        });
        let mut state = device.state.lock();
        if (state.digest, state.number, state.profile) != (Some(digest), number, profile) {
            Device::close_all(&state, Close::Expelled);
            (state.digest, state.number, state.profile) = (Some(digest), number, profile);
        }
    }

    /// Refuse from now on, cut, forget. False for a device nobody has admitted.
    pub fn expel(&self, device_id: &str) -> bool {
        let Some(device) = self.devices.write().remove(device_id) else { return false };
        let mut state = device.state.lock();
        state.digest = None;
        state.retained.clear();
        state.stored.clear();
        Device::close_all(&state, Close::Expelled);
        true
    }

    pub fn kick(&self, device_id: &str) -> bool {
        let Some(device) = self.find(device_id) else { return false };
        let state = device.state.lock();
        Device::close_all(&state, Close::Expelled);
        !state.connections.is_empty()
    }

    pub fn close_all(&self, why: Close) {
        let devices: Vec<_> = self.devices.read().values().cloned().collect();
        for device in devices {
            Device::close_all(&device.state.lock(), why);
        }
    }

    /// The comparison of digests takes the same time wherever they differ; an unknown device costs the same hash.
    pub fn authenticate(&self, device_id: &str, password: &[u8]) -> Option<(Arc<Device>, Standing)> {
        let digest = self.digest(password);
        let device = self.find(device_id)?;
        let state = device.state.lock();
        if state.digest != Some(digest) {
            return None;
        }
        let standing = Standing { number: state.number, profile: state.profile, digest };
        drop(state);
        Some((device, standing))
    }

    pub fn publish(&self, device_id: &str, below: &str, message: &Downlink, limits: &Limits) -> Vec<Delivery> {
        self.find(device_id).map_or_else(Vec::new, |device| device.publish(below, message, limits))
    }

    pub fn connected(&self, device_id: &str) -> bool {
        let Some(device) = self.find(device_id) else { return false };
        let state = device.state.lock();
        state.connections.iter().any(|connection| connection.is_open())
    }

    pub fn admitted(&self) -> usize {
        self.devices.read().len()
    }

    fn find(&self, device_id: &str) -> Option<Arc<Device>> {
        self.devices.read().get(device_id).cloned()
    }
}
