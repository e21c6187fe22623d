//! One connection, from its first byte to its end.
//!
//! A connection is one task that owns its socket. It does one thing at a time, and every wait of it — for bytes, for room in the
//! queue, for its device's rate — goes through `poll_service`, which also confirms, sends, and notices that it is to end. So a
//! device that must wait upward is still reached downward, and can be cut at any moment.

mod admission;
mod downward;
mod ending;
mod pulse;
mod upward;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::time::Sleep;

use self::admission::{Entry, Visitor, admit, greet};
use self::ending::End;
use self::pulse::{poll_read, say};
use crate::broker::Shared;
use crate::connection::Connection;
use crate::device::{Device, Standing};
use crate::fault::Fault;
use crate::transport::Io;
use crate::uplink::{Room, Source};
use crate::wire::{Packet, Will, Wire, reason};

/// Room in a frame beside the payload: topic and MQTT 5 properties.
pub const HEADROOM: usize = 4096;

/// A QoS-1 or QoS-2 publish that has not been answered. Answers go out in the order of the publishes (MQTT 5.0, 4.6).
struct Pending {
    packet_id: u16,
    qos: u8,
    answer: Option<u8>,
}

struct Session {
    io: Io,
    wire: Wire,
    input: BytesMut,
    output: BytesMut,
    unflushed: bool,
    shared: Arc<Shared>,
    device: Arc<Device>,
    connection: Arc<Connection>,
    standing: Standing,
    pending: VecDeque<Pending>,
    /// Sequence number of the first in `pending`.
    first: u64,
    /// QoS 2: packet ids received and not released yet.
    unreleased: Vec<u16>,
    next_packet_id: u16,
    window: usize,
    keep_alive: Option<Duration>,
    heard: Instant,
    /// Since when the client has taken nothing of what we write.
    stalled: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    expiry: Duration,
    will: Option<Will>,
    /// Room for the last words; spent when the connection has left its device's list.
    reserve: Option<Room>,
}

/// Serve one socket until its end. `protocol` begins the name under which the connection is announced.
pub async fn serve(
    mut io: Io,
    shared: Arc<Shared>,
    over_websocket: bool,
    address: String,
    deadline: Instant,
) {
    let mut input = BytesMut::new();
    let mut stopping = shared.stopping.subscribe();
    let greeting = tokio::select! {
        greeting = tokio::time::timeout_at(deadline.into(), greet(&mut io, &shared, &mut input)) => greeting,
        _ = stopping.wait_for(|stopping| *stopping) => return,
    };
    drop(stopping);
    let (mut wire, connect) = match greeting {
        Ok(Some(greeting)) => greeting,
        Ok(None) => return,
        Err(_) => return shared.stats.refused_timeout.one(),
    };
    let mut output = BytesMut::new();
    let visitor = Visitor {
        over_websocket,
        address,
        deadline,
    };
    match admit(&shared, &mut wire, connect, &mut output, visitor).await {
        Err(code) => {
            wire.refuse(&mut output, code);
            say(&mut io, &mut output).await;
        }
        Ok(entry) => Box::pin(entry.session(io, wire, input, output, shared)).await,
    }
}

impl Entry {
    async fn session(
        self,
        io: Io,
        wire: Wire,
        input: BytesMut,
        output: BytesMut,
        shared: Arc<Shared>,
    ) {
        let now = Instant::now();
        let mut session = Session {
            io,
            wire,
            input,
            output,
            unflushed: false,
            shared,
            device: Arc::clone(&self.device),
            connection: Arc::clone(&self.connection),
            standing: self.standing,
            pending: VecDeque::new(),
            first: 0,
            unreleased: Vec::new(),
            next_packet_id: 0,
            window: self.window,
            keep_alive: self.keep_alive,
            heard: now,
            stalled: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            expiry: self.expiry,
            will: self.will,
            reserve: Some(self.reserve),
        };
        session.rearm();
        session.live().await;
    }
}

impl Session {
    /// From the first turn to the last word.
    async fn live(&mut self) {
        let end = match self.announce_resumed().await {
            Err(end) => end,
            Ok(()) => self.run().await,
        };
        self.leave(end);
        if let Some(code) = end.code() {
            self.wire.disconnect(&mut self.output, code);
        }
        if !matches!(end, End::Gone | End::Stuck) {
            say(&mut self.io, &mut self.output).await;
        }
    }

    /// A resumed session does not subscribe again, so its subscriptions are announced for it.
    async fn announce_resumed(&mut self) -> Result<(), End> {
        let resumed: Vec<String> = {
            let outbox = self.connection.outbox.lock();
            let patterns = outbox.subscriptions.iter();
            patterns.map(|each| each.pattern.to_string()).collect()
        };
        let at_ms = self.device.subscribed_ms();
        for filter in resumed {
            self.announce_subscription(filter, at_ms).await?;
        }
        Ok(())
    }

    fn source(&self) -> Source {
        Source {
            device: self.standing.number,
            device_id: Arc::clone(&self.device.id),
        }
    }

    async fn run(&mut self) -> End {
        loop {
            match self.wire.next(&mut self.input) {
                Err(violation) => return violation.into(),
                Ok(Some(packet)) => {
                    if let Err(end) = self.handle(packet).await {
                        return end;
                    }
                }
                Ok(None) => {
                    if self.input.is_empty() {
                        // Give the block back: an idle connection holds none.
                        self.input = BytesMut::new();
                    }
                    if let Err(end) = poll_fn(|cx| self.poll_turn(cx)).await {
                        return end;
                    }
                }
            }
        }
    }

    async fn handle(&mut self, packet: Packet) -> Result<(), End> {
        match packet {
            Packet::Publish(publish) => return self.publish(publish).await,
            Packet::Oversize(publish) => {
                self.pace(publish.qos).await?;
                self.refuse(&publish, Fault::Oversize, reason::QUOTA);
            }
            Packet::PubAck(packet_id) => self.acknowledged(packet_id),
            Packet::PubRel(packet_id) => self.released(packet_id),
            Packet::Subscribe {
                packet_id,
                filters,
                with_id,
            } => return self.subscribe(packet_id, filters, with_id).await,
            Packet::Unsubscribe {
                packet_id,
                patterns,
            } => self.unsubscribe(packet_id, &patterns),
            Packet::Ping => self.wire.pong(&mut self.output),
            Packet::Disconnect { reason, expiry_s } => {
                if let Some(expiry_s) = expiry_s {
                    self.expiry = Duration::from_secs(u64::from(expiry_s))
                        .min(self.shared.limits.session_expiry);
                }
                return Err(End::Goodbye {
                    with_will: reason == reason::WITH_WILL,
                });
            }
            Packet::Ignored => {}
        }
        Ok(())
    }
}

impl Drop for Session {
    /// A task that was dropped, or panicked, must not leave its device connected for ever.
    fn drop(&mut self) {
        self.leave(End::Gone);
    }
}
