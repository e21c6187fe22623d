//! A grant's weekly window and its rolling limit. Defined by `domain/grants/reference.py`.
//!
//! The caller of a window passes the time zone as TZif bytes (RFC 9636), the same that Python reads. The window remembers how long the
//! current UTC offset holds, so that nearly every call only adds and compares integers.
//!
//! Uses are Unix milliseconds. The caller of the limit reads them under the lock of the grant's row, so that the decision is exact across
//! instances. Uses of the last 60 seconds count, and so do later ones, from an instance whose clock is ahead.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY_S: i64 = 86_400;

#[derive(Debug, PartialEq, Eq)]
pub struct TzifParseError(pub String);

pub struct CompiledGrantWindow {
    /// Bit 0 is Sunday.
    days: u8,
    /// Minutes of the local day, [from, to); past midnight when `from >= to`. None: all day.
    minutes: Option<(i64, i64)>,
    zone: TimeZone,
    current_offset: OffsetSpan,
}

/// From `start_s` up to `end_s` (Unix seconds) the local clock is `offset` seconds ahead of UTC.
#[derive(Clone, Copy, Default)]
struct OffsetSpan {
    start_s: i64,
    end_s: i64,
    offset: i64,
}

impl CompiledGrantWindow {
    pub fn new(days: u8, minutes: Option<(u16, u16)>, tzif: &[u8], name: &str) -> Result<Self, TzifParseError> {
        let zone = TimeZone::tzif(name, tzif).map_err(|error| TzifParseError(error.to_string()))?;
        let minutes = minutes.map(|(from, to)| (i64::from(from), i64::from(to)));
        Ok(Self {
            days,
            minutes,
            zone,
            current_offset: OffsetSpan::default(),
        })
    }

    pub fn is_open(&mut self, at_ms: i64) -> bool {
        let at_s = at_ms.div_euclid(1000);
        let local = at_s.saturating_add(self.offset(at_s));
        let day = local.div_euclid(DAY_S);
        let minute = local.rem_euclid(DAY_S) / 60;
        // 1970-01-01 was a Thursday.
        let today = self.is_active(day + 4);
        match self.minutes {
            None => today,
            Some((from, to)) if from < to => today && from <= minute && minute < to,
            Some((from, _)) if minute >= from => today,
            Some((_, to)) => minute < to && self.is_active(day + 3),
        }
    }

    fn is_active(&self, day: i64) -> bool {
        self.days >> day.rem_euclid(7) & 1 == 1
    }

    #[inline]
    fn offset(&mut self, at_s: i64) -> i64 {
        if at_s < self.current_offset.start_s || at_s >= self.current_offset.end_s {
            self.current_offset = self.offset_span_at(at_s);
        }
        self.current_offset.offset
    }

    /// Instants outside jiff's calendar count as UTC.
    fn offset_span_at(&self, at_s: i64) -> OffsetSpan {
        let Ok(at) = Timestamp::from_second(at_s) else {
            return OffsetSpan::default();
        };
        // `preceding` is strict, and a span includes the instant of the transition that begins it.
        let after = Timestamp::from_second(at_s + 1).unwrap_or(Timestamp::MAX);
        let preceding = self.zone.preceding(after).next();
        let following = self.zone.following(at).next();
        OffsetSpan {
            start_s: preceding.map_or(i64::MIN, |change| change.timestamp().as_second()),
            end_s: following.map_or(i64::MAX, |change| change.timestamp().as_second()),
            offset: i64::from(self.zone.to_offset(at).seconds()),
        }
    }
}

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
