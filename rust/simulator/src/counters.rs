//! What the fleet has done so far: counters, times, and the sequence numbers of acknowledged telemetry messages.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

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

const STEPS_PER_POWER: usize = 8;
const BUCKETS: usize = 64 * STEPS_PER_POWER;

/// Times in microseconds. Buckets grow by an eighth: a quantile is exact to 12 %, in 4 KiB.
pub struct LatencyHistogram {
    counts: Box<[AtomicU64]>,
    max: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max: AtomicU64::new(0),
        }
    }
}

impl LatencyHistogram {
    pub fn record(&self, time: Duration) {
        let us = (time.as_micros() as u64).max(1);
        self.counts[bucket(us)].fetch_add(1, Relaxed);
        self.max.fetch_max(us, Relaxed);
    }

    /// A time that is recorded during the call may be kept or lost.
    pub fn clear(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
        self.max.store(0, Relaxed);
    }

    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// The lower bound of the bucket that holds this quantile, 0 to 1; 0 for an empty histogram.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let total: u64 = self.counts.iter().map(|count| count.load(Relaxed)).sum();
        let rank = (total as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count.load(Relaxed);
            if total > 0 && seen >= rank {
                return lower_bound(index);
            }
        }
        0
    }
}

fn bucket(us: u64) -> usize {
    let power = us.ilog2() as usize;
    let step = if power >= 3 {
        (us >> (power - 3)) as usize & (STEPS_PER_POWER - 1)
    } else {
        0
    };
    power * STEPS_PER_POWER + step
}

fn lower_bound(index: usize) -> u64 {
    let (power, step) = (index / STEPS_PER_POWER, (index % STEPS_PER_POWER) as u64);
    if power >= 3 {
        (STEPS_PER_POWER as u64 + step) << (power - 3)
    } else {
        1 << power
    }
}

/// The first and last sequence number of a range without gaps, both included.
pub type PubackSequenceRange = (u64, u64);

/// One list of ranges for each device; no lists where nothing is logged. PUBACKs arrive in order, so a range ends only where a message
/// was never acknowledged.
#[derive(Default)]
pub struct ReceivedPubackLog {
    devices: Vec<Mutex<Vec<PubackSequenceRange>>>,
}

impl ReceivedPubackLog {
    pub fn new(devices: usize) -> Self {
        Self {
            devices: (0..devices).map(|_| Mutex::default()).collect(),
        }
    }

    pub fn record(&self, device: usize, sequence: u64) {
        let Some(ranges) = self.devices.get(device) else {
            return;
        };
        let mut ranges = ranges.lock();
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == sequence => *last = sequence,
            _ => ranges.push((sequence, sequence)),
        }
    }

    pub fn ranges(&self, device: usize) -> Vec<PubackSequenceRange> {
        let ranges = self.devices.get(device);
        ranges.map_or_else(Vec::new, |ranges| ranges.lock().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_an_eighth() {
        let histogram = LatencyHistogram::default();
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        for (quantile, exact) in [(0.5, 5_000.0), (0.99, 9_900.0)] {
            let found = histogram.quantile(quantile) as f64;
            assert!(found <= exact && found >= exact * 0.87, "{quantile}: {found}");
        }
        assert_eq!((histogram.max(), LatencyHistogram::default().quantile(0.5)), (10_000, 0));
    }

    #[test]
    fn a_range_ends_where_a_sequence_number_is_missing() {
        let log = ReceivedPubackLog::new(2);
        for sequence in [0, 1, 2, 5, 6, 9] {
            log.record(1, sequence);
        }
        assert_eq!(log.ranges(1), [(0, 2), (5, 6), (9, 9)]);
        assert!(log.ranges(0).is_empty() && log.ranges(7).is_empty());
    }
}
