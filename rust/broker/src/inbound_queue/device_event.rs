//! What happens to a device beside its telemetry.

use std::sync::Arc;

use bytes::Bytes;

/// The device of an event.
#[derive(Clone)]
pub struct EventDevice {
    pub device: u32,
    pub device_id: Arc<str>,
}

/// Times are Unix milliseconds; topics and filters are relative to the device's prefix.
pub enum DeviceEvent {
    Connect {
        source: EventDevice,
        protocol: &'static str,
        address: String,
        at_ms: i64,
        /// Bytes; None without a limit.
        max_packet_size: Option<u32>,
        session_present: bool,
        session: i64,
    },
    /// The last connection of the device has ended.
    Disconnect {
        source: EventDevice,
        reason: &'static str,
        at_ms: i64,
        /// That of the device's last connect event.
        session: i64,
    },
    Subscribe {
        source: EventDevice,
        filter: String,
        at_ms: i64,
        /// Unix milliseconds; 0 for a new subscription. A resumed session holds what was sent to it before then.
        held_until_ms: i64,
    },
    Publish {
        source: EventDevice,
        topic: String,
        payload: Bytes,
        qos: u8,
        retain: bool,
        at_ms: i64,
    },
    /// The broker dropped a message of this device; at most one event a minute for each device and kind.
    Fault {
        source: EventDevice,
        kind: &'static str,
        at_ms: i64,
    },
}

impl DeviceEvent {
    pub(super) fn source(&self) -> &EventDevice {
        match self {
            Self::Connect { source, .. }
            | Self::Disconnect { source, .. }
            | Self::Subscribe { source, .. }
            | Self::Publish { source, .. }
            | Self::Fault { source, .. } => source,
        }
    }
}
