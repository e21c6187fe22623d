//! What a simulated device does once it is connected: reports, hears, obeys, and fails as the plan says.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::Tally;
use super::device::{Device, KEEP_ALIVE_S};
use super::firmware::{self, Order, Request, Weather, Wish};
use super::speech::{Heard, Message};
use crate::clock::now_ms;

/// How a visit ended, when it did not end by an error.
pub(super) enum Visit {
    Over,
    ComeBack { polite: bool },
    Storm,
}

/// Ids a device remembers, as our firmware does.
const REMEMBERED: usize = 16;
/// A late answer comes so long after the deadline …
const LATE_BY: Duration = Duration::from_secs(1);
/// … which is this long after the command, where the firmware is not told (the service's own default).
const USUAL_DEADLINE: Duration = Duration::from_secs(60);
const PING_EVERY: Duration = Duration::from_secs(KEEP_ALIVE_S as u64 / 2);

/// Whether this device is among a share of the fleet. The shares of different faults fall on different devices.
fn among(index: usize, offset: usize, share: f64) -> bool {
    // A multiplicative hash spreads neighbours; the golden ratio's 32 bits.
    let spread = (index + offset * 1009).wrapping_mul(2_654_435_769) as u32;
    f64::from(spread) < share * f64::from(u32::MAX)
}

/// When things are due during one visit.
struct Timetable {
    interval: Option<Duration>,
    report: Instant,
    ping: Instant,
}

impl Device<'_> {
    fn timetable(&self) -> Timetable {
        let (plan, count) = (&self.fleet.plan, self.fleet.count);
        let now = Instant::now();
        let interval = (plan.rate > 0.0).then(|| Duration::from_secs_f64(count as f64 / plan.rate));
        // Each device at its own moment of the interval, so that the fleet speaks evenly.
        let share = (self.persona.index as f64 + 0.5) / count as f64;
        Timetable {
            interval,
            report: now + interval.map_or(Duration::ZERO, |interval| interval.mul_f64(share)),
            ping: now + PING_EVERY,
        }
    }

    /// Report and obey until it is time to go.
    pub(super) async fn stay(&mut self) -> io::Result<Visit> {
        let end = self.fleet.end;
        let mut times = self.timetable();
        self.postpone_departures();
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(Visit::Over);
            }
            if let Some(polite) = self.departure(now) {
                return Ok(Visit::ComeBack { polite });
            }
            let open = self.unconfirmed.len() < self.fleet.plan.window;
            self.what_is_due(&mut times, open, now)?;
            self.flush().await?;
            let busy = open && times.interval.is_none();
            let owed = self.persona.owed.front().map(|(when, _)| *when);
            let report = Some(times.report).filter(|_| open);
            let [reconnect, dirty] = self.persona.departures;
            let next = [report, end, reconnect, dirty, owed];
            let next = next.into_iter().flatten().fold(times.ping, Instant::min);
            tokio::select! {
                heard = self.read() => {
                    let heard = heard?;
                    self.hear(heard)?;
                    while let Some(more) = self.overheard()? {
                        self.hear(more)?;
                    }
                }
                () = sleep_until(next.into()), if !busy => {}
                () = tokio::task::yield_now(), if busy => {}
            }
        }
    }

    /// What fell due while it was away is not made up for.
    fn postpone_departures(&mut self) {
        let (faults, now) = (&self.fleet.plan.faults, Instant::now());
        let every = [faults.reconnect_every, faults.dirty_every];
        for (due, every) in self.persona.departures.iter_mut().zip(every) {
            if due.is_some_and(|due| due <= now) {
                *due = every.map(|every| now + every);
            }
        }
    }

    /// Whether it is time to leave, and if so, with a goodbye; the next time is set then.
    fn departure(&mut self, now: Instant) -> Option<bool> {
        let faults = &self.fleet.plan.faults;
        let every = [faults.reconnect_every, faults.dirty_every];
        let departures = self.persona.departures.iter_mut().zip(every);
        for ((due, every), polite) in departures.zip([true, false]) {
            if due.is_some_and(|due| due <= now) {
                *due = every.map(|every| now + every);
                return Some(polite);
            }
        }
        None
    }

    fn what_is_due(&mut self, times: &mut Timetable, open: bool, now: Instant) -> io::Result<()> {
        if now >= times.ping {
            self.ping()?;
            times.ping = now + PING_EVERY;
        }
        while self
            .persona
            .owed
            .front()
            .is_some_and(|(when, _)| *when <= now)
        {
            if let Some((_, order)) = self.persona.owed.pop_front() {
                self.finish(&order)?;
            }
        }
        if open && times.report <= now {
            self.report()?;
            // A late one is not made up for: the rate is a rate, not a debt.
            times.report = times
                .interval
                .map_or(now, |interval| (times.report + interval).max(now));
        }
        Ok(())
    }

    fn report(&mut self) -> io::Result<()> {
        let (plan, persona) = (&self.fleet.plan, &mut *self.persona);
        let mut weather = Weather::at(now_ms(), persona.index, persona.relay);
        weather.sequence = persona.sequence;
        weather.numbered = plan.journal;
        let number = persona.sequence;
        persona.sequence += 1;
        let message = firmware::telemetry(plan.profile, &weather, persona.relay);
        let packet_id = self.publish(message, plan.qos.min(1))?;
        Tally::one(&self.fleet.tally.sent);
        if packet_id > 0 {
            self.unconfirmed
                .push_back((packet_id, number, Instant::now()));
        }
        Ok(())
    }

    fn hear(&mut self, heard: Heard) -> io::Result<()> {
        match heard {
            Heard::Confirmed(packet_id) => self.confirmed(packet_id),
            Heard::Message(message) => self.receive(&message)?,
            Heard::Goodbye => return Err(io::ErrorKind::ConnectionAborted.into()),
            Heard::Accepted | Heard::Refused | Heard::Other => {}
        }
        Ok(())
    }

    fn confirmed(&mut self, packet_id: u16) {
        let found = self
            .unconfirmed
            .iter()
            .position(|(id, ..)| *id == packet_id);
        if let Some((_, number, written)) = found.and_then(|index| self.unconfirmed.remove(index)) {
            let tally = &self.fleet.tally;
            tally.confirmation.record(written.elapsed());
            Tally::one(&tally.confirmed);
            self.fleet.journal.note(self.persona.index, number);
        }
    }

    fn receive(&mut self, message: &Message) -> io::Result<()> {
        if let Some(packet_id) = message.packet_id {
            self.confirm(packet_id)?;
        }
        let below = message
            .topic
            .strip_prefix(self.prefix.as_str())
            .unwrap_or_default();
        let (profile, relay) = (self.fleet.plan.profile, self.persona.relay);
        match firmware::understand(profile, below, &message.payload, relay, now_ms()) {
            Request::Order(order) => self.obey(order),
            Request::Plan(answer) => {
                Tally::one(&self.fleet.tally.schedules);
                self.say(answer)
            }
            Request::Question(answers) => answers.into_iter().try_for_each(|each| self.say(each)),
            Request::Unknown => Ok(()),
        }
    }

    fn obey(&mut self, order: Order) -> io::Result<()> {
        let (tally, faults) = (&self.fleet.tally, &self.fleet.plan.faults);
        let index = self.persona.index;
        Tally::one(&tally.commands);
        if self.has_had(&order) {
            Tally::one(&tally.repeats);
            return self.finish(&order);
        }
        if among(index, 1, faults.silent) {
            Tally::one(&tally.fault_silent);
            return Ok(());
        }
        if order.expires_ms.is_some_and(|deadline| deadline < now_ms()) {
            Tally::one(&tally.expired);
            return self.answer(vec![firmware::expired(&order, self.persona.relay)]);
        }
        if among(index, 4, faults.late) {
            Tally::one(&tally.fault_late);
            let when = Instant::now() + deadline(&order) + LATE_BY;
            self.persona.owed.push_back((when, order));
            return Ok(());
        }
        self.run(&order)?;
        if among(index, 2, faults.slow) {
            Tally::one(&tally.fault_slow);
            let when = Instant::now() + faults.slowness;
            self.persona.owed.push_back((when, order));
            return Ok(());
        }
        self.finish(&order)
    }

    /// Whether a command with this id has come before; it is remembered from now on.
    fn has_had(&mut self, order: &Order) -> bool {
        let known = &mut self.persona.known;
        if order.id.is_empty() || known.contains(&order.id) {
            return !order.id.is_empty();
        }
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(order.id.clone());
        false
    }

    fn run(&mut self, order: &Order) -> io::Result<()> {
        self.persona.relay = match order.wish {
            Wish::Set(relay) => relay,
            Wish::Toggle => !self.persona.relay,
            Wish::Nothing => self.persona.relay,
        };
        self.answer(firmware::begun(
            self.fleet.plan.profile,
            order,
            self.persona.relay,
            now_ms(),
        ))
    }

    /// The last word, as often as this device says it.
    fn finish(&mut self, order: &Order) -> io::Result<()> {
        let (plan, tally) = (&self.fleet.plan, &self.fleet.tally);
        Tally::one(&tally.answered);
        let twice = among(self.persona.index, 3, plan.faults.duplicating);
        for again in [false, true] {
            if again && !twice {
                break;
            }
            if again {
                Tally::one(&tally.fault_duplicate);
            }
            self.answer(firmware::done(
                plan.profile,
                order,
                self.persona.relay,
                now_ms(),
            ))?;
        }
        Ok(())
    }

    fn answer(&mut self, messages: Vec<firmware::Said>) -> io::Result<()> {
        self.fleet
            .tally
            .results
            .fetch_add(messages.len() as u64, Relaxed);
        messages.into_iter().try_for_each(|each| self.say(each))
    }
}

/// From now.
fn deadline(order: &Order) -> Duration {
    order.expires_ms.map_or(USUAL_DEADLINE, |deadline| {
        Duration::from_millis(u64::try_from(deadline - now_ms()).unwrap_or(0))
    })
}
