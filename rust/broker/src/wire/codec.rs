//! Frames, and from each frame a packet; and the CONNECT, which comes first: any other first byte is refused at once.
//!
//! The broker cuts the frames itself, before the codec crate sees them: only so can it skip an oversize payload without buffering it.

use bytes::{Buf, BytesMut};
use rmqtt_codec::error::DecodeError;
use rmqtt_codec::version::{ProtocolVersion, VersionCodec};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use super::packets::{
    Connect, Packet, ProtocolViolation, Publish, connect_from_v3, connect_from_v5, packet_from_v3, packet_from_v5, reason,
};

pub enum MqttVersionCodec {
    V3(v3::Codec),
    V5(v5::Codec),
}

/// Reads and writes the packets of one connection.
pub struct PacketCodec {
    pub(super) codec: MqttVersionCodec,
    max_packet_size: usize,
    /// Bytes of an oversize packet that have not arrived yet.
    bytes_to_skip: usize,
}

enum FrameStatus {
    Incomplete,
    Complete,
    Oversize { qos: u8, packet_id: u16 },
}

const PUBLISH: u8 = 3;

/// `(length of the fixed header, remaining length)`, or None while the header is incomplete (MQTT 5.0, 2.1).
fn fixed_header(input: &[u8]) -> Result<Option<(usize, usize)>, ProtocolViolation> {
    let mut remaining = 0usize;
    for (index, byte) in input.iter().skip(1).take(4).enumerate() {
        remaining |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((index + 2, remaining)));
        }
    }
    if input.len() > 4 {
        Err(ProtocolViolation(reason::MALFORMED_PACKET))
    } else {
        Ok(None)
    }
}

impl PacketCodec {
    fn new(codec: MqttVersionCodec) -> Self {
        Self {
            codec,
            max_packet_size: 0,
            bytes_to_skip: 0,
        }
    }

    pub fn is_v5(&self) -> bool {
        matches!(self.codec, MqttVersionCodec::V5(_))
    }

    pub(super) fn set_max_packet_size(&mut self, bytes: usize) {
        self.max_packet_size = bytes;
    }

    /// The next packet in `input`, or None when more bytes are needed.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Packet>, ProtocolViolation> {
        if self.bytes_to_skip > 0 {
            let count = self.bytes_to_skip.min(input.len());
            input.advance(count);
            self.bytes_to_skip -= count;
            if self.bytes_to_skip > 0 {
                return Ok(None);
            }
        }
        match self.frame(input)? {
            FrameStatus::Incomplete => Ok(None),
            FrameStatus::Oversize { qos, packet_id } => Ok(Some(Packet::OversizePublish(Publish {
                qos,
                packet_id,
                ..Publish::default()
            }))),
            FrameStatus::Complete => self.decode(input),
        }
    }

    fn frame(&mut self, input: &mut BytesMut) -> Result<FrameStatus, ProtocolViolation> {
        let Some((header, remaining)) = fixed_header(input)? else {
            return Ok(FrameStatus::Incomplete);
        };
        if remaining <= self.max_packet_size {
            return Ok(if input.len() < header + remaining {
                FrameStatus::Incomplete
            } else {
                FrameStatus::Complete
            });
        }
        if input[0] >> 4 != PUBLISH {
            return Err(ProtocolViolation(reason::PACKET_TOO_LARGE));
        }
        // Only the topic's length and the packet id are needed, so at most 64 KiB are buffered.
        let Some(topic) = input
            .get(header..header + 2)
            .map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])))
        else {
            return Ok(FrameStatus::Incomplete);
        };
        let qos = (input[0] >> 1) & 3;
        let needed = header + 2 + topic + if qos == 0 { 0 } else { 2 };
        if qos == 2 {
            return Err(ProtocolViolation(reason::QOS_NOT_SUPPORTED));
        }
        if qos == 3 || needed > header + remaining {
            return Err(ProtocolViolation(reason::MALFORMED_PACKET));
        }
        if input.len() < needed {
            return Ok(FrameStatus::Incomplete);
        }
        let packet_id = if qos == 0 {
            0
        } else {
            u16::from_be_bytes([input[needed - 2], input[needed - 1]])
        };
        let count = input.len().min(header + remaining);
        self.bytes_to_skip = header + remaining - count;
        input.advance(count);
        Ok(FrameStatus::Oversize { qos, packet_id })
    }

    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Packet>, ProtocolViolation> {
        match &mut self.codec {
            MqttVersionCodec::V3(codec) => codec.decode(input)?.map(|(packet, _)| packet_from_v3(packet)).transpose(),
            MqttVersionCodec::V5(codec) => codec.decode(input)?.map(|(packet, _)| packet_from_v5(packet)).transpose(),
        }
    }
}

const CONNECT: u8 = 0x10;

/// A CONNECT that is no good, with the codec for a CONNACK where the client's version is known.
pub type MalformedConnect = (Option<PacketCodec>, ProtocolViolation);

fn not_mqtt() -> MalformedConnect {
    (None, ProtocolViolation(reason::PROTOCOL_ERROR))
}

/// The bytes after the fixed header of the largest packet of `size` bytes (MQTT 5.0, 2.1.4).
fn max_content(size: u32) -> u32 {
    match size {
        0..=129 => size.saturating_sub(2),
        130..=16_386 => (size - 3).max(127),
        16_387..=2_097_155 => (size - 4).max(16_383),
        _ => size - 5,
    }
}

/// A CONNECT with an unknown protocol level is answered in the form of MQTT 3.1.1, which every client reads (MQTT-3.1.2-2).
fn version_error(body: &[u8]) -> MalformedConnect {
    if body.starts_with(b"\x00\x04MQTT") {
        let codec = PacketCodec::new(MqttVersionCodec::V3(v3::Codec::default()));
        let violation = ProtocolViolation(reason::UNSUPPORTED_PROTOCOL_VERSION);
        return (Some(codec), violation);
    }
    not_mqtt()
}

/// Read the CONNECT from the first bytes of a connection; None while it is incomplete. `max_size` bounds it in bytes.
pub fn read_connect(input: &mut BytesMut, max_size: usize) -> Result<Option<(PacketCodec, Connect)>, MalformedConnect> {
    match input.first() {
        None => return Ok(None),
        Some(&CONNECT) => {}
        Some(_) => return Err(not_mqtt()),
    }
    let Some((header, remaining)) = fixed_header(input).map_err(|_| not_mqtt())? else {
        return Ok(None);
    };
    if remaining > max_size {
        return Err(not_mqtt());
    }
    let complete = input.len() >= header + remaining;
    match VersionCodec.decode(input).map_err(|_| version_error(&input[header..]))? {
        None if complete => Err(not_mqtt()),
        Some(ProtocolVersion::MQTT3) if complete => {
            let lacks_client_id = allow_empty_client_id(&mut input[header..]);
            let (codec, connect) = decode(ProtocolVersion::MQTT3, input)?;
            Ok(Some((
                codec,
                Connect {
                    lacks_client_id,
                    ..connect
                },
            )))
        }
        Some(version) if complete => decode(version, input).map(Some),
        _ => Ok(None),
    }
}

/// The codec refuses an empty client id without clean session before it reads whose it is; so it gets the flag set. True if it was not.
fn allow_empty_client_id(body: &mut [u8]) -> bool {
    const CLEAN_SESSION: u8 = 2;
    let read_u16 = |at: usize| body.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    // After the protocol name: level, flags, keep alive (2 bytes), client id.
    let Some(flags_at) = read_u16(0).map(|name| 2 + name + 1) else {
        return false;
    };
    if read_u16(flags_at + 3) != Some(0) || body[flags_at] & CLEAN_SESSION != 0 {
        return false;
    }
    body[flags_at] |= CLEAN_SESSION;
    true
}

fn decode(version: ProtocolVersion, input: &mut BytesMut) -> Result<(PacketCodec, Connect), MalformedConnect> {
    let (codec, decoded) = match version {
        ProtocolVersion::MQTT3 => {
            let mut codec = v3::Codec::default();
            let decoded = codec.decode(input).map(|packet| match packet {
                Some((v3::Packet::Connect(connect), _)) => Some(connect_from_v3(*connect)),
                _ => None,
            });
            (MqttVersionCodec::V3(codec), decoded)
        }
        ProtocolVersion::MQTT5 => {
            let mut codec = v5::Codec::default();
            let decoded = codec.decode(input).map(|packet| match packet {
                Some((v5::Packet::Connect(connect), _)) => Some(connect),
                _ => None,
            });
            if let Ok(Some(connect)) = &decoded
                && let Some(size) = connect.max_packet_size
            {
                // The codec subtracts the longest fixed header, 5 bytes.
                codec.set_max_outbound_size(max_content(size.get()).max(1) + 5);
            }
            let decoded = decoded.map(|connect| connect.map(|connect| connect_from_v5(*connect)));
            (MqttVersionCodec::V5(codec), decoded)
        }
    };
    checked(PacketCodec::new(codec), decoded)
}

/// Only a client id is refused with a CONNACK in MQTT 3.1.1 (MQTT-3.1.4-1); a reserved flag in no version (MQTT-3.1.2-3).
fn checked(
    codec: PacketCodec,
    decoded: Result<Option<Connect>, DecodeError>,
) -> Result<(PacketCodec, Connect), MalformedConnect> {
    match decoded {
        Ok(Some(connect)) if codec.is_v5() || connect.username.is_some() || connect.password.is_none() => Ok((codec, connect)),
        Ok(_) => Err(not_mqtt()),
        Err(error) => {
            let reserved = matches!(error, DecodeError::ConnectReservedFlagSet);
            let violation = ProtocolViolation::from(error);
            let answered = codec.is_v5() || violation.0 == reason::CLIENT_IDENTIFIER_NOT_VALID;
            Err(((answered && !reserved).then_some(codec), violation))
        }
    }
}
