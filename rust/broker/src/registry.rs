//! Who may come in, who is here, and what waits for them.
//!
//! A client id belongs to its device: connections are found by (device, client id), so two devices that choose the same client
//! id never meet. Lock order: a device's state, then a connection's outbox, then the uplink queue.

use std::collections::HashMap;
use std::sync::Arc;

use blake3::Hash;
use parking_lot::RwLock;

use crate::connection::{Close, Delivery, Downlink};
use crate::device::{Device, Standing};
use crate::limits::Limits;
use crate::topics::Profile;

#[derive(Default)]
pub struct Depths {
    pub devices: u64,
    /// Messages not sent yet, those of stored sessions included.
    pub waiting: u64,
    pub unacknowledged: u64,
    pub stored: u64,
}

pub struct Registry {
    devices: RwLock<HashMap<Arc<str>, Arc<Device>>>,
    key: [u8; 32],
}

impl Registry {
    /// `key`: made anew at each start; only digests of passwords are held.
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            devices: RwLock::new(HashMap::new()),
            key,
        }
    }

    fn digest(&self, password: &[u8]) -> Hash {
        blake3::keyed_hash(&self.key, password)
    }

    pub fn admit(
        &self,
        device_id: &str,
        number: u32,
        password: &str,
        profile: Profile,
        limits: &Limits,
    ) {
        let digest = self.digest(password.as_bytes());
        let device = self.find(device_id).unwrap_or_else(|| {
            let id: Arc<str> = device_id.into();
            let device = Arc::new(Device::new(Arc::clone(&id), limits));
            Arc::clone(self.devices.write().entry(id).or_insert(device))
        });
        device.admit(Standing {
            number,
            profile,
            digest,
        });
    }

    /// Refuse from now on, cut, forget. False for a device nobody has admitted.
    pub fn expel(&self, device_id: &str) -> bool {
        let removed = self.devices.write().remove(device_id);
        removed.inspect(|device| device.expel()).is_some()
    }

    pub fn kick(&self, device_id: &str) -> bool {
        self.find(device_id)
            .is_some_and(|device| device.close_all(Close::Expelled))
    }

    pub fn close_all(&self, why: Close) {
        let devices: Vec<_> = self.devices.read().values().cloned().collect();
        for device in devices {
            device.close_all(why);
        }
    }

    /// The comparison of digests takes the same time wherever they differ; an unknown device costs the same hash.
    pub fn authenticate(
        &self,
        device_id: &str,
        password: &[u8],
    ) -> Option<(Arc<Device>, Standing)> {
        let digest = self.digest(password);
        let device = self.find(device_id)?;
        let standing = device.standing(digest)?;
        Some((device, standing))
    }

    pub fn publish(
        &self,
        device_id: &str,
        below: &str,
        message: &Downlink,
        limits: &Limits,
    ) -> Vec<Delivery> {
        self.find(device_id)
            .map_or_else(Vec::new, |device| device.publish(below, message, limits))
    }

    pub fn connected(&self, device_id: &str) -> bool {
        self.find(device_id)
            .is_some_and(|device| device.connected())
    }

    pub fn subscribed_ms(&self, device_id: &str) -> i64 {
        self.find(device_id)
            .map_or(0, |device| device.subscribed_ms())
    }

    /// What is held for all devices at this moment.
    pub fn depths(&self) -> Depths {
        let devices: Vec<_> = self.devices.read().values().cloned().collect();
        let mut depths = Depths {
            devices: devices.len() as u64,
            ..Depths::default()
        };
        for device in devices {
            device.measure(&mut depths);
        }
        depths
    }

    fn find(&self, device_id: &str) -> Option<Arc<Device>> {
        self.devices.read().get(device_id).cloned()
    }
}
