//! A grant's rolling limit. Defined by `domain/grants/reference.py`.
//!
//! Uses are instants in Unix milliseconds; the caller reads them where they are counted, under that row's lock, so that the
//! answer here is exact for every instance. Those of the last 60 seconds count, and those a faster clock has dated ahead.

const MINUTE_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub fits: bool,
    /// How many more fit once this one is counted.
    pub remaining: usize,
    /// When the next use leaves the window and makes room for another.
    pub frees_ms: i64,
}

/// Whether one more use fits at `now_ms`; `limit` is at least 1, and `uses` may be in any order.
pub fn weigh(uses: &[i64], limit: usize, now_ms: i64) -> Allowance {
    let since = now_ms.saturating_sub(MINUTE_MS);
    let mut recent: Vec<i64> = uses.iter().copied().filter(|at| *at > since).collect();
    if recent.len() < limit {
        let oldest = recent.iter().copied().min().unwrap_or(now_ms).min(now_ms);
        return Allowance {
            fits: true,
            remaining: limit - recent.len() - 1,
            frees_ms: oldest.saturating_add(MINUTE_MS),
        };
    }
    let place = recent.len() - limit;
    let (_, nth, _) = recent.select_nth_unstable(place);
    Allowance {
        fits: false,
        remaining: 0,
        frees_ms: nth.saturating_add(MINUTE_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_use_fits_and_the_next_does_not() {
        let used = [1_000, 2_000];
        assert_eq!(
            weigh(&used, 3, 3_000),
            Allowance {
                fits: true,
                remaining: 0,
                frees_ms: 61_000
            }
        );
        assert_eq!(
            weigh(&used, 2, 3_000),
            Allowance {
                fits: false,
                remaining: 0,
                frees_ms: 61_000
            }
        );
    }

    #[test]
    fn a_use_counts_for_sixty_seconds_to_the_millisecond() {
        assert!(!weigh(&[1_000], 1, 60_999).fits);
        assert!(weigh(&[1_000], 1, 61_000).fits);
    }

    #[test]
    fn a_limit_that_was_lowered_frees_when_enough_have_left() {
        let used = [5_000, 1_000, 3_000, 2_000, 4_000];
        assert_eq!(weigh(&used, 2, 6_000).frees_ms, 64_000);
    }
}
