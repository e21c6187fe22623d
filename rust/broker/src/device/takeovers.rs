//! How often connections of one device may close each other: two boards with one identity would do so thousands of times a second.
//!
//! Law: a device that has no other open connection is never kept out, unless it has just been at another instance. So a pause is at
//! most as long as a dead connection lives.

use std::time::{Duration, Instant};

/// What a new connection closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closes {
    Nothing,
    /// The silent one of several connections: a board that takes a new client id at each start leaves dead connections behind.
    Evicted,
    /// The connection of the same client.
    SameClient,
}

impl Closes {
    fn cost(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Evicted => 1,
            Self::SameClient => 6,
        }
    }
}

/// Takeovers within `WINDOW` without a pause, by their cost: five of the same client. One board on a bad network needs some.
const FREE: u32 = 30;
const WINDOW: Duration = Duration::from_secs(60);
/// The first pause; it doubles with each further takeover.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// After this long without an attempt the count begins again.
const CALM: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct TakeoverLimit {
    window_start: Option<Instant>,
    /// Cost of those in the window.
    in_window: u32,
    /// Pauses in a row.
    pauses: u32,
    paused_until: Option<Instant>,
    last_attempt: Option<Instant>,
    returns: bool,
}

impl TakeoverLimit {
    /// The device's connection here was closed because it came to another instance: its return is a takeover too.
    pub fn expect_return(&mut self) {
        self.returns = true;
    }

    /// Whether a new connection may open.
    pub fn admit(&mut self, closes: Closes, now: Instant) -> bool {
        let closes = if self.returns { Closes::SameClient } else { closes };
        let since = |moment: Option<Instant>| moment.map(|moment| now.saturating_duration_since(moment));
        if since(self.last_attempt).is_none_or(|calm| calm >= CALM) {
            *self = Self {
                returns: self.returns,
                ..Self::default()
            };
        }
        if closes == Closes::Nothing {
            return true;
        }
        self.last_attempt = Some(now);
        if self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        if since(self.window_start).is_none_or(|age| age >= WINDOW) {
            (self.window_start, self.in_window) = (Some(now), 0);
        }
        self.in_window += closes.cost();
        if self.pauses > 0 || self.in_window > FREE {
            let pause = FIRST_PAUSE.saturating_mul(1 << self.pauses.min(10)).min(MAX_PAUSE);
            self.paused_until = Some(now + pause);
            self.pauses += 1;
        }
        self.returns = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limit: &mut TakeoverLimit, start: Instant, seconds: std::ops::Range<u64>) -> usize {
        seconds
            .filter(|s| limit.admit(Closes::SameClient, start + Duration::from_secs(*s)))
            .count()
    }

    #[test]
    fn two_boards_that_close_each_other_come_in_ever_more_rarely() {
        let (mut limit, start) = (TakeoverLimit::default(), Instant::now());
        assert!((0..6).all(|_| limit.admit(Closes::SameClient, start)));
        assert!((0..1000).all(|_| !limit.admit(Closes::SameClient, start + Duration::from_millis(1999))));
        assert_eq!(admitted(&mut limit, start, 2..60), 4, "pauses of 2, 4, 8 and 16 seconds");
        assert_eq!(admitted(&mut limit, start, 60..660), 20, "twice a minute");
    }

    #[test]
    fn after_a_calm_time_the_count_begins_again() {
        let (mut limit, start) = (TakeoverLimit::default(), Instant::now());
        while limit.admit(Closes::SameClient, start) {}
        let later = start + CALM;
        assert!((0..6).all(|_| limit.admit(Closes::SameClient, later)));
    }

    #[test]
    fn a_device_without_another_connection_is_never_kept_out() {
        let (mut limit, start) = (TakeoverLimit::default(), Instant::now());
        while limit.admit(Closes::SameClient, start) {}
        assert!((0..100).all(|_| limit.admit(Closes::Nothing, start)));
    }

    #[test]
    fn a_board_that_leaves_dead_connections_behind_has_more_room() {
        let (mut limit, start) = (TakeoverLimit::default(), Instant::now());
        assert_eq!((0..1000).filter(|_| limit.admit(Closes::Evicted, start)).count(), 31);
    }

    #[test]
    fn a_return_from_another_instance_counts_once() {
        let (mut limit, start) = (TakeoverLimit::default(), Instant::now());
        for _ in 0..6 {
            limit.expect_return();
            assert!(limit.admit(Closes::Nothing, start));
        }
        limit.expect_return();
        assert!(!limit.admit(Closes::Nothing, start));
        assert!(limit.admit(Closes::Nothing, start + Duration::from_secs(3)));
        assert!(limit.admit(Closes::Nothing, start + Duration::from_secs(3)));
    }
}
