//! An MQTT client on one connection, in either version. It buffers what it writes until `flush`.

use std::io;
use std::num::NonZeroU16;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use latchboard_broker::transport::TransportStream;
use rmqtt_codec::types::{Publish, QoS};
use rmqtt_codec::{v3, v5};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::codec::{Decoder, Encoder};

use crate::config::{DeviceCredentials, MqttVersion};
use crate::mqtt_packets::{ServerPacket, v3_connect, v5_connect};

enum MqttClientCodec {
    V3(v3::Codec),
    V5(v5::Codec),
}

pub(crate) struct MqttClient {
    stream: TransportStream,
    codec: MqttClientCodec,
    input: BytesMut,
    output: BytesMut,
    last_packet_id: u16,
}

impl MqttClient {
    pub fn new(stream: TransportStream, version: MqttVersion) -> Self {
        Self {
            stream,
            codec: match version {
                MqttVersion::V311 => MqttClientCodec::V3(v3::Codec::default()),
                MqttVersion::V5 => MqttClientCodec::V5(v5::Codec::default()),
            },
            input: BytesMut::new(),
            output: BytesMut::new(),
            last_packet_id: 1,
        }
    }

    fn encode(&mut self, v3: impl FnOnce() -> v3::Packet, v5: impl FnOnce() -> v5::Packet) -> io::Result<()> {
        match &mut self.codec {
            MqttClientCodec::V3(codec) => codec.encode(v3(), &mut self.output),
            MqttClientCodec::V5(codec) => codec.encode(v5(), &mut self.output),
        }
        .map_err(io::Error::other)
    }

    /// Open a clean session with a retained will at QoS 1, `(topic, payload)`. `PermissionDenied` when the broker refuses.
    pub async fn connect(
        &mut self,
        credentials: &DeviceCredentials,
        keep_alive_s: u16,
        will: (String, &'static str),
    ) -> io::Result<()> {
        self.encode(
            || v3_connect(credentials, keep_alive_s, &will).into(),
            || v5::Packet::Connect(Box::new(v5_connect(credentials, keep_alive_s, &will))),
        )?;
        self.flush().await?;
        match self.read().await? {
            ServerPacket::ConnectionAccepted => Ok(()),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// All filters at QoS 1. Call it once: the packet id is 1.
    pub fn subscribe(&mut self, filters: &[ByteString]) -> io::Result<()> {
        let (packet_id, qos) = (NonZeroU16::MIN, QoS::AtLeastOnce);
        let options = v5::SubscriptionOptions {
            qos,
            ..v5::SubscriptionOptions::default()
        };
        let filters = filters.iter().cloned();
        self.encode(
            || v3::Packet::Subscribe {
                packet_id,
                topic_filters: filters.clone().map(|filter| (filter, qos)).collect(),
            },
            || {
                v5::Packet::Subscribe(v5::Subscribe {
                    packet_id,
                    id: None,
                    user_properties: Vec::new(),
                    topic_filters: filters.clone().map(|filter| (filter, options)).collect(),
                })
            },
        )
    }

    /// Returns the packet id; 0 at QoS 0.
    pub fn publish(&mut self, topic: String, payload: Bytes, qos: u8, retain: bool) -> io::Result<u16> {
        self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
        let packet_id = NonZeroU16::new(self.last_packet_id).filter(|_| qos > 0);
        let packet = |properties| {
            Box::new(Publish {
                dup: false,
                retain,
                qos: packet_id.map_or(QoS::AtMostOnce, |_| QoS::AtLeastOnce),
                topic: topic.into(),
                packet_id,
                payload,
                properties,
            })
        };
        match &mut self.codec {
            MqttClientCodec::V3(codec) => codec.encode(v3::Packet::Publish(packet(None)), &mut self.output),
            MqttClientCodec::V5(codec) => {
                let publish = packet(Some(v5::PublishProperties::default()));
                codec.encode(v5::Packet::Publish(publish), &mut self.output)
            }
        }
        .map_err(io::Error::other)?;
        Ok(packet_id.map_or(0, NonZeroU16::get))
    }

    pub fn puback(&mut self, packet_id: NonZeroU16) -> io::Result<()> {
        let v5_packet = || v5::PublishAck {
            packet_id,
            ..v5::PublishAck::default()
        };
        self.encode(
            || v3::Packet::PublishAck { packet_id },
            || v5::Packet::PublishAck(v5_packet()),
        )
    }

    pub fn pingreq(&mut self) -> io::Result<()> {
        self.encode(|| v3::Packet::PingRequest, || v5::Packet::PingRequest)
    }

    pub fn disconnect(&mut self) -> io::Result<()> {
        self.encode(
            || v3::Packet::Disconnect,
            || v5::Packet::Disconnect(v5::Disconnect::default()),
        )
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.stream.write_all_buf(&mut self.output).await?;
        self.stream.flush().await
    }

    /// The next packet that was already read from the socket.
    pub fn next_buffered(&mut self) -> io::Result<Option<ServerPacket>> {
        let packet = match &mut self.codec {
            MqttClientCodec::V3(codec) => codec
                .decode(&mut self.input)
                .map(|packet| packet.map(|(packet, _)| packet.into())),
            MqttClientCodec::V5(codec) => codec
                .decode(&mut self.input)
                .map(|packet| packet.map(|(packet, _)| packet.into())),
        };
        packet.map_err(io::Error::other)
    }

    pub async fn read(&mut self) -> io::Result<ServerPacket> {
        loop {
            if let Some(packet) = self.next_buffered()? {
                return Ok(packet);
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
