//! What every connection shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytestring::ByteString;
use tokio::sync::{Semaphore, watch};

use crate::device_registry::BrokerDeviceRegistry;
use crate::inbound_queue::InMemoryInboundQueue;
use crate::limits::BrokerLimits;
use crate::stats::BrokerStats;
use crate::unauthenticated_connections::PendingConnections;

pub struct BrokerState {
    pub registry: BrokerDeviceRegistry,
    pub inbound_queue: InMemoryInboundQueue,
    pub stats: Arc<BrokerStats>,
    /// One permit for each socket that may be open.
    pub socket_permits: Arc<Semaphore>,
    pub pending: Arc<PendingConnections>,
    pub limits: BrokerLimits,
    pub shutdown: watch::Sender<bool>,
    /// No socket listens and no connection stays open while it is true.
    pub suspended: watch::Sender<bool>,
    assigned_client_ids: AtomicU64,
}

impl BrokerState {
    /// Fails when the system gives no random bytes or no socket pair.
    pub fn new(limits: BrokerLimits) -> std::io::Result<Self> {
        let stats = Arc::new(BrokerStats::default());
        let mut key = [0u8; 32];
        getrandom::fill(&mut key).map_err(std::io::Error::from)?;
        Ok(Self {
            registry: BrokerDeviceRegistry::new(key),
            inbound_queue: InMemoryInboundQueue::new(limits.inbound_queue_bytes, Arc::clone(&stats))?,
            stats,
            socket_permits: Arc::new(Semaphore::new(limits.max_connections)),
            pending: Arc::new(PendingConnections::new(&limits)),
            limits,
            shutdown: watch::Sender::new(false),
            suspended: watch::Sender::new(false),
            assigned_client_ids: AtomicU64::new(1),
        })
    }

    /// For a client that sends an empty client id. It needs to be unique only within the device.
    pub fn assign_client_id(&self) -> ByteString {
        let number = self.assigned_client_ids.fetch_add(1, Ordering::Relaxed);
        format!("auto-{number}").into()
    }
}
