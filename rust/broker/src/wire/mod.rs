//! MQTT 3.1.1 and 5 as one set of packets. The codec crate reads and writes bytes; here the two versions become one.
//!
//! Frames are cut here, before the codec sees them: only so can a payload above the limit be read past without being held.

mod incoming;
mod outgoing;
pub mod reason;

use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;
use rmqtt_codec::error::DecodeError;
use rmqtt_codec::version::{ProtocolVersion, VersionCodec};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use self::incoming::{from_v3, from_v5, packet_v3, packet_v5};

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
    /// A PUBLISH that is larger than allowed; its bytes are being read past.
    Oversize {
        qos: u8,
        packet_id: u16,
    },
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

/// Incomplete, a CONNECT, or a refusal (which can be said where the version is known).
type Greeting = Result<Option<(Wire, Connect)>, (Option<Wire>, Violation)>;

/// A CONNECT out of the first bytes of a connection; None while it is incomplete. Anything else is refused at its first byte.
pub fn connect(input: &mut BytesMut, limit: usize) -> Greeting {
    let garbage = |_| (None, Violation(reason::PROTOCOL_ERROR));
    if input.is_empty() {
        return Ok(None);
    }
    if input[0] != 0x10 {
        return Err(garbage(()));
    }
    let Some((head, body)) = fixed_header(input).map_err(|_| garbage(()))? else {
        return Ok(None);
    };
    if body > limit {
        return Err(garbage(()));
    }
    let Some(version) = VersionCodec.decode(input).map_err(|_| garbage(()))? else {
        return if input.len() >= head + body {
            Err(garbage(()))
        } else {
            Ok(None)
        };
    };
    if input.len() < head + body {
        return Ok(None);
    }
    let wire = |version| Wire {
        version,
        max_frame: 0,
        skip: 0,
    };
    match version {
        ProtocolVersion::MQTT3 => {
            let mut codec = v3::Codec::default();
            match codec.decode(input) {
                Ok(Some((v3::Packet::Connect(connect), _))) => {
                    Ok(Some((wire(Version::V3(codec)), from_v3(*connect))))
                }
                Ok(_) => Err(garbage(())),
                Err(error) => Err((Some(wire(Version::V3(codec))), error.into())),
            }
        }
        ProtocolVersion::MQTT5 => {
            let mut codec = v5::Codec::default();
            match codec.decode(input) {
                Ok(Some((v5::Packet::Connect(connect), _))) => {
                    if let Some(size) = connect.max_packet_size {
                        codec.set_max_outbound_size(size.get());
                    }
                    Ok(Some((wire(Version::V5(codec)), from_v5(*connect))))
                }
                Ok(_) => Err(garbage(())),
                Err(error) => Err((Some(wire(Version::V5(codec))), error.into())),
            }
        }
    }
}

impl Wire {
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
            Frame::Skipped { qos, packet_id } => Ok(Some(Packet::Oversize { qos, packet_id })),
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
mod tests {
    use super::*;

    const V3: &[u8] = b"\x10\x1c\x00\x04MQTT\x04\xc2\x00\x3c\x00\x03abc\x00\x04user\x00\x05passw";
    const V5: &[u8] =
        b"\x10\x1d\x00\x04MQTT\x05\xc2\x00\x3c\x00\x00\x03abc\x00\x04user\x00\x05passw";

    fn greeted(bytes: &[u8]) -> Wire {
        let (mut wire, connect) = connect(&mut BytesMut::from(bytes), 1024)
            .ok()
            .flatten()
            .expect("a CONNECT");
        assert_eq!(
            (connect.client_id.as_ref(), connect.password.as_deref()),
            ("abc", Some(&b"passw"[..]))
        );
        wire.limit(64);
        wire
    }

    /// Deterministic noise: no dependency, the same failure every time.
    fn noise(seed: &mut u64) -> u8 {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 56) as u8
    }

    #[test]
    fn a_connect_is_found_however_it_is_cut() {
        for whole in [V3, V5] {
            for cut in 0..whole.len() {
                let mut input = BytesMut::from(&whole[..cut]);
                assert!(matches!(connect(&mut input, 1024), Ok(None)), "{cut}");
                input.extend_from_slice(&whole[cut..]);
                assert!(matches!(connect(&mut input, 1024), Ok(Some(_))), "{cut}");
                assert!(input.is_empty());
            }
        }
    }

    #[test]
    fn what_is_too_large_is_read_past_and_the_next_packet_found_however_it_is_cut() {
        let mut stream = vec![0x32, 0xac, 0x02, 0x00, 0x01, b't', 0x00, 0x07];
        stream.resize(3 + 300, b'x');
        stream.extend([0xc0, 0x00]);
        for cut in 0..stream.len() {
            let (mut wire, mut seen) = (greeted(V3), Vec::new());
            let mut input = BytesMut::new();
            for part in [&stream[..cut], &stream[cut..]] {
                input.extend_from_slice(part);
                while let Some(packet) = wire.next(&mut input).expect("valid") {
                    seen.push(match packet {
                        Packet::Oversize {
                            qos: 1,
                            packet_id: 7,
                        } => 'o',
                        Packet::Ping => 'p',
                        _ => '?',
                    });
                }
            }
            assert_eq!(seen, ['o', 'p'], "{cut}");
        }
    }

    #[test]
    fn noise_is_refused_and_never_a_panic() {
        let mut seed = 7;
        for round in 0..200_000u32 {
            let mut bytes = BytesMut::from(if round % 2 == 0 { V3 } else { V5 });
            for _ in 0..3 {
                let at = usize::from(noise(&mut seed)) % bytes.len();
                bytes[at] = noise(&mut seed);
            }
            let _ = connect(&mut bytes, 1024);
            let mut wire = greeted(if round % 2 == 0 { V3 } else { V5 });
            let length = usize::from(noise(&mut seed)) % 60;
            let mut packet: Vec<u8> = (0..length).map(|_| noise(&mut seed)).collect();
            if packet.len() > 2 {
                // A true length, so that the body is looked at.
                packet[1] = packet.len() as u8 - 2;
            }
            let mut input = BytesMut::from(&packet[..]);
            while let Ok(Some(_)) = wire.next(&mut input) {}
        }
    }
}
