//! The courier: requests in, events out, one task per request.
//!
//! Of one queue a few requests are sent at once; the others wait here in the order of their arrival. So the owner can hand over more
//! requests than may be sent at a time, and the next one starts as soon as a response arrives.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::connection::{GuardedConnector, tls_connector};
use crate::events::{EventQueue, Lookups};
use crate::http_exchange::{HttpClient, exchange, http_client};
use crate::model::{AttemptFailure, AttemptResult, CourierStartError, HttpCourierEvent, OutboundHttpRequest, QUEUE_TIMEOUT};

/// One thread sends more than a database can log, and leaves the other cores to the rest of the service.
const THREADS: usize = 1;

struct SharedCourierState {
    client: HttpClient,
    lookups: Arc<Lookups>,
    events: Arc<EventQueue>,
    queues: EndpointQueues,
    in_flight: Mutex<HashMap<u64, AbortHandle>>,
}

pub struct Courier {
    shared: Arc<SharedCourierState>,
    runtime: Mutex<Option<Runtime>>,
    trusted_roots: usize,
}

impl Courier {
    /// `extra_pem`: certificates trusted in addition to the system's. `max_concurrent`: requests of one queue.
    pub fn new(extra_pem: &[u8], max_concurrent: usize) -> Result<Self, CourierStartError> {
        let (tls, trusted_roots) = tls_connector(extra_pem)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("webhook-courier")
            .enable_all()
            .build()?;
        let events = Arc::new(EventQueue::new()?);
        let lookups = Arc::new(Lookups::new(Arc::clone(&events)));
        let shared = Arc::new(SharedCourierState {
            client: http_client(GuardedConnector::new(Arc::clone(&lookups), tls)),
            lookups,
            events,
            queues: EndpointQueues::new(max_concurrent.max(1)),
            in_flight: Mutex::new(HashMap::new()),
        });
        Ok(Self {
            shared,
            runtime: Mutex::new(Some(runtime)),
            trusted_roots,
        })
    }

    /// How many root certificates are trusted; without any, no https request succeeds.
    pub fn trusted_roots(&self) -> usize {
        self.trusted_roots
    }

    /// After `stop` nothing is sent.
    pub fn send(&self, requests: Vec<OutboundHttpRequest>) {
        let runtime = self.runtime.lock();
        let Some(runtime) = runtime.as_ref() else {
            return;
        };
        // Locked over the whole batch, so that no task ends before it is listed.
        let mut in_flight = self.shared.in_flight.lock();
        for request in requests {
            let attempt_id = request.attempt_id;
            let task = runtime.spawn(attempt(Arc::clone(&self.shared), request));
            in_flight.insert(attempt_id, task.abort_handle());
        }
    }

    /// Attempts that have ended are ignored.
    pub fn cancel(&self, attempt_ids: &[u64]) {
        let mut in_flight = self.shared.in_flight.lock();
        for attempt_id in attempt_ids {
            if let Some(task) = in_flight.remove(attempt_id) {
                task.abort();
            }
        }
    }

    /// The addresses that the lookup's host may be reached at, best first.
    pub fn resolve_lookup(&self, lookup_id: u64, addresses: Vec<IpAddr>) {
        self.shared.lookups.complete(lookup_id, Ok(addresses));
    }

    /// The lookup's host must or can not be reached, and why.
    pub fn fail_lookup(&self, lookup_id: u64, reason: String) {
        self.shared.lookups.complete(lookup_id, Err(reason));
    }

    pub fn take_events(&self) -> Vec<HttpCourierEvent> {
        self.shared.events.take_all()
    }

    /// Readable while there are events to take.
    pub fn readable_fd(&self) -> RawFd {
        self.shared.events.readable_fd()
    }

    /// Closes every connection; no event follows.
    pub fn stop(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn attempt(shared: Arc<SharedCourierState>, request: OutboundHttpRequest) {
    let queue = shared.queues.join(&request.queue_key);
    let permit = timeout(QUEUE_TIMEOUT, queue.acquire()).await;
    let started = Instant::now();
    let result = if permit.is_ok() {
        timeout(request.timeout, exchange(&shared.client, &request))
            .await
            .unwrap_or(Err(AttemptFailure::Timeout(request.timeout)))
    } else {
        Err(AttemptFailure::NotSent)
    };
    drop(permit);
    drop(queue);
    // A request that is cancelled at this moment has no result.
    let attempt_id = request.attempt_id;
    if shared.in_flight.lock().remove(&attempt_id).is_some() {
        shared.events.push(HttpCourierEvent::Finished(AttemptResult {
            attempt_id,
            result,
            duration: started.elapsed(),
        }));
    }
}

struct EndpointQueue {
    slots: Arc<Semaphore>,
    /// Requests that wait or are being sent.
    members: usize,
}

/// How many requests of one queue are sent at once.
struct EndpointQueues {
    max_concurrent: usize,
    queues: Mutex<HashMap<String, EndpointQueue>>,
}

impl EndpointQueues {
    /// `max_concurrent`: requests of one queue, at least 1.
    pub fn new(max_concurrent: usize) -> Self {
        Self {
            max_concurrent,
            queues: Mutex::new(HashMap::new()),
        }
    }

    /// Without a key there is no queue, and nothing to wait for.
    pub fn join<'a>(&'a self, key: &'a str) -> EndpointQueueGuard<'a> {
        let slots = (!key.is_empty()).then(|| {
            let mut queues = self.queues.lock();
            let queue = queues.entry(key.to_owned()).or_insert_with(|| EndpointQueue {
                slots: Arc::new(Semaphore::new(self.max_concurrent)),
                members: 0,
            });
            queue.members += 1;
            Arc::clone(&queue.slots)
        });
        EndpointQueueGuard {
            queues: self,
            key,
            slots,
        }
    }
}

/// Leaves the queue when dropped; the last member removes it.
struct EndpointQueueGuard<'a> {
    queues: &'a EndpointQueues,
    key: &'a str,
    slots: Option<Arc<Semaphore>>,
}

impl EndpointQueueGuard<'_> {
    /// The permit to hold while sending; None where there is no queue.
    pub async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        match &self.slots {
            Some(slots) => Arc::clone(slots).acquire_owned().await.ok(),
            None => None,
        }
    }
}

impl Drop for EndpointQueueGuard<'_> {
    fn drop(&mut self) {
        if self.slots.is_some() {
            let mut queues = self.queues.queues.lock();
            if let Some(queue) = queues.get_mut(self.key) {
                queue.members -= 1;
                if queue.members == 0 {
                    queues.remove(self.key);
                }
            }
        }
    }
}
