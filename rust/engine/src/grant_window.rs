//! A grant's weekly window. Defined by `domain/grants/reference_window_and_rate_limit.py`.
//!
//! The caller passes the time zone as TZif bytes (RFC 9636), the same that Python reads. The window remembers how long the current UTC
//! offset holds, so that nearly every call only adds and compares integers.

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
