//! A grant's weekly window. Defined by `domain/grants/reference.py`.
//!
//! The zone's rules come as TZif bytes (RFC 9636) from the caller, the very ones Python reads. The stretch of time around the last
//! question that has one UTC offset is kept, so that nearly every answer is arithmetic on two integers.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY_S: i64 = 86_400;

#[derive(Debug, PartialEq, Eq)]
pub struct BadZone(pub String);

pub struct Window {
    /// Bit 0 is Sunday.
    days: u8,
    /// Minutes of the local day, [from, to).
    span: Option<(i64, i64)>,
    zone: TimeZone,
    steady: Steady,
}

/// From `since` up to `until` (Unix seconds) the local clock is `offset` seconds ahead of UTC.
#[derive(Clone, Copy)]
struct Steady {
    since: i64,
    until: i64,
    offset: i64,
}

impl Window {
    pub fn new(
        days: u8,
        span: Option<(u16, u16)>,
        tzif: &[u8],
        name: &str,
    ) -> Result<Self, BadZone> {
        let zone = TimeZone::tzif(name, tzif).map_err(|error| BadZone(error.to_string()))?;
        let span = span.map(|(from, to)| (i64::from(from), i64::from(to)));
        Ok(Self {
            days,
            span,
            zone,
            steady: Steady {
                since: 0,
                until: 0,
                offset: 0,
            },
        })
    }

    pub fn is_open(&mut self, at_ms: i64) -> bool {
        let local = {
            let at_s = at_ms.div_euclid(1000);
            at_s.saturating_add(self.offset(at_s))
        };
        let day = local.div_euclid(DAY_S);
        let minute = local.rem_euclid(DAY_S) / 60;
        // 1970-01-01 was a Thursday.
        let today = self.is_active(day + 4);
        match self.span {
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
        if at_s < self.steady.since || at_s >= self.steady.until {
            self.steady = self.steady_at(at_s);
        }
        self.steady.offset
    }

    /// An instant beyond what the calendar holds counts as UTC.
    fn steady_at(&self, at_s: i64) -> Steady {
        let Ok(at) = Timestamp::from_second(at_s) else {
            return Steady {
                since: at_s,
                until: at_s,
                offset: 0,
            };
        };
        let offset = i64::from(self.zone.to_offset(at).seconds());
        // `preceding` is strict: an instant that is itself a change begins its own stretch.
        let since = self
            .zone
            .preceding(at)
            .next()
            .map_or(i64::MIN, |change| change.timestamp().as_second());
        let until = self
            .zone
            .following(at)
            .next()
            .map_or(i64::MAX, |change| change.timestamp().as_second());
        let since = if self.changes_at(at_s) { at_s } else { since };
        Steady {
            since,
            until,
            offset,
        }
    }

    fn changes_at(&self, at_s: i64) -> bool {
        let Ok(before) = Timestamp::from_second(at_s - 1) else {
            return true;
        };
        self.zone
            .following(before)
            .next()
            .is_some_and(|change| change.timestamp().as_second() == at_s)
    }
}
