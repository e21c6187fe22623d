//! What every connection shares, the devices that may connect among it.
//!
//! Law: locks are taken in this order: a device's state, a connection's shared state, the inbound queue.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blake3::Hash;
use bytestring::ByteString;
use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};

use crate::connection_handle::CloseReason;
use crate::device::{BrokerDeviceCredentials, Device};
use crate::inbound_queue::InboundQueue;
use crate::limits::BrokerLimits;
use crate::stats::{BrokerBacklogTotals, BrokerStats};
use crate::topic_authorization::FirmwareProfile;
use crate::unauthenticated_connections::PendingConnections;

pub struct BrokerState {
    pub registry: BrokerDeviceRegistry,
    pub inbound_queue: InboundQueue,
    pub stats: Arc<BrokerStats>,
    /// One permit for each socket that may be open.
    pub socket_permits: Arc<Semaphore>,
    pub pending: Arc<PendingConnections>,
    pub limits: BrokerLimits,
    pub shutdown: watch::Sender<bool>,
    /// No socket listens and no connection stays open while it is true.
    pub suspended: watch::Sender<bool>,
    /// For digests by which a connection knows a message again.
    pub digest_keys: RandomState,
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
            inbound_queue: InboundQueue::new(limits.inbound_queue_bytes, Arc::clone(&stats))?,
            stats,
            socket_permits: Arc::new(Semaphore::new(limits.max_connections)),
            pending: Arc::new(PendingConnections::new(&limits)),
            limits,
            shutdown: watch::Sender::new(false),
            suspended: watch::Sender::new(false),
            digest_keys: RandomState::new(),
            assigned_client_ids: AtomicU64::new(1),
        })
    }

    /// For a client that sends an empty client id. It needs to be unique only within the device.
    pub fn assign_client_id(&self) -> ByteString {
        let number = self.assigned_client_ids.fetch_add(1, Ordering::Relaxed);
        format!("auto-{number}").into()
    }
}

/// The devices that may connect, by device id.
pub struct BrokerDeviceRegistry {
    devices: RwLock<HashMap<Arc<str>, Arc<Device>>>,
    digest_key: [u8; 32],
}

impl BrokerDeviceRegistry {
    /// `digest_key`: random, new at each start. The registry holds keyed digests of passwords only.
    pub fn new(digest_key: [u8; 32]) -> Self {
        Self {
            devices: RwLock::new(HashMap::new()),
            digest_key,
        }
    }

    fn digest(&self, password: &[u8]) -> Hash {
        blake3::keyed_hash(&self.digest_key, password)
    }

    pub fn upsert_credentials(
        &self,
        device_id: &str,
        number: u32,
        password: &str,
        profile: FirmwareProfile,
        limits: &BrokerLimits,
    ) {
        let password_digest = self.digest(password.as_bytes());
        let device = self.find(device_id).unwrap_or_else(|| {
            let id: Arc<str> = device_id.into();
            let device = Arc::new(Device::new(Arc::clone(&id), limits));
            Arc::clone(self.devices.write().entry(id).or_insert(device))
        });
        device.set_credentials(BrokerDeviceCredentials {
            number,
            profile,
            password_digest,
        });
    }

    /// Close the device's connections and forget it. False for an unknown device.
    pub fn remove_device(&self, device_id: &str) -> bool {
        let removed = self.devices.write().remove(device_id);
        removed.inspect(|device| device.clear()).is_some()
    }

    pub fn close_all(&self, reason: CloseReason) {
        for device in self.snapshot() {
            device.close_all(reason);
        }
    }

    /// Digests compare in constant time, and an unknown device costs the same hash.
    pub fn authenticate(&self, device_id: &str, password: &[u8]) -> Option<(Arc<Device>, BrokerDeviceCredentials)> {
        let digest = self.digest(password);
        let device = self.find(device_id)?;
        let credentials = device.credentials(digest)?;
        Some((device, credentials))
    }

    /// For a caller that has proved its identity in another way than by the password.
    pub fn find_with_credentials(&self, device_id: &str) -> Option<(Arc<Device>, BrokerDeviceCredentials)> {
        let device = self.find(device_id)?;
        let credentials = device.current_credentials()?;
        Some((device, credentials))
    }

    /// What is held for all devices at this moment.
    pub fn depths(&self) -> BrokerBacklogTotals {
        let devices = self.snapshot();
        let mut depths = BrokerBacklogTotals {
            devices: devices.len() as u64,
            ..BrokerBacklogTotals::default()
        };
        for device in devices {
            device.add_depths(&mut depths);
        }
        depths
    }

    pub fn find(&self, device_id: &str) -> Option<Arc<Device>> {
        self.devices.read().get(device_id).cloned()
    }

    fn snapshot(&self) -> Vec<Arc<Device>> {
        self.devices.read().values().cloned().collect()
    }
}
