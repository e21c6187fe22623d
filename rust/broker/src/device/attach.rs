//! How a connection joins its device and leaves it, and what happens to its session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytestring::ByteString;
use parking_lot::Mutex;

use super::{BrokerDeviceCredentials, BrokerDeviceState, DelayedWill, DetachedMqttSession, Device};
use crate::connection_handle::{ConnectionHandle, SessionState, SharedConnectionState};
use crate::inbound_queue::{InboundQueue, now_ms};
use crate::limits::BrokerLimits;

/// Why an authenticated connection is not attached.
pub enum AttachError {
    /// The password has changed, or the device was removed, since authentication.
    CredentialsChanged,
    /// It would close another connection of the device, and that has happened too often.
    TakeoversPaused,
}

/// What a CONNECT asks of a session.
pub struct ConnectSessionOptions {
    pub client_id: ByteString,
    pub clean_start: bool,
    pub max_packet_size: Option<u32>,
}

/// How a session outlives its connection: for how long, and with which delayed will.
pub struct SessionExpiryAndWill {
    pub expiry: Duration,
    pub will: Option<DelayedWill>,
}

pub struct AttachResult {
    pub connection: Arc<ConnectionHandle>,
    pub session_present: bool,
    pub took_over: bool,
    /// How many connections of the device were closed to make room.
    pub evicted: usize,
}

impl Device {
    /// Add a connection to the device, taking over or resuming the client's session unless `clean_start`. `announce` runs under the
    /// device's lock, so the connect event precedes every other event of the connection; its arguments are session present, and the
    /// number of the connection.
    pub fn attach(
        &self,
        credentials: BrokerDeviceCredentials,
        request: ConnectSessionOptions,
        limits: &BrokerLimits,
        queue: &InboundQueue,
        announce: impl FnOnce(bool, i64),
    ) -> Result<AttachResult, AttachError> {
        let mut state = self.state.lock();
        if state.credentials != Some(credentials) {
            return Err(AttachError::CredentialsChanged);
        }
        let closes = state.would_close(&request.client_id, limits.max_connections_per_device);
        if !state.takeovers.admit(closes, Instant::now()) {
            return Err(AttachError::TakeoversPaused);
        }
        let taken_over = state.take_over(&request.client_id);
        let took_over = taken_over.is_some();
        let evicted = if took_over {
            0
        } else {
            state.evict(limits.max_connections_per_device)
        };
        let session = state.session(taken_over, &request, queue);
        let session_present = session.is_some();
        let connection = Arc::new(open_connection(request, session));
        if !connection.shared_state.lock().subscriptions.is_empty() {
            state.mark_subscribed();
        }
        state.max_packet_size = connection.max_packet_size;
        state.connections.push(Arc::clone(&connection));
        state.last_session = now_ms().max(state.last_session + 1);
        announce(session_present, state.last_session);
        Ok(AttachResult {
            connection,
            session_present,
            took_over,
            evicted,
        })
    }

    /// Remove a connection from the device, unless another has taken it over. `announce` runs under the
    /// device's lock; its arguments say whether the device has no connection left, and the number of its last one. Returns
    /// when a stored will is due.
    pub fn detach(
        &self,
        connection: &Arc<ConnectionHandle>,
        ending: SessionExpiryAndWill,
        limits: &BrokerLimits,
        queue: &InboundQueue,
        announce: impl FnOnce(bool, i64),
    ) -> Option<Instant> {
        let mut state = self.state.lock();
        let same = |other: &Arc<ConnectionHandle>| Arc::ptr_eq(other, connection);
        let index = state.connections.iter().position(same)?;
        state.connections.swap_remove(index);
        let max_stored = limits.max_stored_sessions_per_device;
        let mut due = None;
        if !ending.expiry.is_zero() && state.credentials.is_some() && max_stored > 0 {
            due = ending.will.as_ref().map(|will| will.due);
            let stored = DetachedMqttSession {
                client_id: connection.client_id.clone(),
                session: SessionState::take(&mut connection.shared_state.lock()),
                detached_ms: now_ms(),
                expires: Instant::now() + ending.expiry,
                will: ending.will,
            };
            state.store(stored, max_stored, queue);
        } else if let Some(will) = ending.will {
            will.publish(queue);
        }
        announce(state.connections.is_empty(), state.last_session);
        due
    }
}

/// A session with the time until which it was connected.
struct ResumedSession {
    state: SessionState,
    held_until_ms: i64,
}

fn open_connection(request: ConnectSessionOptions, session: Option<ResumedSession>) -> ConnectionHandle {
    // A message that no longer fits is dropped when it is sent; without `held_until_ms` the service sends it again, and learns that.
    let held_until_ms = session
        .as_ref()
        .filter(|session| session.state.fits(request.max_packet_size))
        .map_or(0, |session| session.held_until_ms);
    let session = session.map(|session| session.state).unwrap_or_default();
    let shared_state = SharedConnectionState {
        subscriptions: session.subscriptions,
        resend: session.resend,
        pending_out: session.pending,
        last_received: Some(Instant::now()),
        ..SharedConnectionState::default()
    };
    ConnectionHandle {
        client_id: request.client_id,
        max_packet_size: request.max_packet_size,
        session_held_until_ms: held_until_ms,
        shared_state: Mutex::new(shared_state),
    }
}

impl BrokerDeviceState {
    /// The session that a new connection continues; None for a new session. A stored session that is not continued ends, and its will
    /// is published; the will of one that is continued is not (MQTT 5.0, 3.1.3.2.2).
    fn session(
        &mut self,
        taken_over: Option<SessionState>,
        request: &ConnectSessionOptions,
        queue: &InboundQueue,
    ) -> Option<ResumedSession> {
        self.end_sessions(Instant::now(), queue);
        let stored = self.resume(&request.client_id);
        if request.clean_start {
            let will = stored.and_then(|stored| stored.will);
            will.into_iter().for_each(|will| will.publish(queue));
            return None;
        }
        if let Some(state) = taken_over {
            let held_until_ms = now_ms();
            return Some(ResumedSession { state, held_until_ms });
        }
        stored.map(|stored| ResumedSession {
            state: stored.session,
            held_until_ms: stored.detached_ms,
        })
    }
}
