//! MQTT 3.1.1 and 5 as one set of packets. The codec crate reads and writes bytes; here the two versions become one.
//!
//! Frames are cut here, before the codec sees them: only so can a payload above the limit be read past without being held.

use std::num::{NonZeroU16, NonZeroU32};

use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;
use rmqtt_codec::error::{DecodeError, EncodeError};
use rmqtt_codec::types::{Publish as WirePublish, QoS};
use rmqtt_codec::version::{ProtocolVersion, VersionCodec};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::{Decoder, Encoder};

/// Reason codes of MQTT 5.0, section 2.4, as far as we say them.
pub mod reason {
    pub const SUCCESS: u8 = 0x00;
    pub const WITH_WILL: u8 = 0x04;
    pub const MALFORMED: u8 = 0x81;
    pub const PROTOCOL_ERROR: u8 = 0x82;
    pub const CLIENT_ID: u8 = 0x85;
    pub const CREDENTIALS: u8 = 0x86;
    pub const NOT_AUTHORIZED: u8 = 0x87;
    pub const BUSY: u8 = 0x89;
    pub const SHUTTING_DOWN: u8 = 0x8b;
    pub const AUTH_METHOD: u8 = 0x8c;
    pub const KEEP_ALIVE: u8 = 0x8d;
    pub const TAKEN_OVER: u8 = 0x8e;
    pub const PACKET_ID_UNKNOWN: u8 = 0x92;
    pub const TOO_LARGE: u8 = 0x95;
    pub const QUOTA: u8 = 0x97;
    pub const ADMINISTRATIVE: u8 = 0x98;
    pub const SHARED: u8 = 0x9e;
    pub const SUBSCRIPTION_IDS: u8 = 0xa1;
}

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
    Oversize { qos: u8, packet_id: u16 },
    PubAck(u16),
    PubRel(u16),
    Subscribe { packet_id: u16, filters: Vec<Filter>, with_id: bool },
    Unsubscribe { packet_id: u16, patterns: Vec<ByteString> },
    Ping,
    Disconnect { reason: u8, expiry_s: Option<u32> },
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
            DecodeError::InvalidLength | DecodeError::MalformedPacket | DecodeError::Utf8Error => reason::MALFORMED,
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
    if input.len() > 4 { Err(Violation(reason::MALFORMED)) } else { Ok(None) }
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
    let Some((head, body)) = fixed_header(input).map_err(|_| garbage(()))? else { return Ok(None) };
    if body > limit {
        return Err(garbage(()));
    }
    let Some(version) = VersionCodec.decode(input).map_err(|_| garbage(()))? else {
        return if input.len() >= head + body { Err(garbage(())) } else { Ok(None) };
    };
    if input.len() < head + body {
        return Ok(None);
    }
    let wire = |version| Wire { version, max_frame: 0, skip: 0 };
    match version {
        ProtocolVersion::MQTT3 => {
            let mut codec = v3::Codec::default();
            match codec.decode(input) {
                Ok(Some((v3::Packet::Connect(connect), _))) => Ok(Some((wire(Version::V3(codec)), from_v3(*connect)))),
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

fn from_v3(connect: v3::Connect) -> Connect {
    Connect {
        level: connect.protocol.level(),
        clean: connect.clean_session,
        keep_alive_s: connect.keep_alive,
        client_id: connect.client_id,
        username: connect.username,
        password: connect.password,
        will: connect.last_will.map(|will| Will {
            topic: will.topic,
            payload: will.message,
            qos: will.qos.value(),
            retain: will.retain,
        }),
        expiry_s: if connect.clean_session { 0 } else { u32::MAX },
        receive_max: u16::MAX,
        enhanced_auth: false,
    }
}

fn from_v5(connect: v5::Connect) -> Connect {
    Connect {
        level: 5,
        clean: connect.clean_start,
        keep_alive_s: connect.keep_alive,
        client_id: connect.client_id,
        username: connect.username,
        password: connect.password,
        will: connect.last_will.map(|will| Will {
            topic: will.topic,
            payload: will.message,
            qos: will.qos.value(),
            retain: will.retain,
        }),
        expiry_s: connect.session_expiry_interval_secs,
        receive_max: connect.receive_max.map_or(u16::MAX, NonZeroU16::get),
        enhanced_auth: connect.auth_method.is_some(),
    }
}

fn qos(level: u8) -> QoS {
    if level == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce }
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
        let Some((head, body)) = fixed_header(input)? else { return Ok(Frame::Incomplete) };
        if body <= self.max_frame {
            return Ok(if input.len() < head + body { Frame::Incomplete } else { Frame::Whole });
        }
        if input[0] >> 4 != 3 {
            return Err(Violation(reason::TOO_LARGE));
        }
        // Only the topic's length and the packet id are needed of it: 64 KiB at most.
        let Some(topic) = input.get(head..head + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]]))) else {
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
        let packet_id = if qos == 0 { 0 } else { u16::from_be_bytes([input[needed - 2], input[needed - 1]]) };
        let count = input.len().min(head + body);
        self.skip = head + body - count;
        input.advance(count);
        Ok(Frame::Skipped { qos, packet_id })
    }

    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Packet>, Violation> {
        match &mut self.version {
            Version::V3(codec) => Ok(codec.decode(input)?.map(|(packet, _)| packet_v3(packet)).transpose()?),
            Version::V5(codec) => Ok(codec.decode(input)?.map(|(packet, _)| packet_v5(packet)).transpose()?),
        }
    }

    fn put(&mut self, out: &mut BytesMut, v3: impl FnOnce() -> v3::Packet, v5: impl FnOnce() -> v5::Packet) -> Result<(), EncodeError> {
        match &mut self.version {
            Version::V3(codec) => codec.encode(v3(), out),
            Version::V5(codec) => codec.encode(v5(), out),
        }
    }

    pub fn connack(&mut self, out: &mut BytesMut, code: u8, granted: Granted) {
        use v3::ConnectAckReason as Old;
        let present = granted.session_present;
        let _ = self.put(
            out,
            || {
                let return_code = match code {
                    reason::SUCCESS => Old::ConnectionAccepted,
                    reason::CLIENT_ID => Old::IdentifierRejected,
                    reason::CREDENTIALS => Old::BadUserNameOrPassword,
                    reason::NOT_AUTHORIZED => Old::NotAuthorized,
                    _ => Old::ServiceUnavailable,
                };
                v3::Packet::ConnectAck(v3::ConnectAck { return_code, session_present: present })
            },
            || {
                v5::Packet::ConnectAck(Box::new(v5::ConnectAck {
                    session_present: present,
                    reason_code: v5::ConnectAckReason::try_from(code).unwrap_or(v5::ConnectAckReason::UnspecifiedError),
                    session_expiry_interval_secs: granted.expiry_s,
                    receive_max: NonZeroU16::new(granted.receive_max).unwrap_or(NonZeroU16::MAX),
                    max_packet_size: (granted.max_packet > 0).then_some(granted.max_packet),
                    assigned_client_id: granted.assigned_client_id,
                    subscription_identifiers_available: false,
                    shared_subscription_available: false,
                    ..v5::ConnectAck::default()
                }))
            },
        );
    }

    pub fn refuse(&mut self, out: &mut BytesMut, code: u8) {
        let granted =
            Granted { session_present: false, expiry_s: None, receive_max: u16::MAX, max_packet: 0, assigned_client_id: None };
        self.connack(out, code, granted);
    }

    /// Err when the packet is larger than the client takes; nothing is written then.
    pub fn publish(&mut self, out: &mut BytesMut, message: &Publish) -> Result<(), EncodeError> {
        let packet = |properties| {
            Box::new(WirePublish {
                dup: message.dup,
                retain: message.retain,
                qos: qos(message.qos),
                topic: message.topic.clone(),
                packet_id: NonZeroU16::new(message.packet_id),
                payload: message.payload.clone(),
                properties,
            })
        };
        self.put(
            out,
            || v3::Packet::Publish(packet(None)),
            || {
                let message_expiry_interval = message.expiry_s.and_then(NonZeroU32::new);
                let properties = v5::PublishProperties { message_expiry_interval, ..v5::PublishProperties::default() };
                v5::Packet::Publish(packet(Some(properties)))
            },
        )
    }

    fn acknowledgement(packet_id: NonZeroU16, code: u8) -> v5::PublishAck {
        let reason_code = v5::PublishAckReason::try_from(code).unwrap_or(v5::PublishAckReason::UnspecifiedError);
        v5::PublishAck { packet_id, reason_code, properties: Vec::new(), reason_string: None }
    }

    pub fn puback(&mut self, out: &mut BytesMut, packet_id: u16, code: u8) {
        let Some(packet_id) = NonZeroU16::new(packet_id) else { return };
        let _ = self.put(
            out,
            || v3::Packet::PublishAck { packet_id },
            || v5::Packet::PublishAck(Self::acknowledgement(packet_id, code)),
        );
    }

    pub fn pubrec(&mut self, out: &mut BytesMut, packet_id: u16, code: u8) {
        let Some(packet_id) = NonZeroU16::new(packet_id) else { return };
        let _ = self.put(
            out,
            || v3::Packet::PublishReceived { packet_id },
            || v5::Packet::PublishReceived(Self::acknowledgement(packet_id, code)),
        );
    }

    pub fn pubcomp(&mut self, out: &mut BytesMut, packet_id: u16, code: u8) {
        let Some(packet_id) = NonZeroU16::new(packet_id) else { return };
        let reason_code = v5::PublishAck2Reason::try_from(code).unwrap_or(v5::PublishAck2Reason::Success);
        let _ = self.put(
            out,
            || v3::Packet::PublishComplete { packet_id },
            || {
                v5::Packet::PublishComplete(v5::PublishAck2 {
                    packet_id,
                    reason_code,
                    properties: Vec::new(),
                    reason_string: None,
                })
            },
        );
    }

    /// `codes`: 0 and 1 grant that QoS, all else refuses.
    pub fn suback(&mut self, out: &mut BytesMut, packet_id: u16, codes: &[u8]) {
        let Some(packet_id) = NonZeroU16::new(packet_id) else { return };
        let old = |code: &u8| match code {
            0 | 1 => v3::SubscribeReturnCode::Success(qos(*code)),
            _ => v3::SubscribeReturnCode::Failure,
        };
        let new = |code: &u8| v5::SubscribeAckReason::try_from(*code).unwrap_or(v5::SubscribeAckReason::UnspecifiedError);
        let _ = self.put(
            out,
            || v3::Packet::SubscribeAck { packet_id, status: codes.iter().map(old).collect() },
            || {
                v5::Packet::SubscribeAck(v5::SubscribeAck {
                    packet_id,
                    properties: Vec::new(),
                    reason_string: None,
                    status: codes.iter().map(new).collect(),
                })
            },
        );
    }

    pub fn unsuback(&mut self, out: &mut BytesMut, packet_id: u16, found: &[bool]) {
        let Some(packet_id) = NonZeroU16::new(packet_id) else { return };
        let _ = self.put(
            out,
            || v3::Packet::UnsubscribeAck { packet_id },
            || {
                let status = found.iter().map(|found| match found {
                    true => v5::UnsubscribeAckReason::Success,
                    false => v5::UnsubscribeAckReason::NoSubscriptionExisted,
                });
                v5::Packet::UnsubscribeAck(v5::UnsubscribeAck {
                    packet_id,
                    properties: Vec::new(),
                    reason_string: None,
                    status: status.collect(),
                })
            },
        );
    }

    pub fn pong(&mut self, out: &mut BytesMut) {
        let _ = self.put(out, || v3::Packet::PingResponse, || v5::Packet::PingResponse);
    }

    /// MQTT 3.1.1 has no DISCONNECT from the server: its connection is simply closed.
    pub fn disconnect(&mut self, out: &mut BytesMut, code: u8) {
        if let Version::V5(codec) = &mut self.version {
            let reason_code =
                v5::DisconnectReasonCode::try_from(code).unwrap_or(v5::DisconnectReasonCode::UnspecifiedError);
            let packet = v5::Disconnect {
                reason_code,
                session_expiry_interval_secs: None,
                server_reference: None,
                reason_string: None,
                user_properties: Vec::new(),
            };
            let _ = codec.encode(v5::Packet::Disconnect(packet), out);
        }
    }
}

fn upward(publish: WirePublish) -> Result<Packet, Violation> {
    // We announce no topic aliases, so an empty topic is one of a client that uses them all the same.
    if publish.topic.is_empty() {
        return Err(Violation(reason::PROTOCOL_ERROR));
    }
    Ok(Packet::Publish(Publish {
        topic: publish.topic,
        payload: publish.payload,
        qos: publish.qos.value(),
        retain: publish.retain,
        dup: publish.dup,
        packet_id: publish.packet_id.map_or(0, NonZeroU16::get),
        expiry_s: None,
    }))
}

fn packet_v3(packet: v3::Packet) -> Result<Packet, Violation> {
    Ok(match packet {
        v3::Packet::Publish(publish) => upward(*publish)?,
        v3::Packet::PublishAck { packet_id } => Packet::PubAck(packet_id.get()),
        v3::Packet::PublishRelease { packet_id } => Packet::PubRel(packet_id.get()),
        v3::Packet::Subscribe { packet_id, topic_filters } => {
            let plain = |(pattern, qos): (ByteString, QoS)| Filter {
                pattern,
                qos: qos.value(),
                retain_as_published: false,
                retain_handling: 0,
            };
            let filters = topic_filters.into_iter().map(plain).collect();
            Packet::Subscribe { packet_id: packet_id.get(), filters, with_id: false }
        }
        v3::Packet::Unsubscribe { packet_id, topic_filters } => {
            Packet::Unsubscribe { packet_id: packet_id.get(), patterns: topic_filters }
        }
        v3::Packet::PingRequest => Packet::Ping,
        v3::Packet::Disconnect => Packet::Disconnect { reason: reason::SUCCESS, expiry_s: None },
        v3::Packet::PublishReceived { .. } | v3::Packet::PublishComplete { .. } => Packet::Ignored,
        _ => return Err(Violation(reason::PROTOCOL_ERROR)),
    })
}

fn packet_v5(packet: v5::Packet) -> Result<Packet, Violation> {
    Ok(match packet {
        v5::Packet::Publish(publish) => upward(*publish)?,
        v5::Packet::PublishAck(ack) => Packet::PubAck(ack.packet_id.get()),
        v5::Packet::PublishRelease(release) => Packet::PubRel(release.packet_id.get()),
        v5::Packet::Subscribe(subscribe) => {
            let with_options = |(pattern, options): (ByteString, v5::SubscriptionOptions)| Filter {
                pattern,
                qos: options.qos.value(),
                retain_as_published: options.retain_as_published,
                retain_handling: options.retain_handling.into(),
            };
            Packet::Subscribe {
                packet_id: subscribe.packet_id.get(),
                filters: subscribe.topic_filters.into_iter().map(with_options).collect(),
                with_id: subscribe.id.is_some(),
            }
        }
        v5::Packet::Unsubscribe(unsubscribe) => {
            Packet::Unsubscribe { packet_id: unsubscribe.packet_id.get(), patterns: unsubscribe.topic_filters }
        }
        v5::Packet::PingRequest => Packet::Ping,
        v5::Packet::Disconnect(bye) => {
            Packet::Disconnect { reason: bye.reason_code.into(), expiry_s: bye.session_expiry_interval_secs }
        }
        v5::Packet::PublishReceived(_) | v5::Packet::PublishComplete(_) => Packet::Ignored,
        _ => return Err(Violation(reason::PROTOCOL_ERROR)),
    })
}
