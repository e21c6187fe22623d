//! A grant's rolling limit. Defined by `domain/grants/reference_window_and_rate_limit.py`.
//!
//! Uses are Unix milliseconds. The caller reads them under the lock of the grant's row, so that the decision is exact across
//! instances. Uses of the last 60 seconds count, and so do later ones, from an instance whose clock is ahead.

const MINUTE_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantRateLimitDecision {
    pub is_allowed: bool,
    /// Further uses allowed after this one.
    pub remaining: usize,
    /// Unix milliseconds when the next use leaves the window and another is allowed.
    pub next_free_ms: i64,
}

/// Whether one more use is allowed at `now_ms`. `limit`: uses per minute, at least 1. `uses` may be in any order.
pub fn check_rate_limit(uses: &[i64], limit: usize, now_ms: i64) -> GrantRateLimitDecision {
    let since = now_ms.saturating_sub(MINUTE_MS);
    let mut recent: Vec<i64> = uses.iter().copied().filter(|at| *at > since).collect();
    if recent.len() < limit {
        let oldest = recent.iter().copied().min().unwrap_or(now_ms).min(now_ms);
        return GrantRateLimitDecision {
            is_allowed: true,
            remaining: limit - recent.len() - 1,
            next_free_ms: oldest.saturating_add(MINUTE_MS),
        };
    }
    let index = recent.len() - limit;
    let (_, blocking, _) = recent.select_nth_unstable(index);
    GrantRateLimitDecision {
        is_allowed: false,
        remaining: 0,
        next_free_ms: blocking.saturating_add(MINUTE_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_use_is_allowed_and_the_next_is_not() {
        let decide = |limit| {
            let decision = check_rate_limit(&[1_000, 2_000], limit, 3_000);
            let remaining = decision.remaining;
            (decision.is_allowed, remaining, decision.next_free_ms)
        };
        assert_eq!(decide(3), (true, 0, 61_000));
        assert_eq!(decide(2), (false, 0, 61_000));
    }

    #[test]
    fn a_use_counts_for_sixty_seconds_to_the_millisecond() {
        assert!(!check_rate_limit(&[1_000], 1, 60_999).is_allowed);
        assert!(check_rate_limit(&[1_000], 1, 61_000).is_allowed);
    }

    #[test]
    fn after_the_limit_is_lowered_enough_uses_must_leave_the_window_first() {
        let used = [5_000, 1_000, 3_000, 2_000, 4_000];
        assert_eq!(check_rate_limit(&used, 2, 6_000).next_free_ms, 64_000);
    }
}
