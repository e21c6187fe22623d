//! Counters since the start and gauges of now. Relaxed atomics: they are read for a metrics page, never for a decision.

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

    pub fn one(&self) {
        self.add(1);
    }

    pub fn sub(&self, amount: u64) {
        self.0.fetch_sub(amount, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

counters! {
    // gauges
    connections, sockets, uplink_queue, uplink_queue_bytes,
    // connections
    accepted, connects, takeovers, disconnects, kicked,
    refused_credentials, refused_anonymous, refused_will, refused_garbage, refused_timeout, refused_full, refused_busy,
    closed_protocol_error, closed_keepalive, closed_slow_reader,
    // the wire, MQTT framing and properties included, TLS and WebSocket not
    bytes_read, bytes_written,
    // uplink
    uplink_telemetry, uplink_publish, uplink_bytes, uplink_acked, uplink_nacked, uplink_duplicates,
    dropped_forbidden, dropped_oversize, dropped_queue_full, throttled, waited_queue_full,
    subscribes, refused_subscribes, retained_left_out,
    // downlink
    downlink_sent, downlink_acked, downlink_unheard, downlink_expired, downlink_too_large, downlink_queue_full,
}
