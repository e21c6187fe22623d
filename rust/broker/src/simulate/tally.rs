//! What a fleet has done so far, counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::histogram::Histogram;

macro_rules! tally {
    ($($name:ident),* $(,)?) => {
        /// Counters; `connected` is a gauge.
        #[derive(Default)]
        pub struct Tally {
            $(pub $name: AtomicU64,)*
            /// From the write of a QoS-1 telemetry message to its PUBACK.
            pub confirmation: Histogram,
            /// From opening the socket to the CONNACK.
            pub connecting: Histogram,
        }

        impl Tally {
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                let mut values = vec![$((stringify!($name), self.$name.load(Relaxed))),*];
                values.extend(self.times());
                values
            }
        }
    };
}

tally! {
    // connections: those of now, all that were let in, turned away, not reached, ended by the other side
    connected, connects, refused, failed, lost,
    // telemetry: written, confirmed, given up unconfirmed with their connection
    sent, confirmed, abandoned,
    // commands: all that came, known ones that came again, those with their last word said, past their deadline; messages said about them
    commands, repeats, answered, expired, results,
    schedules,
    // faults that were injected
    fault_silent, fault_slow, fault_duplicate, fault_late, fault_reconnect, fault_dirty, fault_storm,
}

impl Tally {
    pub(super) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn abandon(&self, messages: u64) {
        self.abandoned.fetch_add(messages, Relaxed);
    }

    pub(super) fn gone(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    fn times(&self) -> [(&'static str, u64); 8] {
        let (confirmation, connecting) = (&self.confirmation, &self.connecting);
        [
            ("confirmation_p50_us", confirmation.quantile(0.5)),
            ("confirmation_p90_us", confirmation.quantile(0.9)),
            ("confirmation_p99_us", confirmation.quantile(0.99)),
            ("confirmation_max_us", confirmation.max()),
            ("connect_p50_us", connecting.quantile(0.5)),
            ("connect_p90_us", connecting.quantile(0.9)),
            ("connect_p99_us", connecting.quantile(0.99)),
            ("connect_max_us", connecting.max()),
        ]
    }
}
