//! A histogram of times in microseconds. Buckets grow by an eighth: a quantile is exact to 12 %, in 4 KiB.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const STEPS_PER_POWER: usize = 8;
const BUCKETS: usize = 64 * STEPS_PER_POWER;

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
}
