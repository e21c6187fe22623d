//! The packets of MQTT as the broker handles them, the same for both versions.
//!
//! Fields that only MQTT 5 has hold the value that means the same in MQTT 3.1.1. Names follow MQTT 5.0, chapter 3.
//! The functions at the end make them from the packets of `rmqtt-codec`, in either version.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use rmqtt_codec::error::DecodeError;
use rmqtt_codec::types::{Publish as CodecPublish, QoS};
use rmqtt_codec::{v3, v5};

/// The reason codes that the broker uses, named as in MQTT 5.0, section 2.4.
pub mod reason {
    pub const SUCCESS: u8 = 0x00;
    pub const DISCONNECT_WITH_WILL: u8 = 0x04;
    pub const MALFORMED_PACKET: u8 = 0x81;
    pub const PROTOCOL_ERROR: u8 = 0x82;
    pub const UNSUPPORTED_PROTOCOL_VERSION: u8 = 0x84;
    pub const CLIENT_IDENTIFIER_NOT_VALID: u8 = 0x85;
    pub const BAD_USER_NAME_OR_PASSWORD: u8 = 0x86;
    pub const NOT_AUTHORIZED: u8 = 0x87;
    pub const SERVER_BUSY: u8 = 0x89;
    pub const SERVER_SHUTTING_DOWN: u8 = 0x8b;
    pub const BAD_AUTHENTICATION_METHOD: u8 = 0x8c;
    pub const KEEP_ALIVE_TIMEOUT: u8 = 0x8d;
    pub const SESSION_TAKEN_OVER: u8 = 0x8e;
    pub const TOPIC_NAME_INVALID: u8 = 0x90;
    pub const PACKET_IDENTIFIER_NOT_FOUND: u8 = 0x92;
    pub const TOPIC_ALIAS_INVALID: u8 = 0x94;
    pub const PACKET_TOO_LARGE: u8 = 0x95;
    pub const QUOTA_EXCEEDED: u8 = 0x97;
    pub const ADMINISTRATIVE_ACTION: u8 = 0x98;
    pub const QOS_NOT_SUPPORTED: u8 = 0x9b;
    pub const SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: u8 = 0x9e;
    pub const SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: u8 = 0xa1;
}

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
    /// Whether an empty client id asks for a session that is kept, which MQTT 3.1.1 does not allow. To be refused once it is known
    /// whose it is.
    pub lacks_client_id: bool,
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

pub(super) fn connect_from_v3(connect: v3::Connect) -> Connect {
    Connect {
        protocol_level: connect.protocol.level(),
        clean_start: connect.clean_session,
        keep_alive_s: connect.keep_alive,
        client_id: connect.client_id,
        username: connect.username,
        password: connect.password,
        will: connect.last_will.map(|will| Will {
            topic: will.topic,
            payload: will.message,
            qos: will.qos.value(),
            retain: will.retain,
            delay: Duration::ZERO,
        }),
        session_expiry_s: if connect.clean_session { 0 } else { u32::MAX },
        receive_maximum: u16::MAX,
        max_packet_size: None,
        enhanced_auth: false,
        lacks_client_id: false,
    }
}

pub(super) fn connect_from_v5(connect: v5::Connect) -> Connect {
    Connect {
        protocol_level: 5,
        clean_start: connect.clean_start,
        keep_alive_s: connect.keep_alive,
        client_id: connect.client_id,
        username: connect.username,
        password: connect.password,
        will: connect.last_will.map(|will| Will {
            topic: will.topic,
            payload: will.message,
            qos: will.qos.value(),
            retain: will.retain,
            delay: Duration::from_secs(u64::from(will.will_delay_interval_sec.unwrap_or(0))),
        }),
        session_expiry_s: connect.session_expiry_interval_secs,
        receive_maximum: connect.receive_max.map_or(u16::MAX, NonZeroU16::get),
        max_packet_size: connect.max_packet_size.map(NonZeroU32::get),
        enhanced_auth: connect.auth_method.is_some(),
        lacks_client_id: false,
    }
}

fn inbound_publish(publish: CodecPublish) -> Result<Packet, ProtocolViolation> {
    // Topic Alias Maximum is 0, with a topic as without one (MQTT-3.3.2-9).
    if publish
        .properties
        .as_ref()
        .is_some_and(|properties| properties.topic_alias.is_some())
    {
        return Err(ProtocolViolation(reason::TOPIC_ALIAS_INVALID));
    }
    if publish.topic.is_empty() {
        return Err(ProtocolViolation(reason::PROTOCOL_ERROR));
    }
    if publish.topic.contains(['+', '#', '\0']) {
        return Err(ProtocolViolation(reason::TOPIC_NAME_INVALID));
    }
    Ok(Packet::Publish(Publish {
        topic: publish.topic,
        payload: publish.payload,
        qos: publish.qos.value(),
        retain: publish.retain,
        dup: publish.dup,
        packet_id: publish.packet_id.map_or(0, NonZeroU16::get),
        message_expiry_s: None,
    }))
}

pub(super) fn packet_from_v3(packet: v3::Packet) -> Result<Packet, ProtocolViolation> {
    Ok(match packet {
        v3::Packet::Publish(publish) => inbound_publish(*publish)?,
        v3::Packet::PublishAck { packet_id } => Packet::PubAck(packet_id.get()),
        v3::Packet::PublishRelease { packet_id } => Packet::PubRel(packet_id.get()),
        v3::Packet::Subscribe {
            packet_id,
            topic_filters,
        } => {
            let without_options = |(filter, qos): (ByteString, QoS)| SubscribeFilter {
                filter,
                qos: qos.value(),
                retain_as_published: false,
                retain_handling: 0,
            };
            let filters = topic_filters.into_iter().map(without_options).collect();
            Packet::Subscribe {
                packet_id: packet_id.get(),
                filters,
                has_subscription_id: false,
            }
        }
        v3::Packet::Unsubscribe {
            packet_id,
            topic_filters,
        } => Packet::Unsubscribe {
            packet_id: packet_id.get(),
            filters: topic_filters,
        },
        v3::Packet::PingRequest => Packet::PingReq,
        v3::Packet::Disconnect => Packet::Disconnect {
            reason: reason::SUCCESS,
            session_expiry_s: None,
        },
        v3::Packet::PublishReceived { .. } | v3::Packet::PublishComplete { .. } => Packet::Ignored,
        _ => return Err(ProtocolViolation(reason::PROTOCOL_ERROR)),
    })
}

pub(super) fn packet_from_v5(packet: v5::Packet) -> Result<Packet, ProtocolViolation> {
    Ok(match packet {
        v5::Packet::Publish(publish) => inbound_publish(*publish)?,
        v5::Packet::PublishAck(ack) => Packet::PubAck(ack.packet_id.get()),
        v5::Packet::PublishRelease(release) => Packet::PubRel(release.packet_id.get()),
        v5::Packet::Subscribe(subscribe) => {
            let with_options = |(filter, options): (ByteString, v5::SubscriptionOptions)| SubscribeFilter {
                filter,
                qos: options.qos.value(),
                retain_as_published: options.retain_as_published,
                retain_handling: options.retain_handling.into(),
            };
            Packet::Subscribe {
                packet_id: subscribe.packet_id.get(),
                filters: subscribe.topic_filters.into_iter().map(with_options).collect(),
                has_subscription_id: subscribe.id.is_some(),
            }
        }
        v5::Packet::Unsubscribe(unsubscribe) => Packet::Unsubscribe {
            packet_id: unsubscribe.packet_id.get(),
            filters: unsubscribe.topic_filters,
        },
        v5::Packet::PingRequest => Packet::PingReq,
        v5::Packet::Disconnect(disconnect) => Packet::Disconnect {
            reason: disconnect.reason_code.into(),
            session_expiry_s: disconnect.session_expiry_interval_secs,
        },
        v5::Packet::PublishReceived(_) | v5::Packet::PublishComplete(_) => Packet::Ignored,
        _ => return Err(ProtocolViolation(reason::PROTOCOL_ERROR)),
    })
}
