//! Times in microseconds, counted in buckets that grow by an eighth: a quantile is right to about 12 %, in 4 KiB.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const STEPS: usize = 8;
const BUCKETS: usize = 64 * STEPS;

pub struct Histogram {
    counts: Box<[AtomicU64]>,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub fn record(&self, time: Duration) {
        let us = (time.as_micros() as u64).max(1);
        self.counts[bucket(us)].fetch_add(1, Relaxed);
        self.max.fetch_max(us, Relaxed);
    }

    /// Begin anew; what is recorded at this very moment may fall on either side.
    pub fn clear(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
        self.max.store(0, Relaxed);
    }

    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// The lower border of the bucket in which this share of all times is reached; 0 when there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let total: u64 = self.counts.iter().map(|count| count.load(Relaxed)).sum();
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count.load(Relaxed);
            if total > 0 && seen >= wanted {
                return border(index);
            }
        }
        0
    }
}

fn bucket(us: u64) -> usize {
    let power = us.ilog2() as usize;
    let within = if power >= 3 {
        (us >> (power - 3)) as usize & (STEPS - 1)
    } else {
        0
    };
    power * STEPS + within
}

fn border(index: usize) -> u64 {
    let (power, within) = (index / STEPS, (index % STEPS) as u64);
    if power >= 3 {
        (STEPS as u64 + within) << (power - 3)
    } else {
        1 << power
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_an_eighth() {
        let histogram = Histogram::default();
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        for (share, exact) in [(0.5, 5_000.0), (0.99, 9_900.0)] {
            let found = histogram.quantile(share) as f64;
            assert!(found <= exact && found >= exact * 0.87, "{share}: {found}");
        }
        assert_eq!(
            (histogram.max(), Histogram::default().quantile(0.5)),
            (10_000, 0)
        );
    }
}
