//! The packets that a simulated device reads, and its CONNECT, in either version.

use std::num::NonZeroU16;

use bytes::Bytes;
use bytestring::ByteString;
use rmqtt_codec::types::{Publish, QoS};
use rmqtt_codec::{v3, v5};

use crate::config::DeviceCredentials;

/// A packet from the broker, as far as a device needs it.
pub(crate) enum ServerPacket {
    ConnectionAccepted,
    PubAck(u16),
    Publish(ReceivedPublish),
    /// MQTT 5: the broker closes the connection.
    Disconnect,
    /// A refused CONNECT included.
    Other,
}

pub(crate) struct ReceivedPublish {
    pub topic: ByteString,
    pub payload: Bytes,
    pub packet_id: Option<NonZeroU16>,
}

impl From<Publish> for ReceivedPublish {
    fn from(publish: Publish) -> Self {
        Self {
            topic: publish.topic,
            payload: publish.payload,
            packet_id: publish.packet_id,
        }
    }
}

pub(crate) fn v3_connect(credentials: &DeviceCredentials, keep_alive_s: u16, will: &(String, &'static str)) -> v3::Connect {
    v3::Connect {
        clean_session: true,
        keep_alive: keep_alive_s,
        client_id: credentials.device_id.as_str().into(),
        username: Some(credentials.device_id.as_str().into()),
        password: Some(Bytes::copy_from_slice(credentials.password.as_bytes())),
        last_will: Some(v3::LastWill {
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: will.0.as_str().into(),
            message: Bytes::from_static(will.1.as_bytes()),
        }),
        ..v3::Connect::default()
    }
}

pub(crate) fn v5_connect(credentials: &DeviceCredentials, keep_alive_s: u16, will: &(String, &'static str)) -> v5::Connect {
    v5::Connect {
        clean_start: true,
        keep_alive: keep_alive_s,
        client_id: credentials.device_id.as_str().into(),
        username: Some(credentials.device_id.as_str().into()),
        password: Some(Bytes::copy_from_slice(credentials.password.as_bytes())),
        last_will: Some(v5::LastWill {
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: will.0.as_str().into(),
            message: Bytes::from_static(will.1.as_bytes()),
            will_delay_interval_sec: None,
            correlation_data: None,
            message_expiry_interval: None,
            content_type: None,
            user_properties: Vec::new(),
            is_utf8_payload: None,
            response_topic: None,
        }),
        ..v5::Connect::default()
    }
}

impl From<v3::Packet> for ServerPacket {
    fn from(packet: v3::Packet) -> Self {
        match packet {
            v3::Packet::ConnectAck(ack) if ack.return_code == v3::ConnectAckReason::ConnectionAccepted => {
                Self::ConnectionAccepted
            }
            v3::Packet::PublishAck { packet_id } => Self::PubAck(packet_id.get()),
            v3::Packet::Publish(publish) => Self::Publish((*publish).into()),
            _ => Self::Other,
        }
    }
}

impl From<v5::Packet> for ServerPacket {
    fn from(packet: v5::Packet) -> Self {
        match packet {
            v5::Packet::ConnectAck(ack) if ack.reason_code == v5::ConnectAckReason::Success => Self::ConnectionAccepted,
            v5::Packet::PublishAck(ack) => Self::PubAck(ack.packet_id.get()),
            v5::Packet::Publish(publish) => Self::Publish((*publish).into()),
            v5::Packet::Disconnect(_) => Self::Disconnect,
            _ => Self::Other,
        }
    }
}
