//! The packets that the broker writes, in the client's version.

use std::num::{NonZeroU16, NonZeroU32};

use bytes::BytesMut;
use rmqtt_codec::error::EncodeError;
use rmqtt_codec::types::{Publish as CodecPublish, QoS};
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Encoder;

use super::codec::{MqttVersionCodec, PacketCodec};
use super::packets::{ConnackProperties, Publish, reason};

fn qos(level: u8) -> QoS {
    if level == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce }
}

fn publish_ack(packet_id: NonZeroU16, code: u8) -> v5::PublishAck {
    v5::PublishAck {
        packet_id,
        reason_code: v5::PublishAckReason::try_from(code).unwrap_or(v5::PublishAckReason::UnspecifiedError),
        ..v5::PublishAck::default()
    }
}

impl PacketCodec {
    fn encode(
        &mut self,
        out: &mut BytesMut,
        v3: impl FnOnce() -> v3::Packet,
        v5: impl FnOnce() -> v5::Packet,
    ) -> Result<(), EncodeError> {
        match &mut self.codec {
            MqttVersionCodec::V3(codec) => codec.encode(v3(), out),
            MqttVersionCodec::V5(codec) => codec.encode(v5(), out),
        }
    }

    /// The CONNACK of a success. From now on, packets of the client may have `max_packet_size` bytes.
    pub fn accept(&mut self, out: &mut BytesMut, properties: ConnackProperties, max_packet_size: usize) {
        self.connack(out, reason::SUCCESS, properties);
        self.set_max_packet_size(max_packet_size);
    }

    fn connack(&mut self, out: &mut BytesMut, code: u8, properties: ConnackProperties) {
        use v3::ConnectAckReason as V3Reason;
        let session_present = properties.session_present;
        let _ = self.encode(
            out,
            || {
                let return_code = match code {
                    reason::SUCCESS => V3Reason::ConnectionAccepted,
                    reason::UNSUPPORTED_PROTOCOL_VERSION => V3Reason::UnacceptableProtocolVersion,
                    reason::CLIENT_IDENTIFIER_NOT_VALID => V3Reason::IdentifierRejected,
                    reason::BAD_USER_NAME_OR_PASSWORD => V3Reason::BadUserNameOrPassword,
                    reason::NOT_AUTHORIZED => V3Reason::NotAuthorized,
                    _ => V3Reason::ServiceUnavailable,
                };
                v3::Packet::ConnectAck(v3::ConnectAck {
                    return_code,
                    session_present,
                })
            },
            || {
                v5::Packet::ConnectAck(Box::new(v5::ConnectAck {
                    session_present,
                    reason_code: v5::ConnectAckReason::try_from(code).unwrap_or(v5::ConnectAckReason::UnspecifiedError),
                    session_expiry_interval_secs: properties.session_expiry_s,
                    max_qos: QoS::AtLeastOnce,
                    receive_max: NonZeroU16::new(properties.receive_maximum).unwrap_or(NonZeroU16::MAX),
                    max_packet_size: (properties.maximum_packet_size > 0).then_some(properties.maximum_packet_size),
                    assigned_client_id: properties.assigned_client_id,
                    subscription_identifiers_available: false,
                    shared_subscription_available: false,
                    ..v5::ConnectAck::default()
                }))
            },
        );
    }

    /// A CONNACK that refuses the connection.
    pub fn refuse(&mut self, out: &mut BytesMut, code: u8) {
        self.connack(out, code, ConnackProperties::default());
    }

    /// Err when the packet is larger than the client's maximum packet size; then nothing is written.
    pub fn publish(&mut self, out: &mut BytesMut, message: &Publish) -> Result<(), EncodeError> {
        let packet = |properties| {
            Box::new(CodecPublish {
                dup: message.dup,
                retain: message.retain,
                qos: qos(message.qos),
                topic: message.topic.clone(),
                packet_id: NonZeroU16::new(message.packet_id),
                payload: message.payload.clone(),
                properties,
            })
        };
        self.encode(
            out,
            || v3::Packet::Publish(packet(None)),
            || {
                let message_expiry_interval = message.message_expiry_s.and_then(NonZeroU32::new);
                let properties = v5::PublishProperties {
                    message_expiry_interval,
                    ..v5::PublishProperties::default()
                };
                v5::Packet::Publish(packet(Some(properties)))
            },
        )
    }

    /// A packet that acknowledges `packet_id`; nothing for the invalid id 0.
    fn encode_ack(
        &mut self,
        out: &mut BytesMut,
        packet_id: u16,
        v3: impl FnOnce(NonZeroU16) -> v3::Packet,
        v5: impl FnOnce(NonZeroU16) -> v5::Packet,
    ) {
        if let Some(packet_id) = NonZeroU16::new(packet_id) {
            let _ = self.encode(out, || v3(packet_id), || v5(packet_id));
        }
    }

    pub fn puback(&mut self, out: &mut BytesMut, packet_id: u16, code: u8) {
        let v3 = |packet_id| v3::Packet::PublishAck { packet_id };
        let v5 = |packet_id| v5::Packet::PublishAck(publish_ack(packet_id, code));
        self.encode_ack(out, packet_id, v3, v5);
    }

    pub fn pubcomp(&mut self, out: &mut BytesMut, packet_id: u16, code: u8) {
        let v3 = |packet_id| v3::Packet::PublishComplete { packet_id };
        let v5 = |packet_id| {
            v5::Packet::PublishComplete(v5::PublishAck2 {
                packet_id,
                reason_code: v5::PublishAck2Reason::try_from(code).unwrap_or(v5::PublishAck2Reason::Success),
                ..v5::PublishAck2::default()
            })
        };
        self.encode_ack(out, packet_id, v3, v5);
    }

    /// `codes`: 0 and 1 grant that QoS; every other code refuses the filter.
    pub fn suback(&mut self, out: &mut BytesMut, packet_id: u16, codes: &[u8]) {
        let v3_status = |code: &u8| match code {
            0 | 1 => v3::SubscribeReturnCode::Success(qos(*code)),
            _ => v3::SubscribeReturnCode::Failure,
        };
        let v5_status = |code: &u8| v5::SubscribeAckReason::try_from(*code).unwrap_or(v5::SubscribeAckReason::UnspecifiedError);
        let v3 = |packet_id| v3::Packet::SubscribeAck {
            packet_id,
            status: codes.iter().map(v3_status).collect(),
        };
        let v5 = |packet_id| {
            v5::Packet::SubscribeAck(v5::SubscribeAck {
                packet_id,
                properties: Vec::new(),
                reason_string: None,
                status: codes.iter().map(v5_status).collect(),
            })
        };
        self.encode_ack(out, packet_id, v3, v5);
    }

    pub fn unsuback(&mut self, out: &mut BytesMut, packet_id: u16, found: &[bool]) {
        let status = |found: &bool| match found {
            true => v5::UnsubscribeAckReason::Success,
            false => v5::UnsubscribeAckReason::NoSubscriptionExisted,
        };
        let v3 = |packet_id| v3::Packet::UnsubscribeAck { packet_id };
        let v5 = |packet_id| {
            v5::Packet::UnsubscribeAck(v5::UnsubscribeAck {
                packet_id,
                properties: Vec::new(),
                reason_string: None,
                status: found.iter().map(status).collect(),
            })
        };
        self.encode_ack(out, packet_id, v3, v5);
    }

    pub fn pingresp(&mut self, out: &mut BytesMut) {
        let _ = self.encode(out, || v3::Packet::PingResponse, || v5::Packet::PingResponse);
    }

    /// MQTT 3.1.1 has no DISCONNECT from the server, so nothing is written for it.
    pub fn disconnect(&mut self, out: &mut BytesMut, code: u8) {
        if let MqttVersionCodec::V5(codec) = &mut self.codec {
            let reason_code = v5::DisconnectReasonCode::try_from(code).unwrap_or(v5::DisconnectReasonCode::UnspecifiedError);
            let packet = v5::Disconnect {
                reason_code,
                ..v5::Disconnect::default()
            };
            let _ = codec.encode(v5::Packet::Disconnect(packet), out);
        }
    }
}
