//! Counters since the start, and gauges. Relaxed atomics: they serve a metrics page and decide nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        #[derive(Default)]
        pub struct Stats { $(pub $name: Counter),* }
        impl Stats {
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
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
    connections, sockets, uplink_queue, uplink_queue_bytes,
    // connections
    accepted, connects, takeovers, disconnects, kicked,
    refused_credentials, refused_anonymous, refused_will, refused_garbage, refused_timeout, refused_full, refused_busy,
    closed_protocol_error, closed_keepalive, closed_slow_reader,
    // bytes of MQTT packets, without TLS and WebSocket framing
    bytes_read, bytes_written,
    // inbound
    uplink_telemetry, uplink_publish, uplink_bytes, uplink_acked, uplink_nacked, uplink_duplicates,
    dropped_forbidden, dropped_oversize, dropped_queue_full, throttled, waited_queue_full,
    subscribes, refused_subscribes, retained_left_out,
    // outbound
    downlink_sent, downlink_acked, downlink_unheard, downlink_expired, downlink_too_large, downlink_queue_full,
}

/// What the broker holds for all devices at one moment.
#[derive(Default)]
pub struct QueueDepths {
    pub devices: u64,
    /// Outbound messages not sent yet, those of stored sessions included.
    pub outbound_pending: u64,
    /// Outbound messages sent at QoS 1 and not acknowledged yet.
    pub outbound_inflight: u64,
    pub stored_sessions: u64,
}
