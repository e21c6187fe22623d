//! One connection, from its first byte to its end.
//!
//! A connection is one task that owns its socket. It does one thing at a time, and every wait of it — for bytes, for room in the
//! queue, for its device's rate — goes through `poll_service`, which also confirms, sends, and notices that it is to end. So a
//! device that must wait upward is still reached downward, and can be cut at any moment.

mod admission;
mod downward;
mod upward;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use self::admission::{Entry, admit, greet};
use crate::broker::Shared;
use crate::clock::now_ms;
use crate::connection::{Close, Connection};
use crate::device::{Device, Fault, Standing};
use crate::transport::Io;
use crate::uplink::{Event, Item, OVERHEAD, Room, Source};
use crate::wire::{Packet, Violation, Will, Wire, reason};

/// Above this much unwritten output nothing more is read or sent down.
const HIGH_WATER: usize = 64 * 1024;
/// How long the last words to a client may take.
const FAREWELL: Duration = Duration::from_millis(500);
/// Room in a frame beside the payload: topic and MQTT 5 properties.
pub const HEADROOM: usize = 4096;

thread_local! {
    // One read buffer a thread instead of one a connection: ten thousand idle devices hold none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 32 * 1024].into_boxed_slice());
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// DISCONNECT; with the reason 0x04 the will is wanted all the same.
    Goodbye {
        with_will: bool,
    },
    /// The socket is gone.
    Gone,
    Silent,
    Stuck,
    Violation(u8),
    Closed(Close),
}

impl End {
    /// The reason in the device's `disconnect` event.
    fn word(self) -> &'static str {
        match self {
            Self::Goodbye { .. } => "disconnected",
            Self::Closed(Close::Expelled) => "revoked",
            Self::Closed(Close::Stopping) => "stopped",
            _ => "lost",
        }
    }

    /// A will speaks for a device that was lost; not for one that we cut, nor for ourselves when we stop.
    fn wants_will(self) -> bool {
        !matches!(
            self,
            Self::Goodbye { with_will: false }
                | Self::Closed(Close::Expelled | Close::Stopping | Close::TakenOver)
        )
    }

    /// What an MQTT 5 client is told.
    fn code(self) -> Option<u8> {
        match self {
            Self::Goodbye { .. } | Self::Gone | Self::Stuck => None,
            Self::Silent => Some(reason::KEEP_ALIVE),
            Self::Violation(code) => Some(code),
            Self::Closed(Close::TakenOver) => Some(reason::TAKEN_OVER),
            Self::Closed(Close::Expelled) => Some(reason::ADMINISTRATIVE),
            Self::Closed(Close::Unconfirmed) => Some(reason::BUSY),
            Self::Closed(Close::Stopping) => Some(reason::SHUTTING_DOWN),
        }
    }
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation.0)
    }
}

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
    written: Instant,
    timer: Pin<Box<Sleep>>,
    expiry: Duration,
}

fn poll_read(
    io: &mut Io,
    cx: &mut Context<'_>,
    input: &mut BytesMut,
) -> Poll<std::io::Result<usize>> {
    SCRATCH.with(|scratch| {
        let mut scratch = scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        match Pin::new(io).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {
                input.extend_from_slice(buffer.filled());
                Poll::Ready(Ok(buffer.filled().len()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    })
}

async fn say(io: &mut Io, output: &mut BytesMut) {
    use tokio::io::AsyncWriteExt;
    let words = async {
        io.write_all(output).await?;
        io.flush().await?;
        io.shutdown().await
    };
    let _ = tokio::time::timeout(FAREWELL, words).await;
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
    match admit(
        &shared,
        &mut wire,
        connect,
        &mut output,
        over_websocket,
        address,
        deadline,
    )
    .await
    {
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
            shared: Arc::clone(&shared),
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
            written: now,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            expiry: self.expiry,
        };
        session.rearm();
        // A resumed session does not subscribe again, so its subscriptions are announced for it.
        let mut resumed = Vec::new();
        if let Some(outbox) = self.connection.outbox.try_lock() {
            resumed.extend(
                outbox
                    .subscriptions
                    .iter()
                    .map(|subscription| subscription.pattern.to_string()),
            );
        }
        let mut end = None;
        for filter in resumed {
            end = end.or(session.announce_subscription(filter).await.err());
        }
        let end = match end {
            Some(end) => end,
            None => session.run().await,
        };
        session.leave(end, self.will, self.reserve);
        if let Some(code) = end.code() {
            session.wire.disconnect(&mut session.output, code);
        }
        if !matches!(end, End::Gone | End::Stuck) {
            say(&mut session.io, &mut session.output).await;
        }
        shared.stats.connections.sub(1);
    }
}

impl Session {
    fn source(&self) -> Source {
        Source {
            device: self.standing.number,
            device_id: Arc::clone(&self.device.id),
        }
    }

    fn rearm(&mut self) {
        let limit = self.shared.limits.write_patience;
        let silence = self.keep_alive.map(|keep_alive| self.heard + keep_alive);
        let stuck = (!self.output.is_empty()).then(|| self.written + limit);
        let next = [silence, stuck]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + limit);
        self.timer.as_mut().reset(next.into());
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

    /// Wait for bytes, serving everything else meanwhile.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        self.poll_service(cx)?;
        if self.output.len() < HIGH_WATER {
            match poll_read(&mut self.io, cx, &mut self.input) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(End::Gone)),
                Poll::Ready(Ok(_)) => {
                    self.heard = Instant::now();
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => {}
            }
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self
                .keep_alive
                .is_some_and(|keep_alive| now >= self.heard + keep_alive)
            {
                return Poll::Ready(Err(End::Silent));
            }
            self.check_writing(now)?;
            self.rearm();
        }
        Poll::Pending
    }

    fn check_writing(&self, now: Instant) -> Result<(), End> {
        let stuck =
            !self.output.is_empty() && now >= self.written + self.shared.limits.write_patience;
        if stuck { Err(End::Stuck) } else { Ok(()) }
    }

    /// Wait for something other than bytes. Not hearing the device is then our doing, and not held against it.
    async fn wait<T>(&mut self, something: impl Future<Output = T>) -> Result<T, End> {
        let mut something = Box::pin(something);
        let outcome = poll_fn(|cx| {
            self.poll_service(cx)?;
            if let Poll::Ready(value) = something.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            while self.timer.as_mut().poll(cx).is_ready() {
                self.check_writing(Instant::now())?;
                self.heard = Instant::now();
                self.rearm();
            }
            Poll::Pending
        })
        .await;
        self.heard = Instant::now();
        outcome
    }

    /// Confirm, send down, write, and notice an order to close.
    fn poll_service(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let connection = Arc::clone(&self.connection);
        let mut outbox = connection.outbox.lock();
        if let Some(why) = outbox.close {
            return Err(End::Closed(why));
        }
        for sequence in outbox.confirmed.drain(..) {
            Self::settle(&mut self.pending, self.first, sequence, reason::SUCCESS);
        }
        self.answer();
        while self.output.len() < HIGH_WATER && outbox.inflight.len() < self.window {
            let Some(message) = outbox.waiting.pop_front() else {
                break;
            };
            if let Some(sent) = self.send(message) {
                outbox.inflight.push_back(sent);
            }
        }
        if !outbox
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            outbox.waker = Some(cx.waker().clone());
        }
        drop(outbox);
        self.poll_write(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        while !self.output.is_empty() {
            match Pin::new(&mut self.io).poll_write(cx, &self.output) {
                Poll::Ready(Ok(0) | Err(_)) => return Err(End::Gone),
                Poll::Ready(Ok(count)) => {
                    self.output.advance(count);
                    self.written = Instant::now();
                    self.unflushed = true;
                }
                Poll::Pending => return Ok(()),
            }
        }
        if self.unflushed {
            self.output = BytesMut::new();
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => return Err(End::Gone),
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    async fn handle(&mut self, packet: Packet) -> Result<(), End> {
        match packet {
            Packet::Publish(publish) => return self.publish(publish).await,
            Packet::Oversize { qos, packet_id } => {
                self.pace(qos).await?;
                self.shared.stats.dropped_oversize.one();
                self.fault(Fault::Oversize);
                self.answer_with(packet_id, qos, reason::QUOTA);
            }
            Packet::PubAck(packet_id) => self.acknowledged(packet_id),
            Packet::PubRel(packet_id) => {
                let known = self.unreleased.iter().position(|id| *id == packet_id);
                let code = if known.is_some() {
                    reason::SUCCESS
                } else {
                    reason::PACKET_ID_UNKNOWN
                };
                known.map(|index| self.unreleased.swap_remove(index));
                self.wire.pubcomp(&mut self.output, packet_id, code);
            }
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

    /// Leave the device's list; the will and the farewell are announced from the reserve.
    fn leave(&mut self, end: End, will: Option<Will>, mut reserve: Room) {
        let stats = &self.shared.stats;
        stats.disconnects.one();
        match end {
            End::Closed(Close::Expelled) => stats.kicked.one(),
            End::Violation(_) => stats.closed_protocol_error.one(),
            End::Silent => stats.closed_keepalive.one(),
            End::Stuck => stats.closed_slow_reader.one(),
            _ => {}
        }
        let source = self.source();
        let keep = if end == End::Closed(Close::Expelled) {
            Duration::ZERO
        } else {
            self.expiry
        };
        self.device
            .detach(&self.connection, keep, &self.shared.limits, |last| {
                let farewell = reserve.split(OVERHEAD);
                if let Some(will) = will.filter(|_| end.wants_will()) {
                    let Will {
                        topic,
                        payload,
                        qos,
                        retain,
                    } = will;
                    let (source, topic) = (source.clone(), topic.to_string());
                    let event = Event::Publish {
                        source,
                        topic,
                        payload,
                        qos,
                        retain,
                        at_ms: now_ms(),
                    };
                    self.shared.uplink.push(Item::Event(event), None, reserve);
                }
                if let Some(farewell) = farewell.filter(|_| last) {
                    let event = Event::Disconnect {
                        source,
                        reason: end.word(),
                        at_ms: now_ms(),
                    };
                    self.shared.uplink.push(Item::Event(event), None, farewell);
                }
            });
    }
}
