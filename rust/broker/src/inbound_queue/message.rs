//! The telemetry messages and device events of the queue, with their acknowledgement.

use std::sync::Arc;

use bytes::Bytes;

use super::device_event::BrokerDeviceEvent;
use crate::shared_connection_state::ConnectionHandle;

/// The bytes that a queued message counts beside its payload: the queue entry, two allocations, the acknowledgement handle.
pub const MESSAGE_OVERHEAD: usize = 192;

pub struct RawTelemetryMessage {
    /// The device's number.
    pub device: u32,
    /// Unix milliseconds.
    pub arrived_ms: i64,
    pub payload: Bytes,
}

pub enum TelemetryOrBrokerEvent {
    Telemetry(RawTelemetryMessage),
    Event(BrokerDeviceEvent),
}

/// The connection that waits for the acknowledgement of a publish, and the publish's sequence number there.
pub struct AckHandle {
    pub connection: Arc<ConnectionHandle>,
    pub sequence: u64,
}

pub(super) struct QueuedInboundMessage {
    pub(super) message: TelemetryOrBrokerEvent,
    pub(super) ack: Option<AckHandle>,
    /// What the message counts against the queue's capacity.
    pub(super) bytes: u32,
}
