//! The devices that may connect, by device id.
//!
//! Law: locks are taken in this order: a device's state, a connection's shared state, the inbound queue.

use std::collections::HashMap;
use std::sync::Arc;

use blake3::Hash;
use parking_lot::RwLock;

use crate::limits::BrokerLimits;
use crate::registered_device::{BrokerDeviceCredentials, BrokerDeviceEntry};
use crate::shared_connection_state::CloseReason;
use crate::stats::BrokerBacklogTotals;
use crate::topic_authorization::FirmwareProfile;

pub struct BrokerDeviceRegistry {
    devices: RwLock<HashMap<Arc<str>, Arc<BrokerDeviceEntry>>>,
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
            let device = Arc::new(BrokerDeviceEntry::new(Arc::clone(&id), limits));
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
    pub fn authenticate(&self, device_id: &str, password: &[u8]) -> Option<(Arc<BrokerDeviceEntry>, BrokerDeviceCredentials)> {
        let digest = self.digest(password);
        let device = self.find(device_id)?;
        let credentials = device.credentials(digest)?;
        Some((device, credentials))
    }

    /// For a caller that has proved its identity in another way than by the password.
    pub fn find_with_credentials(&self, device_id: &str) -> Option<(Arc<BrokerDeviceEntry>, BrokerDeviceCredentials)> {
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

    pub fn find(&self, device_id: &str) -> Option<Arc<BrokerDeviceEntry>> {
        self.devices.read().get(device_id).cloned()
    }

    fn snapshot(&self) -> Vec<Arc<BrokerDeviceEntry>> {
        self.devices.read().values().cloned().collect()
    }
}
