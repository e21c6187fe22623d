//! The first packet of a connection. Anything but a CONNECT is refused at its first byte.

use bytes::BytesMut;
use rmqtt_codec::version::{ProtocolVersion, VersionCodec};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use super::incoming::{from_v3, from_v5};
use super::{Connect, Version, Violation, Wire, fixed_header, reason};

/// What ends a connection before it has begun; said to the client where its version is known.
pub type Refusal = (Option<Wire>, Violation);
type Greeting = Result<Option<(Wire, Connect)>, Refusal>;

fn garbage() -> Refusal {
    (None, Violation(reason::PROTOCOL_ERROR))
}

/// A CONNECT out of the first bytes of a connection; None while it is incomplete.
pub fn connect(input: &mut BytesMut, limit: usize) -> Greeting {
    match input.first() {
        None => return Ok(None),
        Some(0x10) => {}
        Some(_) => return Err(garbage()),
    }
    let Some((head, body)) = fixed_header(input).map_err(|_| garbage())? else {
        return Ok(None);
    };
    if body > limit {
        return Err(garbage());
    }
    let whole = input.len() >= head + body;
    match VersionCodec.decode(input).map_err(|_| garbage())? {
        None if whole => Err(garbage()),
        Some(version) if whole => read(version, input).map(Some),
        _ => Ok(None),
    }
}

fn read(version: ProtocolVersion, input: &mut BytesMut) -> Result<(Wire, Connect), Refusal> {
    match version {
        ProtocolVersion::MQTT3 => {
            let mut codec = v3::Codec::default();
            match codec.decode(input) {
                Ok(Some((v3::Packet::Connect(connect), _))) => {
                    Ok((Wire::of(Version::V3(codec)), from_v3(*connect)))
                }
                Ok(_) => Err(garbage()),
                Err(error) => Err((Some(Wire::of(Version::V3(codec))), error.into())),
            }
        }
        ProtocolVersion::MQTT5 => {
            let mut codec = v5::Codec::default();
            match codec.decode(input) {
                Ok(Some((v5::Packet::Connect(connect), _))) => {
                    if let Some(size) = connect.max_packet_size {
                        codec.set_max_outbound_size(size.get());
                    }
                    Ok((Wire::of(Version::V5(codec)), from_v5(*connect)))
                }
                Ok(_) => Err(garbage()),
                Err(error) => Err((Some(Wire::of(Version::V5(codec))), error.into())),
            }
        }
    }
}
