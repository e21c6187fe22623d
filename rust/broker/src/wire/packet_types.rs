//! The packets of MQTT as the broker handles them, the same for both versions.
//!
//! Fields that only MQTT 5 has hold the value that means the same in MQTT 3.1.1. Names follow MQTT 5.0, chapter 3.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use rmqtt_codec::error::DecodeError;

use super::reason;

/// The will message of a CONNECT. The broker publishes it if the connection is lost.
pub struct Will {
    pub topic: ByteString,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    /// How long after the end of the connection it is published; 0 in MQTT 3.1.1.
    pub delay: Duration,
}

pub struct Connect {
    /// 3 is MQTT 3.1, 4 is MQTT 3.1.1, 5 is MQTT 5.
    pub protocol_level: u8,
    pub clean_start: bool,
    pub keep_alive_s: u16,
    pub client_id: ByteString,
    pub username: Option<ByteString>,
    pub password: Option<Bytes>,
    pub will: Option<Will>,
    /// How long the session outlives the connection; `u32::MAX` means that it does not expire.
    pub session_expiry_s: u32,
    pub receive_maximum: u16,
    /// Bytes; None without a limit, as in MQTT 3.1.1.
    pub max_packet_size: Option<u32>,
    /// Whether the client asks for enhanced authentication (MQTT 5.0, 4.12), which the broker does not offer.
    pub enhanced_auth: bool,
}

#[derive(Default)]
pub struct Publish {
    pub topic: ByteString,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    /// 0 at QoS 0.
    pub packet_id: u16,
    /// Message expiry interval in seconds; written to MQTT 5 clients only.
    pub message_expiry_s: Option<u32>,
}

/// One topic filter of a SUBSCRIBE with its options.
pub struct SubscribeFilter {
    pub filter: ByteString,
    pub qos: u8,
    pub retain_as_published: bool,
    /// 0: send retained messages; 1: send them only for a new subscription; 2: do not send them.
    pub retain_handling: u8,
}

/// A packet from a client after its CONNECT.
pub enum Packet {
    Publish(Publish),
    /// A PUBLISH above the size limit. Topic and payload are empty; the codec skips the bytes.
    OversizePublish(Publish),
    PubAck(u16),
    PubRel(u16),
    Subscribe {
        packet_id: u16,
        filters: Vec<SubscribeFilter>,
        has_subscription_id: bool,
    },
    Unsubscribe {
        packet_id: u16,
        filters: Vec<ByteString>,
    },
    PingReq,
    Disconnect {
        reason: u8,
        session_expiry_s: Option<u32>,
    },
    /// A valid packet that needs no reaction.
    Ignored,
}

/// What a CONNACK carries beside its reason code.
#[derive(Default)]
pub struct ConnackProperties {
    pub session_present: bool,
    pub session_expiry_s: Option<u32>,
    pub receive_maximum: u16,
    pub maximum_packet_size: u32,
    pub assigned_client_id: Option<ByteString>,
}

/// The reason code with which the broker must close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolViolation(pub u8);

impl From<DecodeError> for ProtocolViolation {
    fn from(error: DecodeError) -> Self {
        Self(match error {
            DecodeError::InvalidClientId => reason::CLIENT_IDENTIFIER_NOT_VALID,
            DecodeError::MaxSizeExceeded { .. } => reason::PACKET_TOO_LARGE,
            DecodeError::InvalidLength | DecodeError::MalformedPacket | DecodeError::Utf8Error => reason::MALFORMED_PACKET,
            _ => reason::PROTOCOL_ERROR,
        })
    }
}
