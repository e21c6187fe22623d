//! One device: what it may do, who of it is here, and what is kept for it. A client id is looked up inside its device only.

mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use blake3::Hash;
use bytestring::ByteString;
use parking_lot::Mutex;

use self::state::{State, Stored};
use crate::bucket::Bucket;
use crate::connection::{Close, Connection, Delivery, Downlink, Outbox, Subscription, unsent};
use crate::fault::Fault;
use crate::limits::Limits;
use crate::registry::Depths;
use crate::topics::Profile;

pub struct Device {
    pub id: Arc<str>,
    state: Mutex<State>,
}

/// What a device is and may do, as it stood when its connection was opened.
/// `Hash` compares in constant time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub number: u32,
    pub profile: Profile,
    pub digest: Hash,
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
    pub fn new(id: Arc<str>, limits: &Limits) -> Self {
        let state = State {
            standing: None,
            connections: Vec::new(),
            stored: Vec::new(),
            retained: Vec::new(),
            bucket: Bucket::full(limits.rate_burst),
            faults: [i64::MIN / 2; 3],
            subscribed_ms: 0,
        };
        Self {
            id,
            state: Mutex::new(state),
        }
    }

    /// Connections that were opened under another standing are closed.
    pub fn admit(&self, standing: Standing) {
        let mut state = self.state.lock();
        if state.standing != Some(standing) {
            state.close_all(Close::Expelled);
            state.standing = Some(standing);
        }
    }

    pub fn expel(&self) {
        let mut state = self.state.lock();
        state.standing = None;
        state.retained.clear();
        state.stored.clear();
        state.close_all(Close::Expelled);
    }

    /// Whether there was a connection to close.
    pub fn close_all(&self, why: Close) -> bool {
        let state = self.state.lock();
        state.close_all(why);
        !state.connections.is_empty()
    }

    pub fn standing(&self, digest: Hash) -> Option<Standing> {
        self.state
            .lock()
            .standing
            .filter(|standing| standing.digest == digest)
    }

    pub fn connected(&self) -> bool {
        self.state
            .lock()
            .connections
            .iter()
            .any(|connection| connection.is_open())
    }

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
        if state.standing != Some(standing) {
            return Err(Refusal::Gone);
        }
        let old = state.displace(&client_id);
        let took_over = old.is_some();
        if !took_over && state.connections.len() >= limits.connections_per_device {
            return Err(Refusal::Full);
        }
        let stored = state.resume(&client_id, Instant::now());
        let inherited = old.or(stored).filter(|_| !clean);
        let session_present = inherited.is_some();
        let (subscriptions, waiting) = inherited.unwrap_or_default();
        if !subscriptions.is_empty() {
            state.subscribing();
        }
        let outbox = Outbox {
            subscriptions,
            waiting,
            ..Outbox::default()
        };
        let connection = Arc::new(Connection {
            client_id,
            outbox: Mutex::new(outbox),
        });
        state.connections.push(Arc::clone(&connection));
        announce();
        Ok(Attached {
            connection,
            session_present,
            took_over,
        })
    }

    /// Take the connection out of the list, unless another has taken its place. `announce` runs under the same lock and is told
    /// whether the device has no connection left.
    pub fn detach(
        &self,
        connection: &Arc<Connection>,
        keep: Duration,
        limits: &Limits,
        announce: impl FnOnce(bool),
    ) {
        let mut state = self.state.lock();
        let Some(index) = state
            .connections
            .iter()
            .position(|other| Arc::ptr_eq(other, connection))
        else {
            return;
        };
        state.connections.swap_remove(index);
        if !keep.is_zero() && state.standing.is_some() && limits.stored_sessions_per_device > 0 {
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
        self.state
            .lock()
            .bucket
            .spend(now, limits.rate_per_second, limits.rate_burst)
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

    /// When a connection of the device has last begun to hear something, as its announcement says or will say.
    pub fn subscribed_ms(&self) -> i64 {
        self.state.lock().subscribed_ms
    }

    /// Enter subscriptions and lay the retained messages they cover into the outbox, in one step for every publisher. Returns how
    /// many of those had no place: whoever subscribes again and again without reading gets no longer a queue for it. `news`:
    /// something of it is to be announced.
    pub fn subscribe(
        &self,
        connection: &Connection,
        wanted: Vec<(Subscription, u8)>,
        news: bool,
        limits: &Limits,
    ) -> usize {
        let mut state = self.state.lock();
        if news {
            state.subscribing();
        }
        let (now, mut left_out) = (Instant::now(), 0);
        connection.change(|outbox| {
            for (subscription, retain_handling) in wanted {
                let same = outbox
                    .subscriptions
                    .iter()
                    .position(|other| other.pattern == subscription.pattern);
                if retain_handling == 0 || (retain_handling == 1 && same.is_none()) {
                    let place = limits.downlink_queue.saturating_sub(outbox.waiting.len());
                    let copies = state.retained_for(&subscription, now);
                    left_out += copies.len().saturating_sub(place);
                    outbox.waiting.extend(copies.into_iter().take(place));
                }
                match same {
                    Some(index) => outbox.subscriptions[index] = subscription,
                    None => outbox.subscriptions.push(subscription),
                }
            }
        });
        left_out
    }

    pub fn measure(&self, depths: &mut Depths) {
        let state = self.state.lock();
        for connection in &state.connections {
            let outbox = connection.outbox.lock();
            depths.waiting += outbox.waiting.len() as u64;
            depths.unacknowledged += outbox.inflight.len() as u64;
        }
        depths.stored += state.stored.len() as u64;
        depths.waiting += state
            .stored
            .iter()
            .map(|each| each.unsent.len() as u64)
            .sum::<u64>();
    }

    pub fn publish(&self, below: &str, message: &Downlink, limits: &Limits) -> Vec<Delivery> {
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
        state
            .connections
            .iter()
            .map(|connection| connection.offer(below, message, limits.downlink_queue))
            .collect()
    }
}
