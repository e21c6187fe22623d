//! A token bucket: a steady rate with a burst above it.

use std::time::{Duration, Instant};

pub struct TokenBucket {
    tokens: f64,
    refilled: Instant,
}

impl TokenBucket {
    pub fn full(burst: f64) -> Self {
        Self {
            tokens: burst,
            refilled: Instant::now(),
        }
    }

    /// Take one token. None when there was one, else how long until the next.
    pub fn take(&mut self, now: Instant, per_second: f64, burst: f64) -> Option<Duration> {
        let elapsed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * per_second).min(burst);
        self.refilled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return None;
        }
        // At least a millisecond, the resolution of the timer.
        Some(Duration::from_secs_f64(((1.0 - self.tokens) / per_second).max(0.001)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_applies() {
        let (mut bucket, start) = (TokenBucket::full(3.0), Instant::now());
        assert!((0..3).all(|_| bucket.take(start, 10.0, 3.0).is_none()));
        let wait = bucket.take(start, 10.0, 3.0).expect("empty");
        assert!(wait > Duration::from_millis(90) && wait <= Duration::from_millis(100));
        let after = |ms| start + Duration::from_millis(ms);
        assert!(bucket.take(after(101), 10.0, 3.0).is_none());
        assert!(bucket.take(after(102), 10.0, 3.0).is_some());
    }

    #[test]
    fn an_idle_bucket_holds_no_more_than_the_burst() {
        let later = Instant::now() + Duration::from_secs(3600);
        let mut bucket = TokenBucket::full(2.0);
        assert!((0..2).all(|_| bucket.take(later, 10.0, 2.0).is_none()));
        assert!(bucket.take(later, 10.0, 2.0).is_some());
    }
}
