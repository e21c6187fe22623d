//! Connections whose CONNECT has not been accepted yet: how many there may be, of all addresses and of one, and which makes room.
//!
//! Anybody can open a socket and stay silent. So strangers get a part of the sockets only, and when it is used up, the one that has been
//! silent for the longest time makes room. One that has just come is spared: after an outage a whole fleet comes at once, and
//! a handshake takes a while; then the newcomer is refused and tries again.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::address_bans::AddressBans;
use crate::client_subnet::ClientSubnet;
use crate::ip_network::IpNetwork;
use crate::limits::BrokerLimits;

/// How long a connection has for its CONNECT before it may be closed to make room.
const SPARED: Duration = Duration::from_secs(1);

/// Why a socket is closed as soon as it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerSocketRefusalReason {
    Banned,
    AddressFull,
    Full,
}

struct UnauthenticatedSocket {
    ticket: u64,
    is_trusted: bool,
    since: Instant,
    evict: oneshot::Sender<()>,
}

struct PendingConnectionsState {
    /// The oldest first.
    waiting: HashMap<ClientSubnet, VecDeque<UnauthenticatedSocket>>,
    count: usize,
    next_ticket: u64,
    bans: AddressBans,
}

pub struct PendingConnections {
    max: usize,
    max_per_address: usize,
    /// Loopback and proxies: behind them is anybody, so they have no limit of their own and are never banned.
    trusted: Vec<IpNetwork>,
    state: Mutex<PendingConnectionsState>,
}

/// One accepted socket, until it is closed.
pub struct AcceptedSocketGuard {
    pending: Arc<PendingConnections>,
    block: ClientSubnet,
    ticket: u64,
    is_trusted: bool,
    is_connected: AtomicBool,
    has_failed: AtomicBool,
}

/// Becomes ready when the socket must make room, and never once its CONNECT is accepted.
pub struct PendingMqttSocketEvictionSignal(oneshot::Receiver<()>);

impl PendingConnections {
    pub fn new(limits: &BrokerLimits) -> Self {
        Self {
            max: limits.max_pending.max(1),
            max_per_address: limits.max_pending_per_address.max(1),
            trusted: limits.trusted_networks.clone(),
            state: Mutex::new(PendingConnectionsState {
                waiting: HashMap::new(),
                count: 0,
                next_ticket: 0,
                bans: AddressBans::new(limits.ban_after, limits.max_ban),
            }),
        }
    }

    /// Count a newly accepted socket. It may evict another one.
    pub fn open(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Result<(AcceptedSocketGuard, PendingMqttSocketEvictionSignal), BrokerSocketRefusalReason> {
        let block = ClientSubnet::of(address);
        let is_trusted = self.trusted.iter().any(|network| network.contains(address));
        let mut state = self.state.lock();
        if !is_trusted && state.bans.is_banned(block, now) {
            return Err(BrokerSocketRefusalReason::Banned);
        }
        let of_address = state.waiting.get(&block).map_or(0, VecDeque::len);
        if !is_trusted && of_address >= self.max_per_address && !state.evict_oldest(block, now) {
            return Err(BrokerSocketRefusalReason::AddressFull);
        }
        if state.count >= self.max && !self.evict_any(&mut state, now) {
            return Err(BrokerSocketRefusalReason::Full);
        }
        let (evict, evicted) = oneshot::channel();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.count += 1;
        let waiting = UnauthenticatedSocket {
            ticket,
            is_trusted,
            since: now,
            evict,
        };
        state.waiting.entry(block).or_default().push_back(waiting);
        let socket = AcceptedSocketGuard {
            pending: Arc::clone(self),
            block,
            ticket,
            is_trusted,
            is_connected: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        };
        Ok((socket, PendingMqttSocketEvictionSignal(evicted)))
    }

    /// Make room at the address that holds the most.
    fn evict_any(&self, state: &mut PendingConnectionsState, now: Instant) -> bool {
        let largest = state
            .waiting
            .iter()
            .max_by_key(|(_, queue)| queue.len())
            .map(|(block, _)| *block);
        largest.is_some_and(|block| state.evict_oldest(block, now))
    }

    /// Connections that wait for their CONNECT, and banned addresses.
    pub fn counts(&self, now: Instant) -> (usize, usize) {
        let state = self.state.lock();
        (state.count, state.bans.count(now))
    }
}

impl PendingConnectionsState {
    /// False when the address has none that has waited long enough.
    fn evict_oldest(&mut self, block: ClientSubnet, now: Instant) -> bool {
        let Some(queue) = self.waiting.get_mut(&block) else {
            return false;
        };
        let is_spared = |socket: &UnauthenticatedSocket| now.saturating_duration_since(socket.since) < SPARED;
        if queue.front().is_none_or(is_spared) {
            return false;
        }
        let Some(socket) = queue.pop_front() else { return false };
        let _ = socket.evict.send(());
        if queue.is_empty() {
            self.waiting.remove(&block);
        }
        self.count -= 1;
        if !socket.is_trusted {
            self.bans.record_failure(block, now);
        }
        true
    }

    /// False when the socket waits no more.
    fn remove(&mut self, block: ClientSubnet, ticket: u64) -> bool {
        let Some(queue) = self.waiting.get_mut(&block) else {
            return false;
        };
        let Ok(index) = queue.binary_search_by_key(&ticket, |socket| socket.ticket) else {
            return false;
        };
        queue.remove(index);
        if queue.is_empty() {
            self.waiting.remove(&block);
        }
        self.count -= 1;
        true
    }
}

impl AcceptedSocketGuard {
    /// The CONNECT is accepted. False when the socket was told to make room at the same moment.
    pub fn connect(&self) -> bool {
        let mut state = self.pending.state.lock();
        if !state.remove(self.block, self.ticket) {
            return false;
        }
        state.bans.record_connect(self.block, Instant::now());
        self.is_connected.store(true, Relaxed);
        true
    }

    /// The client did something that no device with correct settings does.
    pub fn fail(&self) {
        self.has_failed.store(true, Relaxed);
    }
}

impl Drop for AcceptedSocketGuard {
    fn drop(&mut self) {
        let mut state = self.pending.state.lock();
        let now = Instant::now();
        if self.is_connected.load(Relaxed) {
            state.bans.record_disconnect(self.block, now);
        } else {
            state.remove(self.block, self.ticket);
            if self.has_failed.load(Relaxed) && !self.is_trusted {
                state.bans.record_failure(self.block, now);
            }
        }
    }
}

impl PendingMqttSocketEvictionSignal {
    pub async fn wait(self) {
        if self.0.await.is_err() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
#[path = "unauthenticated_connections_tests.rs"]
mod tests;
