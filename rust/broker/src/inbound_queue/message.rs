//! What the queue carries: telemetry, and what happens to a device beside it, with the acknowledgement that a device waits for.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::RwLock;

use crate::connection_handle::ConnectionHandle;

/// The bytes that a queued message counts beside its payload: the queue entry, two allocations, the acknowledgement handle.
pub const MESSAGE_OVERHEAD: usize = 192;

pub struct RawTelemetryMessage {
    /// The device's number.
    pub device: u32,
    /// Unix milliseconds.
    pub arrived_ms: i64,
    pub payload: Bytes,
}

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
    /// The broker dropped a message of this device, or refused it; at most one event a minute for each device and kind.
    Fault {
        source: InboundEventDevice,
        kind: &'static str,
        at_ms: i64,
        /// Topic or filter, empty where there is none. Below the device's prefix; one that is not, as it came. Its first characters.
        topic: String,
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

/// What the broker did not accept from a device; each kind is reported at most once a minute. The value is the index of the device's
/// last report. The first three drop a message; the others refuse the device itself, or its will or subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    Forbidden = 0,
    Oversize,
    QueueFull,
    /// A topic or filter that the device may not use: of another, a command topic, no valid filter.
    TopicNotAllowed,
    /// A publish or will at QoS 2.
    QosTwo,
    TooManySubscriptions,
    /// Shared subscriptions and subscription identifiers.
    NotOffered,
    /// The client id of another device or of the service; none, where a session is to be kept (MQTT 3.1.1, 3.1.3.1).
    ClientId,
    /// Connections of the device close each other again and again.
    UsedTwice,
    WrongPassword,
    /// The certificate is of another device than the username.
    OtherUsername,
    ProtocolError,
}

impl FaultKind {
    pub const COUNT: usize = Self::ProtocolError as usize + 1;

    /// The `kind` of the device's `fault` event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Oversize => "oversize",
            Self::QueueFull => "queue_full",
            Self::TopicNotAllowed => "topic_not_allowed",
            Self::QosTwo => "qos_2",
            Self::TooManySubscriptions => "too_many_subscriptions",
            Self::NotOffered => "not_offered",
            Self::ClientId => "client_id",
            Self::UsedTwice => "used_twice",
            Self::WrongPassword => "wrong_password",
            Self::OtherUsername => "other_username",
            Self::ProtocolError => "protocol_error",
        }
    }
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

/// What the service took for the present, and when it said so.
static SERVICE_TIME: RwLock<Option<(i64, Instant)>> = RwLock::new(None);

/// Tells all brokers of this process what the present is, in Unix milliseconds. They count on from there: a machine's clock that
/// is set changes nothing until the service believes it.
pub fn set_now_ms(now_ms: i64) {
    *SERVICE_TIME.write() = Some((now_ms, Instant::now()));
}

/// The present in Unix milliseconds: as the service told it, else by the wall clock. The broker stamps a message when it reads it
/// from the socket.
pub fn now_ms() -> i64 {
    if let Some((told_ms, told_at)) = *SERVICE_TIME.read() {
        return told_ms.saturating_add(told_at.elapsed().as_millis() as i64);
    }
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_millis() as i64)
}
