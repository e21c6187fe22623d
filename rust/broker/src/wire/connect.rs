//! The CONNECT of a connection. Any other first byte is refused at once.

use bytes::BytesMut;
use rmqtt_codec::version::{ProtocolVersion, VersionCodec};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use super::codec::{PacketCodec, VersionedCodec, fixed_header};
use super::decode::{connect_from_v3, connect_from_v5};
use super::packet::{Connect, ProtocolViolation};
use super::reason;

const CONNECT: u8 = 0x10;

/// A CONNECT that is no good, with the codec for a CONNACK where the client's version is known.
pub type ConnectError = (Option<PacketCodec>, ProtocolViolation);

fn not_mqtt() -> ConnectError {
    (None, ProtocolViolation(reason::PROTOCOL_ERROR))
}

/// Read the CONNECT from the first bytes of a connection; None while it is incomplete. `max_size` bounds it in bytes.
pub fn read_connect(
    input: &mut BytesMut,
    max_size: usize,
) -> Result<Option<(PacketCodec, Connect)>, ConnectError> {
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
    match VersionCodec.decode(input).map_err(|_| not_mqtt())? {
        None if complete => Err(not_mqtt()),
        Some(version) if complete => decode(version, input).map(Some),
        _ => Ok(None),
    }
}

fn decode(
    version: ProtocolVersion,
    input: &mut BytesMut,
) -> Result<(PacketCodec, Connect), ConnectError> {
    let (codec, decoded) = match version {
        ProtocolVersion::MQTT3 => {
            let mut codec = v3::Codec::default();
            let decoded = codec.decode(input).map(|packet| match packet {
                Some((v3::Packet::Connect(connect), _)) => Some(connect_from_v3(*connect)),
                _ => None,
            });
            (VersionedCodec::V3(codec), decoded)
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
                codec.set_max_outbound_size(size.get());
            }
            let decoded = decoded.map(|connect| connect.map(|connect| connect_from_v5(*connect)));
            (VersionedCodec::V5(codec), decoded)
        }
    };
    let codec = PacketCodec::new(codec);
    match decoded {
        Ok(Some(connect)) => Ok((codec, connect)),
        Ok(None) => Err(not_mqtt()),
        Err(error) => Err((Some(codec), error.into())),
    }
}
