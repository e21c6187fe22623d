//! MQTT as a simulated device speaks it, in either version, over TCP, TLS, and WebSocket over either. `BrokerConnector` opens a connection;
//! `MqttClient` reads and writes packets on it, and buffers what it writes until `flush`.

use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use latchboard_broker::transport::{MaybeTlsStream, TransportStream, WebSocketByteStream, websocket_config};
use rmqtt_codec::types::{Publish, QoS};
use rmqtt_codec::{v3, v5};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_util::codec::{Decoder, Encoder};

use crate::config::{DeviceCredentials, MqttVersion, SimulatorConnectionConfig};

/// Bytes of the largest WebSocket message accepted from a broker.
const MAX_WEBSOCKET_MESSAGE: usize = 256 * 1024;

/// Opens connections to the broker.
pub(crate) struct BrokerConnector {
    config: SimulatorConnectionConfig,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl BrokerConnector {
    /// Fails when a trusted certificate is invalid.
    pub fn new(config: SimulatorConnectionConfig) -> io::Result<Self> {
        let tls = match &config.trusted_certificates {
            None => None,
            Some(pem) => {
                let name = ServerName::try_from(config.host.clone()).map_err(io::Error::other)?;
                Some((TlsConnector::from(Arc::new(tls_config(pem)?)), name))
            }
        };
        Ok(Self { config, tls })
    }

    pub async fn connect(&self) -> io::Result<TransportStream> {
        let socket = TcpStream::connect((self.config.host.as_str(), self.config.port)).await?;
        socket.set_nodelay(true)?;
        let stream = match &self.tls {
            None => MaybeTlsStream::Tcp(socket),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), socket).await?;
                MaybeTlsStream::Tls(Box::new(stream.into()))
            }
        };
        if !self.config.websocket {
            return Ok(TransportStream::Direct(stream));
        }
        // `/mqtt` is the path that most brokers use.
        let uri = format!("ws://{}:{}/mqtt", self.config.host, self.config.port);
        let uri = uri.parse().map_err(io::Error::other)?;
        let request = ClientRequestBuilder::new(uri).with_sub_protocol("mqtt");
        let config = Some(websocket_config(MAX_WEBSOCKET_MESSAGE));
        let (stream, _) = tokio_tungstenite::client_async_with_config(request, stream, config)
            .await
            .map_err(io::Error::other)?;
        Ok(TransportStream::WebSocket(Box::new(WebSocketByteStream::new(stream))))
    }
}

fn tls_config(pem: &[u8]) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

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
