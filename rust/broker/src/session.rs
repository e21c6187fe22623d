//! One connection, from its first byte to its end.
//!
//! A connection is one task that owns its socket. It does one thing at a time, and every wait of it — for bytes, for room in the
//! queue, for its device's rate — goes through `poll_service`, which also confirms, sends, and notices that it is to end. So a
//! device that must wait upward is still reached downward, and can be cut at any moment.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::broker::Shared;
use crate::clock::now_ms;
use crate::registry::{Close, Connection, Device, Downlink, Fault, Refusal, Standing, Subscription};
use crate::topics;
use crate::transport::Io;
use crate::uplink::{Event, Item, OVERHEAD, Receipt, Room, Source, TelemetryMessage};
use crate::wire::{self, Connect, Granted, Packet, Publish, Violation, Will, Wire, reason};

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
    Goodbye { with_will: bool },
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
        !matches!(self, Self::Goodbye { with_will: false } | Self::Closed(Close::Expelled | Close::Stopping | Close::TakenOver))
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

fn poll_read(io: &mut Io, cx: &mut Context<'_>, input: &mut BytesMut) -> Poll<std::io::Result<usize>> {
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

/// The first packet of a connection: a CONNECT, or its end.
async fn greet(io: &mut Io, shared: &Shared, input: &mut BytesMut) -> Option<(Wire, Connect)> {
    loop {
        match wire::connect(input, shared.limits.connect_packet) {
            Ok(Some(greeting)) => return Some(greeting),
            Ok(None) => {}
            Err((wire, violation)) => {
                shared.stats.refused_garbage.one();
                if let Some(mut wire) = wire {
                    let mut output = BytesMut::new();
                    wire.refuse(&mut output, violation.0);
                    say(io, &mut output).await;
                }
                return None;
            }
        }
        match poll_fn(|cx| poll_read(io, cx, input)).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Serve one socket until its end. `protocol` begins the name under which the connection is announced.
pub async fn serve(mut io: Io, shared: Arc<Shared>, over_websocket: bool, address: String, deadline: Instant) {
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
    match admit(&shared, &mut wire, connect, &mut output, over_websocket, address, deadline).await {
        Err(code) => {
            wire.refuse(&mut output, code);
            say(&mut io, &mut output).await;
        }
        Ok(entry) => Box::pin(entry.session(io, wire, input, output, shared)).await,
    }
}

/// A device that has been let in, before its session runs.
struct Entry {
    device: Arc<Device>,
    connection: Arc<Connection>,
    standing: Standing,
    will: Option<Will>,
    /// Room for the disconnect event and the will.
    reserve: Room,
    window: usize,
    keep_alive: Option<Duration>,
    expiry: Duration,
}

fn protocol_name(level: u8, over_websocket: bool) -> &'static str {
    match (level, over_websocket) {
        (5, false) => "mqtt/5",
        (5, true) => "ws/mqtt/5",
        (3, false) => "mqtt/3.1",
        (3, true) => "ws/mqtt/3.1",
        (_, false) => "mqtt/3.1.1",
        (_, true) => "ws/mqtt/3.1.1",
    }
}

/// Every check of a CONNECT, in order; the CONNACK of a success is left in `output`.
async fn admit(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    connect: Connect,
    output: &mut BytesMut,
    over_websocket: bool,
    address: String,
    deadline: Instant,
) -> Result<Entry, u8> {
    let (stats, limits) = (&shared.stats, &shared.limits);
    if connect.enhanced_auth {
        stats.refused_credentials.one();
        return Err(reason::AUTH_METHOD);
    }
    let Some(username) = connect.username.filter(|name| !name.is_empty()) else {
        stats.refused_anonymous.one();
        return Err(reason::NOT_AUTHORIZED);
    };
    let Some((device, standing)) = shared.registry.authenticate(&username, &connect.password.unwrap_or_default()) else {
        stats.refused_credentials.one();
        return Err(reason::CREDENTIALS);
    };
    let will = match connect.will {
        None => None,
        Some(will) => {
            let Some(below) = topics::may_publish(&will.topic, &device.id, standing.profile) else {
                stats.refused_will.one();
                return Err(reason::NOT_AUTHORIZED);
            };
            let topic = ByteString::from(below);
            Some(Will { topic, payload: Bytes::copy_from_slice(&will.payload), ..will })
        }
    };
    let farewell = OVERHEAD + will.as_ref().map_or(0, |will| OVERHEAD + will.payload.len() + will.topic.len());
    let room = tokio::time::timeout_at(deadline.into(), shared.uplink.room(OVERHEAD + farewell)).await;
    let Ok(Ok(mut reserve)) = room else {
        stats.refused_busy.one();
        return Err(reason::BUSY);
    };
    let Some(greeting) = reserve.split(OVERHEAD) else { return Err(reason::BUSY) };
    let assigned = connect.client_id.is_empty().then(|| shared.new_client_id());
    let client_id = assigned.clone().unwrap_or(connect.client_id);
    let source = Source { device: standing.number, device_id: Arc::clone(&device.id) };
    let announce = || {
        let protocol = protocol_name(connect.level, over_websocket);
        let event = Event::Connect { source: source.clone(), protocol, address, at_ms: now_ms() };
        shared.uplink.push(Item::Event(event), None, greeting);
    };
    let attached = match device.attach(standing, client_id, connect.clean, limits, announce) {
        Ok(attached) => attached,
        Err(Refusal::Gone) => {
            stats.refused_credentials.one();
            return Err(reason::CREDENTIALS);
        }
        Err(Refusal::Full) => {
            stats.refused_full.one();
            return Err(reason::QUOTA);
        }
    };
    stats.connects.one();
    stats.connections.one();
    if attached.took_over {
        stats.takeovers.one();
    }
    let expiry = Duration::from_secs(u64::from(connect.expiry_s)).min(limits.session_expiry);
    let granted_expiry = expiry.as_secs() as u32;
    let granted = Granted {
        session_present: attached.session_present,
        expiry_s: (granted_expiry < connect.expiry_s).then_some(granted_expiry),
        receive_max: limits.inflight as u16,
        max_packet: (limits.payload + HEADROOM) as u32,
        assigned_client_id: assigned,
    };
    wire.connack(output, reason::SUCCESS, granted);
    wire.limit(limits.payload + HEADROOM);
    Ok(Entry {
        device,
        connection: attached.connection,
        standing,
        will,
        reserve,
        window: usize::from(connect.receive_max).min(limits.inflight),
        // MQTT 5.0, 3.1.2.10: one and a half times what the client has promised.
        keep_alive: (connect.keep_alive_s > 0).then(|| Duration::from_millis(u64::from(connect.keep_alive_s) * 1500)),
        expiry,
    })
}

impl Entry {
    async fn session(self, io: Io, wire: Wire, input: BytesMut, output: BytesMut, shared: Arc<Shared>) {
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
            resumed.extend(outbox.subscriptions.iter().map(|subscription| subscription.pattern.to_string()));
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
        Source { device: self.standing.number, device_id: Arc::clone(&self.device.id) }
    }

    fn rearm(&mut self) {
        let limit = self.shared.limits.write_patience;
        let silence = self.keep_alive.map(|keep_alive| self.heard + keep_alive);
        let stuck = (!self.output.is_empty()).then(|| self.written + limit);
        let next = [silence, stuck].into_iter().flatten().min().unwrap_or_else(|| Instant::now() + limit);
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
            if self.keep_alive.is_some_and(|keep_alive| now >= self.heard + keep_alive) {
                return Poll::Ready(Err(End::Silent));
            }
            self.check_writing(now)?;
            self.rearm();
        }
        Poll::Pending
    }

    fn check_writing(&self, now: Instant) -> Result<(), End> {
        let stuck = !self.output.is_empty() && now >= self.written + self.shared.limits.write_patience;
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
            let Some(message) = outbox.waiting.pop_front() else { break };
            if let Some(sent) = self.send(message) {
                outbox.inflight.push_back(sent);
            }
        }
        if !outbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
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

    /// Write one message down; what must be acknowledged is returned with its packet id.
    fn send(&mut self, message: Downlink) -> Option<(u16, Downlink)> {
        let stats = &self.shared.stats;
        let now = Instant::now();
        if message.expired(now) {
            stats.downlink_expired.one();
            return None;
        }
        if self.output.is_empty() {
            self.written = now;
        }
        let packet_id = if message.qos == 0 { 0 } else { self.fresh_packet_id() };
        let left = message.deadline.map(|deadline| (deadline - now).as_secs_f64().ceil() as u32);
        let publish = Publish {
            topic: message.topic.clone(),
            payload: message.payload.clone(),
            qos: message.qos,
            retain: message.retain,
            dup: message.dup,
            packet_id,
            expiry_s: left,
        };
        let stats = &self.shared.stats;
        if self.wire.publish(&mut self.output, &publish).is_err() {
            stats.downlink_too_large.one();
            return None;
        }
        stats.downlink_sent.one();
        (message.qos > 0).then_some((packet_id, message))
    }

    /// Ids go round through 65,535; with at most `window` in flight one that comes round is long free.
    fn fresh_packet_id(&mut self) -> u16 {
        self.next_packet_id = if self.next_packet_id == u16::MAX { 1 } else { self.next_packet_id + 1 };
        self.next_packet_id
    }

    fn settle(pending: &mut VecDeque<Pending>, first: u64, sequence: u64, answer: u8) {
        let index = sequence.checked_sub(first).map(|index| index as usize);
        if let Some(waiting) = index.and_then(|index| pending.get_mut(index)) {
            waiting.answer = Some(answer);
        }
    }

    /// Write the answers that are due, as far as they are due in order.
    fn answer(&mut self) {
        while let Some(Pending { packet_id, qos, answer: Some(answer) }) = self.pending.front() {
            if *qos == 1 {
                self.wire.puback(&mut self.output, *packet_id, *answer);
            } else {
                self.wire.pubrec(&mut self.output, *packet_id, *answer);
            }
            self.pending.pop_front();
            self.first += 1;
        }
    }

    fn expect_answer(&mut self, packet_id: u16, qos: u8) -> u64 {
        self.pending.push_back(Pending { packet_id, qos, answer: None });
        self.first + self.pending.len() as u64 - 1
    }

    /// Answer at once (in order, that is) for a message that goes nowhere.
    fn answer_with(&mut self, packet_id: u16, qos: u8, code: u8) {
        if qos > 0 {
            let sequence = self.expect_answer(packet_id, qos);
            Self::settle(&mut self.pending, self.first, sequence, code);
        }
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
                let code = if known.is_some() { reason::SUCCESS } else { reason::PACKET_ID_UNKNOWN };
                known.map(|index| self.unreleased.swap_remove(index));
                self.wire.pubcomp(&mut self.output, packet_id, code);
            }
            Packet::Subscribe { packet_id, filters, with_id } => return self.subscribe(packet_id, filters, with_id).await,
            Packet::Unsubscribe { packet_id, patterns } => self.unsubscribe(packet_id, &patterns),
            Packet::Ping => self.wire.pong(&mut self.output),
            Packet::Disconnect { reason, expiry_s } => {
                if let Some(expiry_s) = expiry_s {
                    self.expiry = Duration::from_secs(u64::from(expiry_s)).min(self.shared.limits.session_expiry);
                }
                return Err(End::Goodbye { with_will: reason == reason::WITH_WILL });
            }
            Packet::Ignored => {}
        }
        Ok(())
    }

    fn acknowledged(&mut self, packet_id: u16) {
        let mut outbox = self.connection.outbox.lock();
        if let Some(index) = outbox.inflight.iter().position(|(id, _)| *id == packet_id) {
            outbox.inflight.remove(index);
            self.shared.stats.downlink_acked.one();
        }
    }

    /// Wait for the window of unanswered publishes and for the device's rate.
    async fn pace(&mut self, qos: u8) -> Result<(), End> {
        if qos > 0 && self.pending.len() >= self.shared.limits.inflight {
            self.wait_for_window().await?;
        }
        let mut counted = false;
        while let Some(delay) = self.device.spend(Instant::now(), &self.shared.limits) {
            if !counted {
                self.shared.stats.throttled.one();
                counted = true;
            }
            self.wait(tokio::time::sleep(delay)).await?;
        }
        Ok(())
    }

    async fn wait_for_window(&mut self) -> Result<(), End> {
        let outcome = poll_fn(|cx| {
            self.poll_service(cx)?;
            if self.pending.len() < self.shared.limits.inflight {
                return Poll::Ready(Ok(()));
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

    async fn publish(&mut self, publish: Publish) -> Result<(), End> {
        let Publish { topic, payload, qos, retain, packet_id, dup, .. } = publish;
        self.pace(qos).await?;
        if qos == 2 {
            if self.unreleased.contains(&packet_id) {
                self.repeated(packet_id);
                return Ok(());
            }
            if self.unreleased.len() >= self.shared.limits.inflight {
                return Err(End::Violation(reason::QUOTA));
            }
        }
        if dup {
            self.shared.stats.uplink_duplicates.one();
        }
        let below = (topic.len() <= self.shared.limits.topic)
            .then(|| topics::may_publish(&topic, &self.device.id, self.standing.profile))
            .flatten();
        let Some(below) = below else {
            self.shared.stats.dropped_forbidden.one();
            self.fault(Fault::Forbidden);
            if qos == 2 && !self.wire.is_v5() {
                self.unreleased.push(packet_id);
            }
            self.answer_with(packet_id, qos, reason::NOT_AUTHORIZED);
            return Ok(());
        };
        if payload.len() > self.shared.limits.payload {
            self.shared.stats.dropped_oversize.one();
            self.fault(Fault::Oversize);
            self.answer_with(packet_id, qos, reason::QUOTA);
            return Ok(());
        }
        let Some(room) = self.room(OVERHEAD + payload.len() + below.len(), qos).await? else {
            self.shared.stats.dropped_queue_full.one();
            self.fault(Fault::QueueFull);
            return Ok(());
        };
        let receipt = (qos > 0).then(|| {
            let sequence = self.expect_answer(packet_id, qos);
            Receipt { connection: Arc::clone(&self.connection), sequence }
        });
        if qos == 2 {
            self.unreleased.push(packet_id);
        }
        let item = self.item(below, &payload, qos, retain);
        self.shared.uplink.push(item, receipt, room);
        Ok(())
    }

    /// A QoS-2 publish once more: answered again if it has been answered, else its answer is still to come.
    fn repeated(&mut self, packet_id: u16) {
        self.shared.stats.uplink_duplicates.one();
        if !self.pending.iter().any(|pending| pending.qos == 2 && pending.packet_id == packet_id) {
            self.answer_with(packet_id, 2, reason::SUCCESS);
        }
    }

    /// The payload is copied: as a slice of the read buffer, a few bytes would hold all of it.
    fn item(&self, below: &str, payload: &[u8], qos: u8, retain: bool) -> Item {
        let stats = &self.shared.stats;
        let (at_ms, payload) = (now_ms(), Bytes::copy_from_slice(payload));
        stats.uplink_bytes.add(payload.len() as u64);
        if below == "telemetry" && self.standing.profile == topics::Profile::Native {
            stats.uplink_telemetry.one();
            Item::Telemetry(TelemetryMessage { device: self.standing.number, arrived_ms: at_ms, payload })
        } else {
            stats.uplink_publish.one();
            let topic = below.to_owned();
            Item::Event(Event::Publish { source: self.source(), topic, payload, qos, retain, at_ms })
        }
    }

    /// Room in the queue; None for a QoS-0 message whose patience has run out.
    async fn room(&mut self, cost: usize, qos: u8) -> Result<Option<Room>, End> {
        if let Some(room) = self.shared.uplink.try_room(cost) {
            return Ok(Some(room));
        }
        self.shared.stats.waited_queue_full.one();
        let shared = Arc::clone(&self.shared);
        if qos == 0 {
            let patience = shared.limits.qos0_patience;
            let waited = self.wait(tokio::time::timeout(patience, shared.uplink.room(cost))).await?;
            return Ok(waited.ok().and_then(Result::ok));
        }
        Ok(self.wait(shared.uplink.room(cost)).await?.ok())
    }

    fn fault(&self, fault: Fault) {
        let at_ms = now_ms();
        if !self.device.report(fault, at_ms) {
            return;
        }
        if let Some(room) = self.shared.uplink.try_room(OVERHEAD) {
            let event = Event::Fault { source: self.source(), kind: fault.name(), at_ms };
            self.shared.uplink.push(Item::Event(event), None, room);
        }
    }

    async fn subscribe(&mut self, packet_id: u16, filters: Vec<wire::Filter>, with_id: bool) -> Result<(), End> {
        self.pace(0).await?;
        let limits = &self.shared.limits;
        let mut known = self.connection.outbox.lock().subscriptions.len();
        let mut codes = Vec::with_capacity(filters.len());
        let mut granted = Vec::new();
        for filter in filters {
            let below = (filter.pattern.len() <= limits.topic)
                .then(|| topics::may_subscribe(&filter.pattern, &self.device.id))
                .flatten();
            let code = match below {
                _ if with_id => reason::SUBSCRIPTION_IDS,
                _ if filter.pattern.starts_with("$share/") => reason::SHARED,
                None => reason::NOT_AUTHORIZED,
                Some(_) if known >= limits.filters_per_session => reason::QUOTA,
                // We send nothing at QoS 2.
                Some(_) => filter.qos.min(1),
            };
            codes.push(code);
            let Some(below) = below.filter(|_| code <= 1) else {
                self.shared.stats.refused_subscribes.one();
                continue;
            };
            known += 1;
            let (qos, retain_as_published) = (code, filter.retain_as_published);
            granted.push((Subscription { pattern: below.into(), qos, retain_as_published }, filter.retain_handling));
        }
        self.wire.suback(&mut self.output, packet_id, &codes);
        let announced: Vec<String> = granted.iter().map(|(subscription, _)| subscription.pattern.to_string()).collect();
        self.device.subscribe(&self.connection, granted);
        for filter in announced {
            self.announce_subscription(filter).await?;
        }
        Ok(())
    }

    async fn announce_subscription(&mut self, filter: String) -> Result<(), End> {
        self.shared.stats.subscribes.one();
        if let Some(room) = self.room(OVERHEAD + filter.len(), 1).await? {
            let event = Event::Subscribe { source: self.source(), filter, at_ms: now_ms() };
            self.shared.uplink.push(Item::Event(event), None, room);
        }
        Ok(())
    }

    fn unsubscribe(&mut self, packet_id: u16, patterns: &[ByteString]) {
        let mut outbox = self.connection.outbox.lock();
        let mut found = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let before = outbox.subscriptions.len();
            if let Some(below) = topics::below(pattern, &self.device.id) {
                outbox.subscriptions.retain(|subscription| &*subscription.pattern != below);
            }
            found.push(outbox.subscriptions.len() < before);
        }
        drop(outbox);
        self.wire.unsuback(&mut self.output, packet_id, &found);
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
        let keep = if end == End::Closed(Close::Expelled) { Duration::ZERO } else { self.expiry };
        self.device.detach(&self.connection, keep, &self.shared.limits, |last| {
            let farewell = reserve.split(OVERHEAD);
            if let Some(will) = will.filter(|_| end.wants_will()) {
                let Will { topic, payload, qos, retain } = will;
                let (source, topic) = (source.clone(), topic.to_string());
                let event = Event::Publish { source, topic, payload, qos, retain, at_ms: now_ms() };
                self.shared.uplink.push(Item::Event(event), None, reserve);
            }
            if let Some(farewell) = farewell.filter(|_| last) {
                let event = Event::Disconnect { source, reason: end.word(), at_ms: now_ms() };
                self.shared.uplink.push(Item::Event(event), None, farewell);
            }
        });
    }
}
