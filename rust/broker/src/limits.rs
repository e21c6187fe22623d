//! Every limit of the broker, with its default and the reason for it; and the token bucket of the rate limit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::addresses::IpNetwork;

/// Bytes of a PUBLISH beside its payload: fixed header, topic and MQTT 5 properties.
const PUBLISH_HEADER_BYTES: usize = 4096;

#[derive(Debug, Clone)]
pub struct BrokerLimits {
    /// Threads that serve sockets. Two carry more than the service behind them can store.
    pub threads: usize,
    /// Open sockets in all, those that have not sent a CONNECT included.
    pub max_connections: usize,
    /// Of these, sockets whose CONNECT has not been accepted yet: of all addresses, and of one that is not trusted. The others are for
    /// connected devices.
    pub max_pending: usize,
    pub max_pending_per_address: usize,
    /// Failed connections in a row after which an address is banned, for a second at first and at most for `max_ban`; 0: never.
    pub ban_after: u32,
    pub max_ban: Duration,
    /// Addresses behind which anybody may be, such as proxies: neither limited alone nor banned.
    pub trusted_networks: Vec<IpNetwork>,
    /// Open connections of one device; a takeover by the same client id counts once.
    pub max_connections_per_device: usize,
    /// From the accepted socket to a complete CONNECT, TLS and WebSocket handshakes included.
    pub connect_timeout: Duration,
    /// Bytes of a CONNECT. One with a will is much smaller; a client that has not authenticated can make the broker buffer no more.
    pub max_connect_packet: usize,
    /// Bytes of a payload; the broker skips and drops larger ones.
    pub max_payload: usize,
    /// Bytes of a topic or filter, prefix included.
    pub max_topic: usize,
    /// Unacknowledged QoS-1 and QoS-2 messages of one connection, in each direction. Announced to MQTT 5 clients.
    pub receive_maximum: usize,
    /// Bytes of queued messages and events, counted with `MESSAGE_OVERHEAD` each. While the queue is full, sockets are not read.
    pub inbound_queue_bytes: usize,
    /// How long a QoS-0 message waits for a place in the full queue before it is dropped.
    pub qos0_queue_timeout: Duration,
    /// Messages queued for one connection. While that queue is full, `publish` counts the connection as not reached.
    pub outbound_queue: usize,
    pub max_retained_per_device: usize,
    pub max_stored_sessions_per_device: usize,
    /// Beside the topics that carry the commands of the device's firmware.
    pub max_subscriptions_per_session: usize,
    /// A bound on memory: a firmware may have one command topic for each of its components.
    pub max_command_subscriptions_per_session: usize,
    /// The longest session expiry interval that a client gets.
    pub max_session_expiry: Duration,
    /// PUBLISH and SUBSCRIBE packets a second of one device, and the burst above it; 0 switches the limit off.
    pub rate_per_second: f64,
    pub rate_burst: f64,
    /// The broker closes a connection that accepts no output for this long.
    pub write_timeout: Duration,
}

impl BrokerLimits {
    /// Bytes; announced to MQTT 5 clients as Maximum Packet Size.
    pub fn max_packet_size(&self) -> usize {
        self.max_payload + PUBLISH_HEADER_BYTES
    }
}

impl Default for BrokerLimits {
    fn default() -> Self {
        Self {
            threads: 2,
            max_connections: 50_000,
            max_pending: 12_500,
            max_pending_per_address: 3_000,
            ban_after: 50,
            max_ban: Duration::from_secs(600),
            trusted_networks: vec![
                IpNetwork::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
                IpNetwork::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
            ],
            max_connections_per_device: 4,
            connect_timeout: Duration::from_secs(10),
            max_connect_packet: 16 * 1024,
            max_payload: 64 * 1024,
            max_topic: 256,
            receive_maximum: 64,
            inbound_queue_bytes: 32 * 1024 * 1024,
            qos0_queue_timeout: Duration::from_secs(2),
            outbound_queue: 64,
            max_retained_per_device: 16,
            max_stored_sessions_per_device: 4,
            max_subscriptions_per_session: 16,
            max_command_subscriptions_per_session: 128,
            max_session_expiry: Duration::from_secs(24 * 3600),
            rate_per_second: 50.0,
            rate_burst: 100.0,
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// A steady rate with a burst above it.
pub struct TokenBucket {
    tokens: f64,
    refilled: Instant,
}

impl TokenBucket {
    pub fn full(burst: f64) -> Self {
        Self {
            tokens: burst,
            refilled: Instant::now(),
        }
    }

    /// Take one token. None when there was one, else how long until the next.
    pub fn take(&mut self, now: Instant, per_second: f64, burst: f64) -> Option<Duration> {
        let elapsed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * per_second).min(burst);
        self.refilled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return None;
        }
        // At least a millisecond, the resolution of the timer.
        Some(Duration::from_secs_f64(((1.0 - self.tokens) / per_second).max(0.001)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_applies() {
        let (mut bucket, start) = (TokenBucket::full(3.0), Instant::now());
        assert!((0..3).all(|_| bucket.take(start, 10.0, 3.0).is_none()));
        let wait = bucket.take(start, 10.0, 3.0).expect("empty");
        assert!(wait > Duration::from_millis(90) && wait <= Duration::from_millis(100));
        let after = |ms| start + Duration::from_millis(ms);
        assert!(bucket.take(after(101), 10.0, 3.0).is_none());
        assert!(bucket.take(after(102), 10.0, 3.0).is_some());
    }

    #[test]
    fn an_idle_bucket_holds_no_more_than_the_burst() {
        let later = Instant::now() + Duration::from_secs(3600);
        let mut bucket = TokenBucket::full(2.0);
        assert!((0..2).all(|_| bucket.take(later, 10.0, 2.0).is_none()));
        assert!(bucket.take(later, 10.0, 2.0).is_some());
    }
}
