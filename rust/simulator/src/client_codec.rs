//! The packets of an MQTT client, in either version.

use std::io;
use std::num::NonZeroU16;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use rmqtt_codec::types::{Publish, QoS};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::{Decoder, Encoder};

use crate::config::{DeviceCredentials, MqttVersion};

pub(crate) enum ClientCodec {
    V3(v3::Codec),
    V5(v5::Codec),
}

/// A packet from the broker, as far as a device needs it.
pub(crate) enum ServerPacket {
    ConnectionAccepted,
    ConnectionRefused,
    PubAck(u16),
    Publish(ReceivedPublish),
    /// MQTT 5: the broker closes the connection.
    Disconnect,
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

impl ClientCodec {
    pub fn new(version: MqttVersion) -> Self {
        match version {
            MqttVersion::V311 => Self::V3(v3::Codec::default()),
            MqttVersion::V5 => Self::V5(v5::Codec::default()),
        }
    }

    fn encode(
        &mut self,
        out: &mut BytesMut,
        v3: impl FnOnce() -> v3::Packet,
        v5: impl FnOnce() -> v5::Packet,
    ) -> io::Result<()> {
        match self {
            Self::V3(codec) => codec.encode(v3(), out),
            Self::V5(codec) => codec.encode(v5(), out),
        }
        .map_err(io::Error::other)
    }

    /// A clean session with a retained will at QoS 1, `(topic, payload)`.
    pub fn connect(
        &mut self,
        out: &mut BytesMut,
        credentials: &DeviceCredentials,
        keep_alive_s: u16,
        will: (String, &'static str),
    ) -> io::Result<()> {
        self.encode(
            out,
            || v3_connect(credentials, keep_alive_s, &will).into(),
            || v5::Packet::Connect(Box::new(v5_connect(credentials, keep_alive_s, &will))),
        )
    }

    /// All filters at QoS 1, with packet id 1.
    pub fn subscribe(&mut self, out: &mut BytesMut, filters: Vec<ByteString>) -> io::Result<()> {
        let (packet_id, qos) = (NonZeroU16::MIN, QoS::AtLeastOnce);
        match self {
            Self::V3(codec) => {
                let topic_filters = filters.into_iter().map(|filter| (filter, qos)).collect();
                let subscribe = v3::Packet::Subscribe {
                    packet_id,
                    topic_filters,
                };
                codec.encode(subscribe, out)
            }
            Self::V5(codec) => {
                let options = v5::SubscriptionOptions {
                    qos,
                    ..v5::SubscriptionOptions::default()
                };
                let subscribe = v5::Subscribe {
                    packet_id,
                    id: None,
                    user_properties: Vec::new(),
                    topic_filters: filters.into_iter().map(|each| (each, options)).collect(),
                };
                codec.encode(v5::Packet::Subscribe(subscribe), out)
            }
        }
        .map_err(io::Error::other)
    }

    pub fn publish(
        &mut self,
        out: &mut BytesMut,
        topic: String,
        payload: Bytes,
        packet_id: Option<NonZeroU16>,
        retain: bool,
    ) -> io::Result<()> {
        let properties = matches!(self, Self::V5(_)).then(v5::PublishProperties::default);
        let publish = Box::new(Publish {
            dup: false,
            retain,
            qos: packet_id.map_or(QoS::AtMostOnce, |_| QoS::AtLeastOnce),
            topic: topic.into(),
            packet_id,
            payload,
            properties,
        });
        match self {
            Self::V3(codec) => codec.encode(v3::Packet::Publish(publish), out),
            Self::V5(codec) => codec.encode(v5::Packet::Publish(publish), out),
        }
        .map_err(io::Error::other)
    }

    pub fn puback(&mut self, out: &mut BytesMut, packet_id: NonZeroU16) -> io::Result<()> {
        let v5_packet = || v5::PublishAck {
            packet_id,
            reason_code: v5::PublishAckReason::Success,
            properties: Vec::new(),
            reason_string: None,
        };
        self.encode(
            out,
            || v3::Packet::PublishAck { packet_id },
            || v5::Packet::PublishAck(v5_packet()),
        )
    }

    pub fn pingreq(&mut self, out: &mut BytesMut) -> io::Result<()> {
        self.encode(out, || v3::Packet::PingRequest, || v5::Packet::PingRequest)
    }

    pub fn disconnect(&mut self, out: &mut BytesMut) -> io::Result<()> {
        let v5_packet = || v5::Disconnect {
            reason_code: v5::DisconnectReasonCode::NormalDisconnection,
            session_expiry_interval_secs: None,
            server_reference: None,
            reason_string: None,
            user_properties: Vec::new(),
        };
        self.encode(
            out,
            || v3::Packet::Disconnect,
            || v5::Packet::Disconnect(v5_packet()),
        )
    }

    /// The next packet in `input`; None when more bytes are needed.
    pub fn decode(&mut self, input: &mut BytesMut) -> io::Result<Option<ServerPacket>> {
        let packet = match self {
            Self::V3(codec) => codec
                .decode(input)
                .map_err(io::Error::other)?
                .map(|(p, _)| from_v3(p)),
            Self::V5(codec) => codec
                .decode(input)
                .map_err(io::Error::other)?
                .map(|(p, _)| from_v5(p)),
        };
        Ok(packet)
    }
}

fn v3_connect(
    credentials: &DeviceCredentials,
    keep_alive_s: u16,
    will: &(String, &'static str),
) -> v3::Connect {
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

fn v5_connect(
    credentials: &DeviceCredentials,
    keep_alive_s: u16,
    will: &(String, &'static str),
) -> v5::Connect {
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

fn from_v3(packet: v3::Packet) -> ServerPacket {
    match packet {
        v3::Packet::ConnectAck(ack)
            if ack.return_code == v3::ConnectAckReason::ConnectionAccepted =>
        {
            ServerPacket::ConnectionAccepted
        }
        v3::Packet::ConnectAck(_) => ServerPacket::ConnectionRefused,
        v3::Packet::PublishAck { packet_id } => ServerPacket::PubAck(packet_id.get()),
        v3::Packet::Publish(publish) => ServerPacket::Publish((*publish).into()),
        _ => ServerPacket::Other,
    }
}

fn from_v5(packet: v5::Packet) -> ServerPacket {
    match packet {
        v5::Packet::ConnectAck(ack) if ack.reason_code == v5::ConnectAckReason::Success => {
            ServerPacket::ConnectionAccepted
        }
        v5::Packet::ConnectAck(_) => ServerPacket::ConnectionRefused,
        v5::Packet::PublishAck(ack) => ServerPacket::PubAck(ack.packet_id.get()),
        v5::Packet::Publish(publish) => ServerPacket::Publish((*publish).into()),
        v5::Packet::Disconnect(_) => ServerPacket::Disconnect,
        _ => ServerPacket::Other,
    }
}
