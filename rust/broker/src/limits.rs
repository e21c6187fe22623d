//! Every bound of the broker, with its default and the reason for it.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Limits {
    /// Threads that serve sockets. Two carry more than the service behind them can store.
    pub threads: usize,
    /// Connections in all, those that have not logged in yet included.
    pub connections: usize,
    /// Connections of one device at a time (a takeover by the same client id does not count twice).
    pub connections_per_device: usize,
    /// From the accepted socket to a complete CONNECT, TLS and WebSocket handshakes included.
    pub connect_timeout: Duration,
    /// A CONNECT with a will is well below; a stranger may make us hold no more than this.
    pub connect_packet: usize,
    /// Larger payloads are read past and dropped.
    pub payload: usize,
    /// Bytes of a topic or filter, prefix included.
    pub topic: usize,
    /// Unacknowledged QoS-1 and QoS-2 messages of one connection, each way. Announced to MQTT 5 clients as Receive Maximum.
    pub inflight: usize,
    /// Bytes of messages and events that wait to be taken, counted with `uplink::OVERHEAD` each. Full: sockets are not read.
    pub uplink_bytes: usize,
    /// How long a QoS-0 message waits at a full queue before it is dropped.
    pub qos0_patience: Duration,
    /// Messages that wait to be written to one connection. Full: `publish` says that nobody listens.
    pub downlink_queue: usize,
    /// Retained messages and stored sessions of one device; filters of one session.
    pub retained_per_device: usize,
    pub stored_sessions_per_device: usize,
    pub filters_per_session: usize,
    /// A client that asks for a session that outlives its connection gets at most this.
    pub session_expiry: Duration,
    /// Publishes a second of one device and the burst above it; 0 switches the limit off.
    pub rate_per_second: f64,
    pub rate_burst: f64,
    /// A connection that takes none of what we write for this long is closed.
    pub write_patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            threads: 2,
            connections: 50_000,
            connections_per_device: 4,
            connect_timeout: Duration::from_secs(10),
            connect_packet: 16 * 1024,
            payload: 64 * 1024,
            topic: 256,
            inflight: 64,
            uplink_bytes: 32 * 1024 * 1024,
            qos0_patience: Duration::from_secs(2),
            downlink_queue: 64,
            retained_per_device: 16,
            stored_sessions_per_device: 4,
            filters_per_session: 16,
            session_expiry: Duration::from_secs(24 * 3600),
            rate_per_second: 50.0,
            rate_burst: 100.0,
            write_patience: Duration::from_secs(30),
        }
    }
}
