//! How many requests of one queue are sent at once; the others wait here in the order of their arrival.
//!
//! So the owner can hand over more requests than may be sent at a time, and the next one starts as soon as a response arrives.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

struct EndpointQueue {
    slots: Arc<Semaphore>,
    /// Requests that wait or are being sent.
    members: usize,
}

pub struct EndpointQueues {
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
pub struct EndpointQueueGuard<'a> {
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
