//! Counters since the start, and gauges. Relaxed atomics: they serve a metrics page and decide nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        #[derive(Default)]
        pub struct BrokerStats { $(pub $name: AtomicCounter),* }
        impl BrokerStats {
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

#[derive(Default)]
pub struct AtomicCounter(AtomicU64);

impl AtomicCounter {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

// The names are the keys of `Broker.stats()` in Python.
counters! {
    // gauges
    connections, sockets, inbound_queue, inbound_queue_bytes,
    // connections
    accepted, connects, takeovers, disconnects, closed_revoked,
    refused_credentials, refused_anonymous, refused_will, refused_garbage, refused_timeout, refused_full, refused_busy,
    refused_address_full, refused_banned, refused_evicted, refused_takeovers,
    closed_protocol_error, closed_keepalive, closed_slow_reader, closed_evicted,
    // bytes of MQTT packets, without TLS and WebSocket framing
    bytes_read, bytes_written,
    // inbound
    inbound_telemetry, inbound_publish, inbound_bytes, inbound_acked, inbound_nacked, inbound_duplicates,
    dropped_forbidden, dropped_oversize, dropped_queue_full, throttled, waited_queue_full,
    subscribes, refused_subscribes, retained_left_out,
    // outbound
    outbound_sent, outbound_acked, outbound_no_subscriber, outbound_expired, outbound_too_large, outbound_queue_full,
}

/// What the broker holds for all devices at one moment.
#[derive(Default)]
pub struct BrokerBacklogTotals {
    pub devices: u64,
    /// Outbound messages not sent yet, those of stored sessions included.
    pub outbound_pending: u64,
    /// Outbound messages sent at QoS 1 and not acknowledged yet.
    pub outbound_inflight: u64,
    pub stored_sessions: u64,
}
