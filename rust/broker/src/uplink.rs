//! The one queue upward, and the batches taken from it.
//!
//! Its bound is in bytes: before anything is queued, its cost is acquired from a semaphore, and whoever cannot acquire waits
//! without reading its socket. So a stalled service stalls its devices, and memory stays where it is. A connection reserves the
//! cost of its own end when it begins, therefore a disconnect or a will never has to wait or be dropped.
//!
//! It has three lanes (`lanes`): telemetry, what devices say, and who comes and goes. So ten thousand devices that come back at once
//! wait for each other and not in front of those that have been here all the time.
//!
//! A pipe-like socket pair is readable exactly while there is something to take, for any event loop to watch.

mod lanes;

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

use self::lanes::Lanes;
use crate::connection::{Close, Connection};
use crate::stats::Stats;

/// Counted for each queued item beside its bytes: the entry itself, two allocations, the receipt.
pub const OVERHEAD: usize = 192;

pub struct TelemetryMessage {
    pub device: u32,
    pub arrived_ms: i64,
    pub payload: Bytes,
}

/// Whose event it is.
#[derive(Clone)]
pub struct Source {
    pub device: u32,
    pub device_id: Arc<str>,
}

pub enum Event {
    Connect {
        source: Source,
        protocol: &'static str,
        address: String,
        at_ms: i64,
    },
    Disconnect {
        source: Source,
        reason: &'static str,
        at_ms: i64,
    },
    Subscribe {
        source: Source,
        filter: String,
        at_ms: i64,
    },
    Publish {
        source: Source,
        topic: String,
        payload: Bytes,
        qos: u8,
        retain: bool,
        at_ms: i64,
    },
    /// Something of this device was dropped; at most one a minute for each device and kind.
    Fault {
        source: Source,
        kind: &'static str,
        at_ms: i64,
    },
}

pub enum Item {
    Telemetry(TelemetryMessage),
    Event(Event),
}

/// Whom to confirm a message to, and which one.
pub struct Receipt {
    pub connection: Arc<Connection>,
    pub sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Haste {
    Prompt,
    Patient,
}

struct Entry {
    item: Item,
    receipt: Option<Receipt>,
    cost: u32,
}

struct Inner {
    lanes: Lanes,
    signalled: bool,
    closed: bool,
}

pub struct Uplink {
    inner: Mutex<Inner>,
    space: Arc<Semaphore>,
    /// A message larger than the whole queue takes all of it, rather than waiting for ever.
    capacity: usize,
    waker: UnixStream,
    wakee: UnixStream,
    stats: Arc<Stats>,
}

/// Room for one item (or, as a reserve, for several), given up when it is dropped unused.
pub struct Room(OwnedSemaphorePermit);

impl Room {
    pub fn split(&mut self, cost: usize) -> Option<Room> {
        self.0.split(cost).map(Room)
    }

    fn spend(self) -> u32 {
        let cost = self.0.num_permits() as u32;
        self.0.forget();
        cost
    }
}

impl Uplink {
    pub fn new(capacity: usize, stats: Arc<Stats>) -> std::io::Result<Self> {
        let (waker, wakee) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        wakee.set_nonblocking(true)?;
        Ok(Self {
            inner: Mutex::new(Inner {
                lanes: Lanes::default(),
                signalled: false,
                closed: false,
            }),
            space: Arc::new(Semaphore::new(capacity)),
            capacity,
            waker,
            wakee,
            stats,
        })
    }

    fn cut(&self, cost: usize) -> u32 {
        u32::try_from(cost.min(self.capacity)).unwrap_or(u32::MAX)
    }

    pub fn try_room(&self, cost: usize) -> Option<Room> {
        match Arc::clone(&self.space).try_acquire_many_owned(self.cut(cost)) {
            Ok(permit) => Some(Room(permit)),
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => None,
        }
    }

    pub async fn room(&self, cost: usize) -> Result<Room, AcquireError> {
        Arc::clone(&self.space)
            .acquire_many_owned(self.cut(cost))
            .await
            .map(Room)
    }

    /// What a device says.
    pub fn push(&self, item: Item, receipt: Option<Receipt>, room: Room) {
        self.enter(Haste::Prompt, item, receipt, room);
    }

    /// That a device has come, gone, or listens; its will too.
    pub fn push_patiently(&self, event: Event, room: Room) {
        self.enter(Haste::Patient, Item::Event(event), None, room);
    }

    fn enter(&self, haste: Haste, item: Item, receipt: Option<Receipt>, room: Room) {
        let cost = room.spend();
        self.stats.uplink_queue.one();
        self.stats.uplink_queue_bytes.add(u64::from(cost));
        let mut inner = self.inner.lock();
        let entry = Entry {
            item,
            receipt,
            cost,
        };
        inner.lanes.push(entry, haste);
        self.signal(&mut inner);
    }

    /// At most `limit` items, those of one device's lane in the order of their arrival; None when there is nothing.
    pub fn take(&self, limit: usize) -> Option<Batch> {
        let mut inner = self.inner.lock();
        let entries = inner.lanes.take(limit);
        if entries.is_empty() {
            return None;
        }
        if inner.lanes.is_empty() {
            self.unsignal(&mut inner);
        }
        drop(inner);
        let freed: usize = entries.iter().map(|entry| entry.cost as usize).sum();
        self.space.add_permits(freed);
        self.stats.uplink_queue.sub(entries.len() as u64);
        self.stats.uplink_queue_bytes.sub(freed as u64);
        Some(Batch::of(entries, Arc::clone(&self.stats)))
    }

    /// Nothing more will come; the descriptor stays readable so that whoever waits on it finds out.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        self.signal(&mut inner);
    }

    pub fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }

    pub fn descriptor(&self) -> RawFd {
        self.wakee.as_raw_fd()
    }

    fn signal(&self, inner: &mut Inner) {
        if !inner.signalled {
            // One byte at most is ever in the pair, so the write cannot block.
            inner.signalled = (&self.waker).write(&[1]).is_ok();
        }
    }

    fn unsignal(&self, inner: &mut Inner) {
        if inner.signalled && !inner.closed {
            let mut byte = [0u8; 1];
            inner.signalled = (&self.wakee).read(&mut byte).is_err();
        }
    }
}

/// What was taken together and is acknowledged together.
pub struct Batch {
    pub telemetry: Vec<TelemetryMessage>,
    pub events: Vec<Event>,
    receipts: Vec<Receipt>,
    stats: Arc<Stats>,
}

impl Batch {
    fn of(entries: Vec<Entry>, stats: Arc<Stats>) -> Self {
        let mut batch = Self {
            telemetry: Vec::new(),
            events: Vec::new(),
            receipts: Vec::new(),
            stats,
        };
        for entry in entries {
            match entry.item {
                Item::Telemetry(message) => batch.telemetry.push(message),
                Item::Event(event) => batch.events.push(event),
            }
            batch.receipts.extend(entry.receipt);
        }
        batch
    }

    /// Confirms every message of the batch that waits for it. Once; later calls find nothing to do.
    pub fn ack(&mut self) {
        self.stats.uplink_acked.add(self.receipts.len() as u64);
        for receipt in self.receipts.drain(..) {
            receipt.connection.confirm(receipt.sequence);
        }
    }

    /// Closes every connection that waits for this batch, so that its device sends again.
    pub fn nack(&mut self) {
        self.stats.uplink_nacked.add(self.receipts.len() as u64);
        for receipt in self.receipts.drain(..) {
            receipt.connection.close(Close::Unconfirmed);
        }
    }
}

impl Drop for Batch {
    /// A batch that was forgotten must not leave its devices waiting for ever.
    fn drop(&mut self) {
        self.nack();
    }
}
