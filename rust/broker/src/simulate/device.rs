//! One simulated device: connects, reports, obeys, comes back.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rmqtt_codec::types::{Publish, QoS};
use rmqtt_codec::v3::{Codec, Connect, ConnectAckReason, LastWill, Packet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_util::codec::{Decoder, Encoder};

use super::{Fleet, Identity};

/// A refused or failed connection is tried again after this, doubled up to `PATIENCE`.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(15);
pub(super) const KEEP_ALIVE_S: u16 = 60;
const ANSWER: Duration = Duration::from_secs(15);

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
        match visit(&fleet, &identity, index, count, end, over.as_mut()).await {
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

pub(super) enum Visit {
    Over,
    ComeBack,
}

async fn visit(
    fleet: &Fleet,
    identity: &Identity,
    index: usize,
    count: usize,
    end: Option<Instant>,
    mut over: Pin<&mut impl Future<Output = ()>>,
) -> io::Result<Visit> {
    let opened = tokio::select! {
        opened = open(fleet, identity, index) => opened,
        () = &mut over => return Ok(Visit::Over),
    };
    let mut device = opened?;
    fleet.tally.connected.fetch_add(1, Relaxed);
    let stayed = tokio::select! {
        stayed = device.stay(count, end) => stayed,
        () = &mut over => Ok(Visit::Over),
    };
    if matches!(stayed, Ok(Visit::Over)) {
        // It ends either way; the goodbye only spares the service the will.
        let _ = device.goodbye().await;
    }
    fleet.tally.connected.fetch_sub(1, Relaxed);
    if stayed.is_err() {
        fleet.tally.lost.fetch_add(1, Relaxed);
    }
    stayed
}

async fn open<'f>(fleet: &'f Fleet, identity: &Identity, index: usize) -> io::Result<Device<'f>> {
    let _turn = fleet.gate.acquire().await.map_err(io::Error::other)?;
    let opening = tokio::time::timeout(ANSWER, Device::connect(fleet, identity, index)).await;
    opening
        .unwrap_or_else(|late| Err(late.into()))
        .inspect_err(|error| {
            let refused = error.kind() == io::ErrorKind::PermissionDenied;
            let counter = if refused {
                &fleet.tally.refused
            } else {
                &fleet.tally.failed
            };
            counter.fetch_add(1, Relaxed);
        })
}

pub(super) struct Device<'f> {
    pub(super) fleet: &'f Fleet,
    pub(super) index: usize,
    pub(super) prefix: String,
    pub(super) socket: TcpStream,
    pub(super) codec: Codec,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    pub(super) next_id: u16,
    /// Telemetry not confirmed yet, oldest first: packet id, when it was written.
    pub(super) unconfirmed: VecDeque<(u16, Instant)>,
    pub(super) relay: bool,
    /// Answers of a slow device: when they are due.
    pub(super) owed: VecDeque<(Instant, String)>,
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

    pub(super) fn write(&mut self, packet: Packet) -> io::Result<()> {
        self.codec
            .encode(packet, &mut self.output)
            .map_err(io::Error::other)
    }

    async fn goodbye(&mut self) -> io::Result<()> {
        self.write(Packet::Disconnect)?;
        self.flush().await
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all_buf(&mut self.output).await
    }

    pub(super) async fn read(&mut self) -> io::Result<Packet> {
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

    pub(super) fn publish(
        &mut self,
        below: &str,
        payload: Bytes,
        qos: QoS,
        retain: bool,
    ) -> io::Result<u16> {
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

    pub(super) fn say(&mut self, below: &str, payload: Bytes, retain: bool) -> io::Result<()> {
        self.publish(below, payload, QoS::AtLeastOnce, retain)
            .map(|_| ())
    }
}
