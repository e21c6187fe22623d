//! One simulated device: connects, reports, obeys, comes back.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rmqtt_codec::types::{Publish, QoS};
use rmqtt_codec::v3::{Codec, Connect, ConnectAckReason, LastWill, Packet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until};
use tokio_util::codec::{Decoder, Encoder};

use super::{Fleet, Identity};
use crate::clock::now_ms;

/// A refused or failed connection is tried again after this, doubled up to `PATIENCE`.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_S: u16 = 60;
const ANSWER: Duration = Duration::from_secs(15);

/// Whether this device is among a share of the fleet. The shares of different faults fall on different devices.
fn among(index: usize, offset: usize, share: f64) -> bool {
    // A multiplicative hash spreads neighbours; the golden ratio's 32 bits.
    let spread = (index + offset * 1009).wrapping_mul(2_654_435_769) as u32;
    f64::from(spread) < share * f64::from(u32::MAX)
}

pub(super) async fn live(fleet: Arc<Fleet>, identity: Identity, index: usize, count: usize) {
    let mut stopping = fleet.stopping.clone();
    let end = fleet
        .plan
        .duration
        .map(|duration| Instant::now() + duration);
    let over = async {
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    tokio::pin!(over);
    let mut pause = FIRST_PAUSE;
    loop {
        let finished = |now| end.is_some_and(|end| now >= end);
        if finished(Instant::now()) {
            return;
        }
        let visit = visit(&fleet, &identity, index, count, end);
        let outcome = tokio::select! {
            outcome = visit => outcome,
            () = &mut over => return,
        };
        match outcome {
            Ok(Visit::Over) => return,
            Ok(Visit::ComeBack) => pause = FIRST_PAUSE,
            Err(_) => pause = (pause * 2).min(PATIENCE),
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = &mut over => return,
        }
    }
}

enum Visit {
    Over,
    ComeBack,
}

async fn visit(
    fleet: &Fleet,
    identity: &Identity,
    index: usize,
    count: usize,
    end: Option<Instant>,
) -> io::Result<Visit> {
    let mut device = {
        let _turn = fleet.gate.acquire().await.map_err(io::Error::other)?;
        let opening = Device::connect(fleet, identity, index);
        match tokio::time::timeout(ANSWER, opening).await {
            Ok(Ok(device)) => device,
            Ok(Err(error)) => {
                let refused = error.kind() == io::ErrorKind::PermissionDenied;
                let counter = if refused {
                    &fleet.tally.refused
                } else {
                    &fleet.tally.failed
                };
                counter.fetch_add(1, Relaxed);
                return Err(error);
            }
            Err(late) => {
                fleet.tally.failed.fetch_add(1, Relaxed);
                return Err(late.into());
            }
        }
    };
    fleet.tally.connected.fetch_add(1, Relaxed);
    let outcome = device.stay(count, end).await;
    fleet.tally.connected.fetch_sub(1, Relaxed);
    if outcome.is_err() {
        fleet.tally.lost.fetch_add(1, Relaxed);
    }
    outcome
}

struct Device<'f> {
    fleet: &'f Fleet,
    index: usize,
    prefix: String,
    socket: TcpStream,
    codec: Codec,
    input: BytesMut,
    output: BytesMut,
    next_id: u16,
    /// Telemetry not confirmed yet, oldest first: packet id, when it was written.
    unconfirmed: VecDeque<(u16, Instant)>,
    relay: bool,
    /// Answers of a slow device: when they are due.
    owed: VecDeque<(Instant, String)>,
}

impl<'f> Device<'f> {
    async fn connect(
        fleet: &'f Fleet,
        identity: &Identity,
        index: usize,
    ) -> io::Result<Device<'f>> {
        let begun = Instant::now();
        let socket = TcpStream::connect((fleet.plan.host.as_str(), fleet.plan.port)).await?;
        socket.set_nodelay(true)?;
        let prefix = format!("devices/{}/", identity.device_id);
        let connect = Connect {
            clean_session: true,
            keep_alive: KEEP_ALIVE_S,
            client_id: identity.device_id.as_str().into(),
            username: Some(identity.device_id.as_str().into()),
            password: Some(Bytes::copy_from_slice(identity.password.as_bytes())),
            last_will: Some(LastWill {
                qos: QoS::AtLeastOnce,
                retain: true,
                topic: format!("{prefix}status").into(),
                message: Bytes::from_static(b"offline"),
            }),
            ..Connect::default()
        };
        let mut device = Device {
            fleet,
            index,
            prefix,
            socket,
            codec: Codec::default(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            next_id: 0,
            unconfirmed: VecDeque::new(),
            relay: false,
            owed: VecDeque::new(),
        };
        device.write(connect.into())?;
        device.flush().await?;
        match device.read().await? {
            Packet::ConnectAck(ack) if ack.return_code == ConnectAckReason::ConnectionAccepted => {}
            _ => return Err(io::ErrorKind::PermissionDenied.into()),
        }
        fleet.tally.connects.fetch_add(1, Relaxed);
        fleet.tally.connecting.record(begun.elapsed());
        let filters = ["cmd", "sched"]
            .map(|below| (format!("{}{below}", device.prefix).into(), QoS::AtLeastOnce));
        device.write(Packet::Subscribe {
            packet_id: NonZeroU16::MIN,
            topic_filters: filters.to_vec(),
        })?;
        device.next_id = 1;
        device.say("status", Bytes::from_static(b"online"), true)?;
        device.say("hello", Bytes::from_static(br#"{"fw":"simulated"}"#), false)?;
        device.say_state("boot", "")?;
        device.flush().await?;
        Ok(device)
    }

    fn write(&mut self, packet: Packet) -> io::Result<()> {
        self.codec
            .encode(packet, &mut self.output)
            .map_err(io::Error::other)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all_buf(&mut self.output).await
    }

    async fn read(&mut self) -> io::Result<Packet> {
        loop {
            if let Some((packet, _)) = self
                .codec
                .decode(&mut self.input)
                .map_err(io::Error::other)?
            {
                return Ok(packet);
            }
            if self.socket.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn publish(&mut self, below: &str, payload: Bytes, qos: QoS, retain: bool) -> io::Result<u16> {
        self.next_id = if self.next_id == u16::MAX {
            1
        } else {
            self.next_id + 1
        };
        let packet_id = if qos == QoS::AtMostOnce {
            None
        } else {
            NonZeroU16::new(self.next_id)
        };
        let topic = format!("{}{below}", self.prefix).into();
        let publish = Publish {
            dup: false,
            retain,
            qos,
            topic,
            packet_id,
            payload,
            properties: None,
        };
        self.write(publish.into())?;
        Ok(self.next_id)
    }

    fn say(&mut self, below: &str, payload: Bytes, retain: bool) -> io::Result<()> {
        self.publish(below, payload, QoS::AtLeastOnce, retain)
            .map(|_| ())
    }

    fn say_state(&mut self, by: &str, id: &str) -> io::Result<()> {
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
    async fn stay(&mut self, count: usize, end: Option<Instant>) -> io::Result<Visit> {
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
                self.write(Packet::Disconnect)?;
                self.flush().await?;
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
