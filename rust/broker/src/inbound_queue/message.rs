//! What the broker hands to the service: telemetry messages and device events; and how they are queued.

use std::sync::Arc;

use bytes::Bytes;

use crate::shared_connection_state::Connection;

/// The bytes that a queued message counts beside its payload: the queue entry, two allocations, the acknowledgement handle.
pub const MESSAGE_OVERHEAD: usize = 192;

pub struct TelemetryMessage {
    /// The device's number.
    pub device: u32,
    /// Unix milliseconds.
    pub arrived_ms: i64,
    pub payload: Bytes,
}

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

pub enum InboundMessage {
    Telemetry(TelemetryMessage),
    Event(DeviceEvent),
}

/// The connection that waits for the acknowledgement of a publish, and the publish's sequence number there.
pub struct AckHandle {
    pub connection: Arc<Connection>,
    pub sequence: u64,
}

pub(super) struct QueuedInboundMessage {
    pub(super) message: InboundMessage,
    pub(super) ack: Option<AckHandle>,
    /// What the message counts against the queue's capacity.
    pub(super) bytes: u32,
}
