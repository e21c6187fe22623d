//! What the courier reports to its owner, and the address lookups that it leaves to its owner.
//!
//! Events wait until the owner takes them. The requests under way bound their number: each adds its lookups and one result. A socket pair
//! is readable exactly while the queue is not empty, for any event loop to watch.
//!
//! Law: the owner resolves a name and decides which addresses may be connected to.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::model::{AttemptFailure, HttpCourierEvent, HttpOrigin};

struct CourierQueueState {
    events: VecDeque<HttpCourierEvent>,
    signalled: bool,
}

pub struct EventQueue {
    inner: Mutex<CourierQueueState>,
    signal_writer: UnixStream,
    signal_reader: UnixStream,
}

impl EventQueue {
    pub fn new() -> io::Result<Self> {
        let (signal_writer, signal_reader) = UnixStream::pair()?;
        signal_writer.set_nonblocking(true)?;
        signal_reader.set_nonblocking(true)?;
        let inner = Mutex::new(CourierQueueState {
            events: VecDeque::new(),
            signalled: false,
        });
        Ok(Self {
            inner,
            signal_writer,
            signal_reader,
        })
    }

    pub fn push(&self, event: HttpCourierEvent) {
        let mut inner = self.inner.lock();
        inner.events.push_back(event);
        if !inner.signalled {
            // The pair never holds more than one byte, so the write cannot block.
            inner.signalled = (&self.signal_writer).write(&[1]).is_ok();
        }
    }

    pub fn take_all(&self) -> Vec<HttpCourierEvent> {
        let mut inner = self.inner.lock();
        if inner.signalled {
            let mut byte = [0_u8; 1];
            inner.signalled = (&self.signal_reader).read(&mut byte).is_err();
        }
        inner.events.drain(..).collect()
    }

    pub fn readable_fd(&self) -> RawFd {
        self.signal_reader.as_raw_fd()
    }
}

/// Addresses in the order in which to try them, or why there are none.
pub type LookupResult = Result<Vec<IpAddr>, String>;

pub struct Lookups {
    events: Arc<EventQueue>,
    next_id: AtomicU64,
    pending: Mutex<HashMap<u64, oneshot::Sender<LookupResult>>>,
}

impl Lookups {
    pub fn new(events: Arc<EventQueue>) -> Self {
        Self {
            events,
            next_id: AtomicU64::new(0),
            pending: Mutex::default(),
        }
    }

    /// A lookup that nothing waits for any more is ignored.
    pub fn complete(&self, lookup_id: u64, result: LookupResult) {
        if let Some(sender) = self.pending.lock().remove(&lookup_id) {
            let _ = sender.send(result);
        }
    }

    pub async fn resolve(&self, endpoint: &HttpOrigin) -> Result<Vec<IpAddr>, AttemptFailure> {
        let lookup_id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.pending.lock().insert(lookup_id, sender);
        let _removes = PendingLookupGuard(self, lookup_id);
        self.events.push(HttpCourierEvent::LookupRequested {
            lookup_id,
            host: endpoint.host.clone(),
            port: endpoint.port,
            https: endpoint.https,
        });
        let stopping = || Err("The service is stopping.".to_owned());
        let result = receiver.await.unwrap_or_else(|_| stopping());
        result.map_err(AttemptFailure::LookupFailed)
    }
}

/// Removes a lookup whose request is cancelled or has timed out.
struct PendingLookupGuard<'a>(&'a Lookups, u64);

impl Drop for PendingLookupGuard<'_> {
    fn drop(&mut self) {
        self.0.pending.lock().remove(&self.1);
    }
}
