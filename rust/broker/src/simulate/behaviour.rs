//! What a simulated device does once it is connected: reports, hears, obeys, and fails as the plan says.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rmqtt_codec::types::QoS;
use rmqtt_codec::v3::Packet;
use tokio::time::sleep_until;
use tokio_util::codec::Decoder;

use super::device::{Device, KEEP_ALIVE_S, Visit};
use crate::clock::now_ms;

/// Whether this device is among a share of the fleet. The shares of different faults fall on different devices.
fn among(index: usize, offset: usize, share: f64) -> bool {
    // A multiplicative hash spreads neighbours; the golden ratio's 32 bits.
    let spread = (index + offset * 1009).wrapping_mul(2_654_435_769) as u32;
    f64::from(spread) < share * f64::from(u32::MAX)
}

impl Device<'_> {
    pub(super) fn say_state(&mut self, by: &str, id: &str) -> io::Result<()> {
        let relay = if self.relay { "ON" } else { "OFF" };
        let state = format!(
            r#"{{"relay":"{relay}","by":"{by}","id":"{id}","ts":{}}}"#,
            now_ms()
        );
        self.say("state", state.into(), true)
    }

    /// Five metrics that wander, each device on a course of its own.
    fn telemetry(&mut self) -> io::Result<()> {
        let ts = now_ms();
        let phase = ts as f64 / 10_000.0 + self.index as f64;
        let payload = format!(
            r#"{{"ts":{ts},"m":{{"temperature":{:.2},"humidity":{:.1},"voltage":{:.1},"current":{:.3},"rssi":{}}}}}"#,
            22.0 + 6.0 * phase.sin(),
            50.0 + 20.0 * (phase / 3.0).cos(),
            230.0 + 3.0 * (phase / 7.0).sin(),
            if self.relay {
                1.5 + 0.5 * phase.cos()
            } else {
                0.0
            },
            -60 - (self.index % 30) as i64,
        );
        let qos = if self.fleet.plan.qos == 0 {
            QoS::AtMostOnce
        } else {
            QoS::AtLeastOnce
        };
        let id = self.publish("telemetry", payload.into(), qos, false)?;
        self.fleet.tally.sent.fetch_add(1, Relaxed);
        if qos == QoS::AtLeastOnce {
            self.unconfirmed.push_back((id, Instant::now()));
        }
        Ok(())
    }

    /// Report and obey until it is time to go.
    pub(super) async fn stay(&mut self, count: usize, end: Option<Instant>) -> io::Result<Visit> {
        let plan = &self.fleet.plan;
        let start = Instant::now();
        let interval = (plan.rate > 0.0).then(|| Duration::from_secs_f64(count as f64 / plan.rate));
        // Each device at its own moment of the interval, so that the fleet speaks evenly.
        let share = (self.index as f64 + 0.5) / count as f64;
        let mut due = start + interval.map_or(Duration::ZERO, |interval| interval.mul_f64(share));
        let leave = plan
            .reconnect_every
            .map(|every| start + every.mul_f64(0.5 + share));
        let mut ping = start + Duration::from_secs(u64::from(KEEP_ALIVE_S) / 2);
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(Visit::Over);
            }
            if leave.is_some_and(|leave| now >= leave) {
                return Ok(Visit::ComeBack);
            }
            if now >= ping {
                self.write(Packet::PingRequest)?;
                ping = now + Duration::from_secs(u64::from(KEEP_ALIVE_S) / 2);
            }
            while self.owed.front().is_some_and(|(when, _)| *when <= now) {
                if let Some((_, id)) = self.owed.pop_front() {
                    self.finish(&id)?;
                }
            }
            let open = self.unconfirmed.len() < plan.window;
            if open && due <= now {
                self.telemetry()?;
                // A late one is not made up for: the rate is a rate, not a debt.
                due = interval.map_or(now, |interval| (due + interval).max(now));
            }
            self.flush().await?;
            let busy = open && interval.is_none();
            let next = [
                Some(due).filter(|_| open),
                end,
                leave,
                Some(ping),
                self.owed.front().map(|(when, _)| *when),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(ping);
            tokio::select! {
                packet = self.read() => {
                    let packet = packet?;
                    self.hear(packet)?;
                    self.hear_the_rest()?;
                }
                () = sleep_until(next.into()), if !busy => {}
                () = tokio::task::yield_now(), if busy => {}
            }
        }
    }

    /// What has been read already, without a system call each.
    fn hear_the_rest(&mut self) -> io::Result<()> {
        while let Some((packet, _)) = self
            .codec
            .decode(&mut self.input)
            .map_err(io::Error::other)?
        {
            self.hear(packet)?;
        }
        Ok(())
    }

    fn hear(&mut self, packet: Packet) -> io::Result<()> {
        let tally = &self.fleet.tally;
        match packet {
            Packet::PublishAck { packet_id } => {
                let found = self
                    .unconfirmed
                    .iter()
                    .position(|(id, _)| *id == packet_id.get());
                if let Some((_, written)) = found.and_then(|index| self.unconfirmed.remove(index)) {
                    tally.confirmation.record(written.elapsed());
                    tally.confirmed.fetch_add(1, Relaxed);
                }
            }
            Packet::Publish(publish) => {
                if let Some(packet_id) = publish.packet_id {
                    self.write(Packet::PublishAck { packet_id })?;
                }
                if publish.topic.ends_with("/cmd") {
                    tally.commands.fetch_add(1, Relaxed);
                    self.obey(&publish.payload)?;
                } else {
                    tally.schedules.fetch_add(1, Relaxed);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn obey(&mut self, payload: &[u8]) -> io::Result<()> {
        let plan = &self.fleet.plan;
        if among(self.index, 1, plan.silent) {
            return Ok(());
        }
        let Ok(order) = serde_json::from_slice::<serde_json::Value>(payload) else {
            return Ok(());
        };
        let text = |name: &str| {
            order
                .get(name)
                .and_then(|value| value.as_str())
                .unwrap_or_default()
                .to_owned()
        };
        let (id, cmd) = (text("id"), text("cmd"));
        if order
            .get("exp")
            .and_then(serde_json::Value::as_i64)
            .is_some_and(|exp| exp < now_ms())
        {
            return self.result(&id, "expired");
        }
        match cmd.as_str() {
            "ON" => self.relay = true,
            "OFF" => self.relay = false,
            "TOGGLE" => self.relay = !self.relay,
            _ => {}
        }
        self.result(&id, "ack")?;
        self.say_state("cmd", &id)?;
        if among(self.index, 2, plan.slow) {
            self.owed.push_back((Instant::now() + plan.slowness, id));
            return Ok(());
        }
        self.finish(&id)
    }

    fn finish(&mut self, id: &str) -> io::Result<()> {
        self.result(id, "done")?;
        if among(self.index, 3, self.fleet.plan.duplicating) {
            self.result(id, "done")?;
        }
        Ok(())
    }

    fn result(&mut self, id: &str, status: &str) -> io::Result<()> {
        self.fleet.tally.results.fetch_add(1, Relaxed);
        let relay = if self.relay { "ON" } else { "OFF" };
        self.say(
            "result",
            format!(r#"{{"id":"{id}","status":"{status}","relay":"{relay}"}}"#).into(),
            false,
        )
    }
}
