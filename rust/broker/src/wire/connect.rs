//! The CONNECT of a connection. Any other first byte is refused at once.

use bytes::BytesMut;
use rmqtt_codec::error::DecodeError;
use rmqtt_codec::version::{ProtocolVersion, VersionCodec};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use super::codec::{MqttVersionCodec, PacketCodec, fixed_header};
use super::packet_types::{Connect, ProtocolViolation};
use super::packets_from_rmqtt::{connect_from_v3, connect_from_v5};
use super::reason;

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
        Some(version) if complete => decode(version, input).map(Some),
        _ => Ok(None),
    }
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
