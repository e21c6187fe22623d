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

use crate::addresses::{AddressBans, ClientSubnet, IpNetwork};
use crate::limits::BrokerLimits;

/// How long a connection has for its CONNECT before it may be closed to make room.
const SPARED: Duration = Duration::from_secs(1);

/// Connections of a banned address that may wait for their CONNECT: a plant behind one address may have devices with correct
/// credentials beside one with an old password, and only the CONNECT tells which one comes.
const MAX_PENDING_BANNED: usize = 32;
/// How long a client of a banned address that has failed waits for its answer. Longer than `SPARED`, so that it makes room for others.
const BANNED_ANSWER_DELAY: Duration = Duration::from_secs(2);

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
    is_banned: bool,
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
        let is_banned = !is_trusted && state.bans.is_banned(block, now);
        let (most, refusal) = if is_banned {
            let most = self.max_per_address.min(MAX_PENDING_BANNED);
            (most, BrokerSocketRefusalReason::Banned)
        } else {
            (self.max_per_address, BrokerSocketRefusalReason::AddressFull)
        };
        let of_address = state.waiting.get(&block).map_or(0, VecDeque::len);
        if !is_trusted && of_address >= most && !state.evict_oldest(block, now) {
            return Err(refusal);
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
            is_banned,
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

    /// How long a failed client waits for its answer, if its address is banned.
    pub fn answer_delay(&self) -> Option<Duration> {
        (self.is_banned && self.has_failed.load(Relaxed)).then_some(BANNED_ANSWER_DELAY)
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
mod tests {
    use super::*;

    fn pending_connections(max: usize, max_per_address: usize) -> Arc<PendingConnections> {
        Arc::new(PendingConnections::new(&BrokerLimits {
            max_pending: max,
            max_pending_per_address: max_per_address,
            ban_after: 2,
            max_ban: Duration::from_secs(60),
            trusted_networks: vec![IpNetwork::new(IpAddr::from([127, 0, 0, 1]), 8)],
            ..BrokerLimits::default()
        }))
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn is_evicted(eviction: &mut PendingMqttSocketEvictionSignal) -> bool {
        eviction.0.try_recv().is_ok()
    }

    #[test]
    fn one_address_has_its_share_and_others_still_come_in() {
        let (pending, now) = (pending_connections(10, 2), Instant::now());
        let _held: Vec<_> = (0..2).map(|_| pending.open(ip(1), now).expect("room")).collect();
        assert_eq!(pending.open(ip(1), now).err(), Some(BrokerSocketRefusalReason::AddressFull));
        assert!(pending.open(ip(2), now).is_ok());
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_longest_silent_one_of_the_address_that_holds_most() {
        let (pending, start) = (pending_connections(3, 3), Instant::now());
        let (_other, mut of_other) = pending.open(ip(2), start).expect("room");
        let (_first, mut oldest) = pending.open(ip(1), start).expect("room");
        let (_second, mut younger) = pending.open(ip(1), start).expect("room");
        assert_eq!(
            pending.open(ip(3), start).err(),
            Some(BrokerSocketRefusalReason::Full),
            "who has just come is spared"
        );
        let _newcomer = pending.open(ip(3), start + SPARED).expect("room is made");
        assert!(is_evicted(&mut oldest) && !is_evicted(&mut younger) && !is_evicted(&mut of_other));
        assert_eq!(pending.counts(start).0, 3);
    }

    #[test]
    fn a_connected_device_takes_no_place_and_is_not_evicted() {
        let (pending, start) = (pending_connections(1, 1), Instant::now());
        let (device, _) = pending.open(ip(1), start).expect("room");
        assert!(device.connect());
        let (late, _eviction) = pending.open(ip(2), start).expect("the device takes no place");
        let _newcomer = pending.open(ip(3), start + SPARED).expect("room is made");
        assert!(!late.connect(), "it was told to make room before its CONNECT was accepted");
    }

    #[test]
    fn an_address_that_only_fails_is_banned_and_one_with_a_device_is_not() {
        let (pending, now) = (pending_connections(10, 10), Instant::now());
        let fail = |address| {
            let (socket, _) = pending.open(address, now).expect("not banned yet");
            socket.fail();
        };
        (0..2).for_each(|_| fail(ip(1)));
        let (banned, _) = pending.open(ip(1), Instant::now()).expect("a place");
        assert_eq!(banned.answer_delay(), None);
        banned.fail();
        assert_eq!(banned.answer_delay(), Some(BANNED_ANSWER_DELAY));
        drop(banned);
        let (device, _) = pending.open(ip(2), now).expect("room");
        assert!(device.connect());
        (0..5).for_each(|_| fail(ip(2)));
        (0..5).for_each(|_| drop(pending.open(ip(3), now).expect("a health check closes without a word")));
        assert_eq!(pending.counts(Instant::now()).1, 1);
    }

    #[test]
    fn a_banned_address_has_few_places_and_a_device_behind_it_ends_the_ban() {
        let (pending, start) = (pending_connections(1000, 1000), Instant::now());
        for _ in 0..6 {
            let (socket, _) = pending.open(ip(1), start).expect("room");
            socket.fail();
        }
        let now = Instant::now();
        let mut held: Vec<_> = (0..MAX_PENDING_BANNED)
            .map(|_| pending.open(ip(1), now).expect("room"))
            .collect();
        assert_eq!(pending.open(ip(1), now).err(), Some(BrokerSocketRefusalReason::Banned));
        let (device, _) = pending.open(ip(1), now + SPARED).expect("the oldest makes room");
        assert!(is_evicted(&mut held[0].1));
        assert!(device.connect());
        assert_eq!(pending.counts(now).1, 0);
        assert!(pending.open(ip(1), now).is_ok());
    }

    #[test]
    fn a_trusted_address_has_no_share_of_its_own_and_is_never_banned() {
        let (pending, now) = (pending_connections(5, 1), Instant::now());
        let proxy = IpAddr::from([127, 0, 0, 1]);
        for _ in 0..9 {
            let (socket, _) = pending.open(proxy, now).expect("not banned");
            socket.fail();
        }
        let _held: Vec<_> = (0..5).map(|_| pending.open(proxy, now).expect("room")).collect();
        assert_eq!(pending.open(proxy, now).err(), Some(BrokerSocketRefusalReason::Full));
    }
}
