//! Address lookups that the courier's owner answers: it resolves the name and decides which addresses may be connected to.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::courier_event_queue::HttpCourierEventQueue;
use crate::error::AttemptFailure;
use crate::model::{HttpCourierEvent, HttpOrigin};

/// Addresses in the order in which to try them, or why there are none.
pub type LookupResult = Result<Vec<IpAddr>, String>;

pub struct DelegatedAddressLookups {
    events: Arc<HttpCourierEventQueue>,
    next_id: AtomicU64,
    pending: Mutex<HashMap<u64, oneshot::Sender<LookupResult>>>,
}

impl DelegatedAddressLookups {
    pub fn new(events: Arc<HttpCourierEventQueue>) -> Self {
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
struct PendingLookupGuard<'a>(&'a DelegatedAddressLookups, u64);

impl Drop for PendingLookupGuard<'_> {
    fn drop(&mut self) {
        self.0.pending.lock().remove(&self.1);
    }
}
