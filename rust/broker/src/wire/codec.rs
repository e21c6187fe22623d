//! Frames, and from each frame a packet.
//!
//! The broker cuts the frames itself, before the codec crate sees them: only so can it skip an oversize payload without buffering it.

use bytes::{Buf, BytesMut};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use super::packet_types::{Packet, ProtocolViolation, Publish};
use super::packets_from_rmqtt::{packet_from_v3, packet_from_v5};
use super::reason;

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
pub(super) fn fixed_header(input: &[u8]) -> Result<Option<(usize, usize)>, ProtocolViolation> {
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
    pub(super) fn new(codec: MqttVersionCodec) -> Self {
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
