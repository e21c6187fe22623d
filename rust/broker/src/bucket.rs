//! A token bucket: a steady rate with a burst above it.

use std::time::{Duration, Instant};

pub struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub fn full(burst: f64) -> Self {
        Self {
            tokens: burst,
            filled: Instant::now(),
        }
    }

    /// One token: None when there was one, else how long until there may be one.
    pub fn spend(&mut self, now: Instant, per_second: f64, burst: f64) -> Option<Duration> {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * per_second;
        self.tokens = (self.tokens + gained).min(burst);
        self.filled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return None;
        }
        // At least a millisecond: the timer is no finer.
        Some(Duration::from_secs_f64(
            ((1.0 - self.tokens) / per_second).max(0.001),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_holds() {
        let (mut bucket, start) = (Bucket::full(3.0), Instant::now());
        assert!((0..3).all(|_| bucket.spend(start, 10.0, 3.0).is_none()));
        let wait = bucket.spend(start, 10.0, 3.0).expect("empty");
        assert!(wait > Duration::from_millis(90) && wait <= Duration::from_millis(100));
        assert!(
            bucket
                .spend(start + Duration::from_millis(101), 10.0, 3.0)
                .is_none()
        );
        assert!(
            bucket
                .spend(start + Duration::from_millis(102), 10.0, 3.0)
                .is_some()
        );
    }

    #[test]
    fn rest_earns_no_more_than_the_burst() {
        let (mut bucket, later) = (
            Bucket::full(2.0),
            Instant::now() + Duration::from_secs(3600),
        );
        assert!((0..2).all(|_| bucket.spend(later, 10.0, 2.0).is_none()));
        assert!(bucket.spend(later, 10.0, 2.0).is_some());
    }
}
