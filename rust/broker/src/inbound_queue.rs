//! The one queue of messages from devices to the service, bounded in bytes.
//!
//! Law: a message is queued only with a permit for its bytes. A connection that gets no permit does not read its socket, so a stalled
//! service stalls its devices and memory stays bounded. Each connection reserves the permit for its disconnect event and its will when
//! it opens; so neither waits, and neither is dropped.
//!
//! The queue has three priorities (`order`): telemetry, events of connected devices, and connects and disconnects. Ten thousand
//! devices that reconnect at once wait for each other, and do not delay those that are connected.
//!
//! One end of a socket pair is readable exactly while the queue holds a message; any event loop can watch it.
//!
//! Law: the messages of a batch are taken together and acknowledged together; a batch that is dropped closes the connections that wait
//! for it.

mod message;
mod order;

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use self::message::QueuedInboundMessage;
use self::order::{InboundEventPriority, InboundPriorityQueues};
use crate::connection_handle::CloseReason;
use crate::stats::BrokerStats;

pub use self::message::{
    AckHandle, BrokerDeviceEvent, FaultKind, InboundEventDevice, MESSAGE_OVERHEAD, RawTelemetryMessage, TelemetryOrBrokerEvent,
    now_ms, set_now_ms,
};

struct InboundQueueContents {
    messages: InboundPriorityQueues,
    signalled: bool,
    closed: bool,
}

pub struct InboundQueue {
    state: Mutex<InboundQueueContents>,
    free_bytes: Arc<Semaphore>,
    capacity: usize,
    signal_writer: UnixStream,
    signal_reader: UnixStream,
    stats: Arc<BrokerStats>,
}

/// Bytes reserved in the queue, for one message or several. Dropped unused, it frees them.
pub struct QueuePermit(OwnedSemaphorePermit);

impl QueuePermit {
    /// Take `bytes` out of this permit into one of their own; None when it holds fewer.
    pub fn split(&mut self, bytes: usize) -> Option<QueuePermit> {
        self.0.split(bytes).map(QueuePermit)
    }

    /// The bytes, which are then freed by `InboundQueue::take`.
    fn consume(self) -> u32 {
        let bytes = self.0.num_permits() as u32;
        self.0.forget();
        bytes
    }
}

impl InboundQueue {
    /// `capacity` in bytes.
    pub fn new(capacity: usize, stats: Arc<BrokerStats>) -> std::io::Result<Self> {
        let (signal_writer, signal_reader) = UnixStream::pair()?;
        signal_writer.set_nonblocking(true)?;
        signal_reader.set_nonblocking(true)?;
        Ok(Self {
            state: Mutex::new(InboundQueueContents {
                messages: InboundPriorityQueues::default(),
                signalled: false,
                closed: false,
            }),
            free_bytes: Arc::new(Semaphore::new(capacity)),
            capacity,
            signal_writer,
            signal_reader,
            stats,
        })
    }

    /// A message larger than the whole queue takes all of it; otherwise it would wait for ever.
    fn clamp(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.capacity)).unwrap_or(u32::MAX)
    }

    /// None when the queue is full.
    pub fn try_reserve(&self, bytes: usize) -> Option<QueuePermit> {
        let permit = Arc::clone(&self.free_bytes).try_acquire_many_owned(self.clamp(bytes));
        permit.ok().map(QueuePermit)
    }

    /// Waits while the queue is full.
    pub async fn reserve(&self, bytes: usize) -> Result<QueuePermit, AcquireError> {
        Arc::clone(&self.free_bytes)
            .acquire_many_owned(self.clamp(bytes))
            .await
            .map(QueuePermit)
    }

    /// Queue what a device published.
    pub fn push(&self, message: TelemetryOrBrokerEvent, ack: Option<AckHandle>, permit: QueuePermit) {
        self.insert(InboundEventPriority::High, message, ack, permit);
    }

    /// Queue a connect, disconnect, subscribe or fault event, or a will.
    pub fn push_low_priority(&self, event: BrokerDeviceEvent, permit: QueuePermit) {
        self.insert(InboundEventPriority::Low, TelemetryOrBrokerEvent::Event(event), None, permit);
    }

    fn insert(
        &self,
        priority: InboundEventPriority,
        message: TelemetryOrBrokerEvent,
        ack: Option<AckHandle>,
        permit: QueuePermit,
    ) {
        let bytes = permit.consume();
        self.stats.inbound_queue.increment();
        self.stats.inbound_queue_bytes.add(u64::from(bytes));
        let mut state = self.state.lock();
        let queued = QueuedInboundMessage { message, ack, bytes };
        state.messages.push(queued, priority);
        self.signal(&mut state);
    }

    /// At most `limit` messages, the events of one device in the order of their arrival; None when the queue is empty.
    pub fn take(&self, limit: usize) -> Option<BrokerInboundBatch> {
        let mut state = self.state.lock();
        let messages = state.messages.take(limit);
        if messages.is_empty() {
            return None;
        }
        if state.messages.is_empty() {
            self.clear_signal(&mut state);
        }
        drop(state);
        let freed: usize = messages.iter().map(|queued| queued.bytes as usize).sum();
        self.free_bytes.add_permits(freed);
        self.stats.inbound_queue.subtract(messages.len() as u64);
        self.stats.inbound_queue_bytes.subtract(freed as u64);
        Some(BrokerInboundBatch::new(messages, Arc::clone(&self.stats)))
    }

    /// No more messages will come. The descriptor stays readable, so that its event loop notices.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.signal(&mut state);
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub fn descriptor(&self) -> RawFd {
        self.signal_reader.as_raw_fd()
    }

    fn signal(&self, state: &mut InboundQueueContents) {
        if !state.signalled {
            // The pair never holds more than one byte, so the write cannot block.
            state.signalled = (&self.signal_writer).write(&[1]).is_ok();
        }
    }

    fn clear_signal(&self, state: &mut InboundQueueContents) {
        if state.signalled && !state.closed {
            let mut byte = [0u8; 1];
            state.signalled = (&self.signal_reader).read(&mut byte).is_err();
        }
    }
}

/// Messages that were taken together and are acknowledged together.
pub struct BrokerInboundBatch {
    pub telemetry: Vec<RawTelemetryMessage>,
    pub events: Vec<BrokerDeviceEvent>,
    telemetry_acks: Vec<AckHandle>,
    event_acks: Vec<AckHandle>,
    stats: Arc<BrokerStats>,
}

impl BrokerInboundBatch {
    fn new(messages: Vec<QueuedInboundMessage>, stats: Arc<BrokerStats>) -> Self {
        let mut batch = Self {
            telemetry: Vec::new(),
            events: Vec::new(),
            telemetry_acks: Vec::new(),
            event_acks: Vec::new(),
            stats,
        };
        for queued in messages {
            match queued.message {
                TelemetryOrBrokerEvent::Telemetry(message) => {
                    batch.telemetry.push(message);
                    batch.telemetry_acks.extend(queued.ack);
                }
                TelemetryOrBrokerEvent::Event(event) => {
                    batch.events.push(event);
                    batch.event_acks.extend(queued.ack);
                }
            }
        }
        batch
    }

    /// Acknowledge every message of the batch to its device. Further calls have no effect.
    pub fn ack(&mut self) {
        self.ack_events();
        self.ack_telemetry();
    }

    pub fn ack_events(&mut self) {
        acknowledge(&mut self.event_acks, &self.stats);
    }

    pub fn ack_telemetry(&mut self) {
        acknowledge(&mut self.telemetry_acks, &self.stats);
    }

    /// Close every connection that still waits for this batch, so that its device sends the messages again.
    pub fn nack(&mut self) {
        for ack in self.event_acks.drain(..).chain(self.telemetry_acks.drain(..)) {
            self.stats.inbound_nacked.increment();
            ack.connection.close(CloseReason::BatchRejected);
        }
    }
}

fn acknowledge(acks: &mut Vec<AckHandle>, stats: &BrokerStats) {
    stats.inbound_acked.add(acks.len() as u64);
    for ack in acks.drain(..) {
        ack.connection.acknowledge(ack.sequence);
    }
}

impl Drop for BrokerInboundBatch {
    /// No device waits for ever for a batch that was never acknowledged.
    fn drop(&mut self) {
        self.nack();
    }
}
