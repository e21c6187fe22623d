//! Count, minimum, maximum, sum and last value of stored numbers, per time bucket and metric. Defined by
//! `domain/telemetry/aggregation.py`.

use crate::payload_parser::MetricValue;
use crate::reading_packing::{UnpackError, decode_row};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AggregateBucket {
    pub start_ms: i64,
    pub metric: u32,
    pub count: u64,
    pub min: f64,
    pub max: f64,
    pub sum: f64,
    pub last: f64,
    pub last_ms: i64,
}

impl AggregateBucket {
    fn add(&mut self, value: f64) {
        self.count += 1;
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        // Saturates: an infinite sum has no mean.
        self.sum = (self.sum + value).clamp(-f64::MAX, f64::MAX);
    }
}

pub struct BucketAggregator {
    step_ms: i64,
    only_metric: Option<u32>,
    buckets: Vec<AggregateBucket>,
    /// Index of the first bucket of the newest row's time: rows come newest first, so earlier entries are complete.
    current: usize,
}

impl BucketAggregator {
    /// `step_ms`: width of a bucket, at least 1. `only_metric`: ignore all other metrics.
    pub fn new(step_ms: i64, only_metric: Option<u32>) -> Self {
        Self {
            step_ms: step_ms.max(1),
            only_metric,
            buckets: Vec::new(),
            current: 0,
        }
    }

    /// Adds one stored row; rows must come newest first.
    pub fn add(&mut self, ts_ms: i64, packed: &[u8]) -> Result<(), UnpackError> {
        let start_ms = ts_ms - ts_ms.rem_euclid(self.step_ms);
        if self
            .buckets
            .get(self.current)
            .is_some_and(|bucket| bucket.start_ms != start_ms)
        {
            self.current = self.buckets.len();
        }
        for reading in decode_row(packed)?.1 {
            let (metric, value) = reading?;
            if self.only_metric.is_some_and(|only| only != metric) {
                continue;
            }
            let value = match value {
                MetricValue::Number(value) => value,
                MetricValue::Bool(value) => f64::from(u8::from(value)),
                MetricValue::Text(_) => continue,
            };
            let current_buckets = &mut self.buckets[self.current..];
            match current_buckets.iter_mut().find(|bucket| bucket.metric == metric) {
                Some(bucket) => bucket.add(value),
                None => self.buckets.push(AggregateBucket {
                    start_ms,
                    metric,
                    count: 1,
                    min: value,
                    max: value,
                    sum: value,
                    last: value,
                    last_ms: ts_ms,
                }),
            }
        }
        Ok(())
    }

    /// By time, newest first, then by metric number.
    pub fn buckets(&self) -> Vec<AggregateBucket> {
        let mut buckets = self.buckets.clone();
        buckets.sort_by_key(|bucket| (std::cmp::Reverse(bucket.start_ms), bucket.metric));
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::BucketAggregator;
    use crate::reading_packing::put_number;

    fn row(metric: u32, value: f64) -> Vec<u8> {
        let mut packed = Vec::new();
        put_number(&mut packed, metric, value);
        packed
    }

    #[test]
    fn buckets_are_separate_and_the_newest_value_is_the_last() {
        let mut aggregator = BucketAggregator::new(10, None);
        for (ts_ms, value) in [(25, 3.0), (21, 1.0), (19, 5.0)] {
            aggregator.add(ts_ms, &row(1, value)).unwrap();
        }
        let buckets = aggregator.buckets();
        assert_eq!(buckets.len(), 2);
        assert_eq!((buckets[0].start_ms, buckets[0].count), (20, 2));
        assert_eq!(
            (buckets[0].min, buckets[0].max, buckets[0].sum, buckets[0].last),
            (1.0, 3.0, 4.0, 3.0)
        );
        assert_eq!((buckets[1].start_ms, buckets[1].last_ms), (10, 19));
    }

    #[test]
    fn a_sum_beyond_the_range_of_a_double_saturates() {
        let mut aggregator = BucketAggregator::new(10, Some(1));
        for ts_ms in [3, 2, 1] {
            aggregator.add(ts_ms, &row(1, f64::MAX)).unwrap();
            aggregator.add(ts_ms, &row(2, 1.0)).unwrap();
        }
        let buckets = aggregator.buckets();
        assert_eq!((buckets.len(), buckets[0].sum), (1, f64::MAX));
    }
}
