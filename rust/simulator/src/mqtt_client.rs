//! An MQTT client on one connection. It buffers what it writes until `flush`.

use std::io;
use std::num::NonZeroU16;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use latchboard_broker::transport::TransportStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client_codec::{ClientCodec, ServerPacket};
use crate::config::{DeviceCredentials, MqttVersion};

pub(crate) struct MqttClient {
    stream: TransportStream,
    codec: ClientCodec,
    input: BytesMut,
    output: BytesMut,
    last_packet_id: u16,
}

impl MqttClient {
    pub fn new(stream: TransportStream, version: MqttVersion) -> Self {
        Self {
            stream,
            codec: ClientCodec::new(version),
            input: BytesMut::new(),
            output: BytesMut::new(),
            last_packet_id: 1,
        }
    }

    /// Open a clean session with a retained will, `(topic, payload)`. `PermissionDenied` when the broker refuses.
    pub async fn connect(
        &mut self,
        credentials: &DeviceCredentials,
        keep_alive_s: u16,
        will: (String, &'static str),
    ) -> io::Result<()> {
        self.codec
            .connect(&mut self.output, credentials, keep_alive_s, will)?;
        self.flush().await?;
        match self.read().await? {
            ServerPacket::ConnectionAccepted => Ok(()),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// All filters at QoS 1. Call it once: the packet id is 1.
    pub fn subscribe(&mut self, filters: Vec<ByteString>) -> io::Result<()> {
        self.codec.subscribe(&mut self.output, filters)
    }

    /// Returns the packet id; 0 at QoS 0.
    pub fn publish(
        &mut self,
        topic: String,
        payload: Bytes,
        qos: u8,
        retain: bool,
    ) -> io::Result<u16> {
        self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
        let packet_id = NonZeroU16::new(self.last_packet_id).filter(|_| qos > 0);
        self.codec
            .publish(&mut self.output, topic, payload, packet_id, retain)?;
        Ok(packet_id.map_or(0, NonZeroU16::get))
    }

    pub fn puback(&mut self, packet_id: NonZeroU16) -> io::Result<()> {
        self.codec.puback(&mut self.output, packet_id)
    }

    pub fn pingreq(&mut self) -> io::Result<()> {
        self.codec.pingreq(&mut self.output)
    }

    pub fn disconnect(&mut self) -> io::Result<()> {
        self.codec.disconnect(&mut self.output)
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
        self.codec.decode(&mut self.input)
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
