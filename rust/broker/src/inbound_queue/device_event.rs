//! What happens to a device beside its telemetry.

use std::sync::Arc;

use bytes::Bytes;

/// The device of an event.
#[derive(Clone)]
pub struct InboundEventDevice {
    pub device: u32,
    pub device_id: Arc<str>,
}

/// Times are Unix milliseconds; topics and filters are relative to the device's prefix.
pub enum BrokerDeviceEvent {
    Connect {
        source: InboundEventDevice,
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
        source: InboundEventDevice,
        reason: &'static str,
        at_ms: i64,
        /// That of the device's last connect event.
        session: i64,
    },
    Subscribe {
        source: InboundEventDevice,
        filter: String,
        at_ms: i64,
        /// Unix milliseconds; 0 for a new subscription. A resumed session holds what was sent to it before then.
        held_until_ms: i64,
    },
    Publish {
        source: InboundEventDevice,
        topic: String,
        payload: Bytes,
        qos: u8,
        retain: bool,
        at_ms: i64,
    },
    /// The broker dropped a message of this device; at most one event a minute for each device and kind.
    Fault {
        source: InboundEventDevice,
        kind: &'static str,
        at_ms: i64,
    },
}

impl BrokerDeviceEvent {
    pub(super) fn source(&self) -> &InboundEventDevice {
        match self {
            Self::Connect { source, .. }
            | Self::Disconnect { source, .. }
            | Self::Subscribe { source, .. }
            | Self::Publish { source, .. }
            | Self::Fault { source, .. } => source,
        }
    }
}
