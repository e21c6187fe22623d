//! MQTT 3.1.1 and 5 as one set of packets. The codec crate reads and writes bytes; here the two versions become one.
//!
//! Frames are cut here, before the codec sees them: only so can a payload above the limit be read past without being held.

mod greeting;
mod incoming;
mod outgoing;
pub mod reason;

use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;
use rmqtt_codec::error::DecodeError;
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use self::incoming::{packet_v3, packet_v5};

pub use self::greeting::connect;

pub struct Will {
    pub topic: ByteString,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
}

pub struct Connect {
    pub level: u8,
    pub clean: bool,
    pub keep_alive_s: u16,
    pub client_id: ByteString,
    pub username: Option<ByteString>,
    pub password: Option<Bytes>,
    pub will: Option<Will>,
    /// How long the session is wanted to outlive the connection; `u32::MAX` is for ever.
    pub expiry_s: u32,
    pub receive_max: u16,
    pub enhanced_auth: bool,
}

pub struct Publish {
    pub topic: ByteString,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    /// 0 at QoS 0.
    pub packet_id: u16,
    /// Seconds; written to MQTT 5 clients.
    pub expiry_s: Option<u32>,
}

pub struct Filter {
    pub pattern: ByteString,
    pub qos: u8,
    pub retain_as_published: bool,
    /// 0 send retained messages, 1 only if the subscription is new, 2 do not.
    pub retain_handling: u8,
}

pub enum Packet {
    Publish(Publish),
    /// A PUBLISH that is larger than allowed, without topic and payload; its bytes are being read past.
    Oversize(Publish),
    PubAck(u16),
    PubRel(u16),
    Subscribe {
        packet_id: u16,
        filters: Vec<Filter>,
        with_id: bool,
    },
    Unsubscribe {
        packet_id: u16,
        patterns: Vec<ByteString>,
    },
    Ping,
    Disconnect {
        reason: u8,
        expiry_s: Option<u32>,
    },
    Ignored,
}

/// What the server grants in a CONNACK beside its reason.
pub struct Granted {
    pub session_present: bool,
    pub expiry_s: Option<u32>,
    pub receive_max: u16,
    pub max_packet: u32,
    pub assigned_client_id: Option<ByteString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation(pub u8);

impl From<DecodeError> for Violation {
    fn from(error: DecodeError) -> Self {
        Self(match error {
            DecodeError::InvalidClientId => reason::CLIENT_ID,
            DecodeError::MaxSizeExceeded { .. } => reason::TOO_LARGE,
            DecodeError::InvalidLength | DecodeError::MalformedPacket | DecodeError::Utf8Error => {
                reason::MALFORMED
            }
            _ => reason::PROTOCOL_ERROR,
        })
    }
}

pub enum Version {
    V3(v3::Codec),
    V5(v5::Codec),
}

pub struct Wire {
    version: Version,
    max_frame: usize,
    skip: usize,
}

enum Frame {
    Incomplete,
    Whole,
    Skipped { qos: u8, packet_id: u16 },
}

/// The two halves of a fixed header: (its length, remaining length).
fn fixed_header(input: &[u8]) -> Result<Option<(usize, usize)>, Violation> {
    let mut length = 0usize;
    for (index, byte) in input.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((index + 2, length)));
        }
    }
    if input.len() > 4 {
        Err(Violation(reason::MALFORMED))
    } else {
        Ok(None)
    }
}

impl Wire {
    fn of(version: Version) -> Self {
        Self {
            version,
            max_frame: 0,
            skip: 0,
        }
    }

    pub fn is_v5(&self) -> bool {
        matches!(self.version, Version::V5(_))
    }

    pub fn limit(&mut self, max_frame: usize) {
        self.max_frame = max_frame;
    }

    /// The next packet in `input`, or None when more bytes are needed.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Packet>, Violation> {
        if self.skip > 0 {
            let count = self.skip.min(input.len());
            input.advance(count);
            self.skip -= count;
            if self.skip > 0 {
                return Ok(None);
            }
        }
        match self.frame(input)? {
            Frame::Incomplete => Ok(None),
            Frame::Skipped { qos, packet_id } => Ok(Some(Packet::Oversize(Publish {
                topic: ByteString::new(),
                payload: Bytes::new(),
                qos,
                retain: false,
                dup: false,
                packet_id,
                expiry_s: None,
            }))),
            Frame::Whole => self.decode(input),
        }
    }

    fn frame(&mut self, input: &mut BytesMut) -> Result<Frame, Violation> {
        let Some((head, body)) = fixed_header(input)? else {
            return Ok(Frame::Incomplete);
        };
        if body <= self.max_frame {
            return Ok(if input.len() < head + body {
                Frame::Incomplete
            } else {
                Frame::Whole
            });
        }
        if input[0] >> 4 != 3 {
            return Err(Violation(reason::TOO_LARGE));
        }
        // Only the topic's length and the packet id are needed of it: 64 KiB at most.
        let Some(topic) = input
            .get(head..head + 2)
            .map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])))
        else {
            return Ok(Frame::Incomplete);
        };
        let qos = (input[0] >> 1) & 3;
        let needed = head + 2 + topic + if qos == 0 { 0 } else { 2 };
        if qos == 3 || needed > head + body {
            return Err(Violation(reason::MALFORMED));
        }
        if input.len() < needed {
            return Ok(Frame::Incomplete);
        }
        let packet_id = if qos == 0 {
            0
        } else {
            u16::from_be_bytes([input[needed - 2], input[needed - 1]])
        };
        let count = input.len().min(head + body);
        self.skip = head + body - count;
        input.advance(count);
        Ok(Frame::Skipped { qos, packet_id })
    }

    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Packet>, Violation> {
        match &mut self.version {
            Version::V3(codec) => Ok(codec
                .decode(input)?
                .map(|(packet, _)| packet_v3(packet))
                .transpose()?),
            Version::V5(codec) => Ok(codec
                .decode(input)?
                .map(|(packet, _)| packet_v5(packet))
                .transpose()?),
        }
    }
}

#[cfg(test)]
mod tests;
