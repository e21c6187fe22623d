//! What the fleet has done so far.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::histogram::LatencyHistogram;

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        /// Counters; `connected` is a gauge.
        #[derive(Default)]
        pub struct SimulationCounters {
            $(pub $name: AtomicU64,)*
            /// From the write of a QoS-1 telemetry message to its PUBACK.
            pub puback_time: LatencyHistogram,
            /// From the opening of the socket to the CONNACK.
            pub connect_time: LatencyHistogram,
        }

        impl SimulationCounters {
            /// Names and values; times in microseconds.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                let mut values = vec![$((stringify!($name), self.$name.load(Relaxed))),*];
                values.extend(self.quantiles());
                values
            }
        }
    };
}

// The names are the keys of `Simulation.stats()` in Python.
counters! {
    // connections: open now; accepted, refused by the broker, failed to open, closed by the broker
    connected, connects, refused, failed, lost,
    // telemetry: written, acknowledged, without a PUBACK when the connection closed
    sent, confirmed, abandoned,
    // commands: received, of these repeated, with a result, expired; messages about them
    commands, repeats, answered, expired, results,
    schedules,
    // injected faults
    fault_silent, fault_slow, fault_duplicate, fault_late, fault_reconnect, fault_dirty, fault_storm,
}

impl SimulationCounters {
    pub(crate) fn increment(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// A connection has closed, with so many unacknowledged telemetry messages.
    pub(crate) fn count_closed(&self, unacknowledged: u64) {
        self.abandoned.fetch_add(unacknowledged, Relaxed);
        self.connected.fetch_sub(1, Relaxed);
    }

    fn quantiles(&self) -> [(&'static str, u64); 8] {
        let (puback, connect) = (&self.puback_time, &self.connect_time);
        [
            ("confirmation_p50_us", puback.quantile(0.5)),
            ("confirmation_p90_us", puback.quantile(0.9)),
            ("confirmation_p99_us", puback.quantile(0.99)),
            ("confirmation_max_us", puback.max()),
            ("connect_p50_us", connect.quantile(0.5)),
            ("connect_p90_us", connect.quantile(0.9)),
            ("connect_p99_us", connect.quantile(0.99)),
            ("connect_max_us", connect.max()),
        ]
    }
}
