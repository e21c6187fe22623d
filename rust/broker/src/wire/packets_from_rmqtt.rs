//! From the packets of `rmqtt-codec`, in either version, to those of `packet`.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use bytestring::ByteString;
use rmqtt_codec::types::{Publish as CodecPublish, QoS};
use rmqtt_codec::{v3, v5};

use super::packet_types::{Connect, Packet, ProtocolViolation, Publish, SubscribeFilter, Will};
use super::reason;

pub(super) fn connect_from_v3(connect: v3::Connect) -> Connect {
    Connect {
        protocol_level: connect.protocol.level(),
        clean_start: connect.clean_session,
        keep_alive_s: connect.keep_alive,
        client_id: connect.client_id,
        username: connect.username,
        password: connect.password,
        will: connect.last_will.map(|will| Will {
            topic: will.topic,
            payload: will.message,
            qos: will.qos.value(),
            retain: will.retain,
            delay: Duration::ZERO,
        }),
        session_expiry_s: if connect.clean_session { 0 } else { u32::MAX },
        receive_maximum: u16::MAX,
        max_packet_size: None,
        enhanced_auth: false,
    }
}

pub(super) fn connect_from_v5(connect: v5::Connect) -> Connect {
    Connect {
        protocol_level: 5,
        clean_start: connect.clean_start,
        keep_alive_s: connect.keep_alive,
        client_id: connect.client_id,
        username: connect.username,
        password: connect.password,
        will: connect.last_will.map(|will| Will {
            topic: will.topic,
            payload: will.message,
            qos: will.qos.value(),
            retain: will.retain,
            delay: Duration::from_secs(u64::from(will.will_delay_interval_sec.unwrap_or(0))),
        }),
        session_expiry_s: connect.session_expiry_interval_secs,
        receive_maximum: connect.receive_max.map_or(u16::MAX, NonZeroU16::get),
        max_packet_size: connect.max_packet_size.map(NonZeroU32::get),
        enhanced_auth: connect.auth_method.is_some(),
    }
}

fn inbound_publish(publish: CodecPublish) -> Result<Packet, ProtocolViolation> {
    // The broker announces no topic aliases, so a client that leaves the topic empty breaks the protocol.
    if publish.topic.is_empty() {
        return Err(ProtocolViolation(reason::PROTOCOL_ERROR));
    }
    if publish.topic.contains(['+', '#', '\0']) {
        return Err(ProtocolViolation(reason::TOPIC_NAME_INVALID));
    }
    // The broker announces Maximum QoS 1.
    if publish.qos == QoS::ExactlyOnce {
        return Err(ProtocolViolation(reason::QOS_NOT_SUPPORTED));
    }
    Ok(Packet::Publish(Publish {
        topic: publish.topic,
        payload: publish.payload,
        qos: publish.qos.value(),
        retain: publish.retain,
        dup: publish.dup,
        packet_id: publish.packet_id.map_or(0, NonZeroU16::get),
        message_expiry_s: None,
    }))
}

pub(super) fn packet_from_v3(packet: v3::Packet) -> Result<Packet, ProtocolViolation> {
    Ok(match packet {
        v3::Packet::Publish(publish) => inbound_publish(*publish)?,
        v3::Packet::PublishAck { packet_id } => Packet::PubAck(packet_id.get()),
        v3::Packet::PublishRelease { packet_id } => Packet::PubRel(packet_id.get()),
        v3::Packet::Subscribe {
            packet_id,
            topic_filters,
        } => {
            let without_options = |(filter, qos): (ByteString, QoS)| SubscribeFilter {
                filter,
                qos: qos.value(),
                retain_as_published: false,
                retain_handling: 0,
            };
            let filters = topic_filters.into_iter().map(without_options).collect();
            Packet::Subscribe {
                packet_id: packet_id.get(),
                filters,
                has_subscription_id: false,
            }
        }
        v3::Packet::Unsubscribe {
            packet_id,
            topic_filters,
        } => Packet::Unsubscribe {
            packet_id: packet_id.get(),
            filters: topic_filters,
        },
        v3::Packet::PingRequest => Packet::PingReq,
        v3::Packet::Disconnect => Packet::Disconnect {
            reason: reason::SUCCESS,
            session_expiry_s: None,
        },
        v3::Packet::PublishReceived { .. } | v3::Packet::PublishComplete { .. } => Packet::Ignored,
        _ => return Err(ProtocolViolation(reason::PROTOCOL_ERROR)),
    })
}

pub(super) fn packet_from_v5(packet: v5::Packet) -> Result<Packet, ProtocolViolation> {
    Ok(match packet {
        v5::Packet::Publish(publish) => inbound_publish(*publish)?,
        v5::Packet::PublishAck(ack) => Packet::PubAck(ack.packet_id.get()),
        v5::Packet::PublishRelease(release) => Packet::PubRel(release.packet_id.get()),
        v5::Packet::Subscribe(subscribe) => {
            let with_options = |(filter, options): (ByteString, v5::SubscriptionOptions)| SubscribeFilter {
                filter,
                qos: options.qos.value(),
                retain_as_published: options.retain_as_published,
                retain_handling: options.retain_handling.into(),
            };
            Packet::Subscribe {
                packet_id: subscribe.packet_id.get(),
                filters: subscribe.topic_filters.into_iter().map(with_options).collect(),
                has_subscription_id: subscribe.id.is_some(),
            }
        }
        v5::Packet::Unsubscribe(unsubscribe) => Packet::Unsubscribe {
            packet_id: unsubscribe.packet_id.get(),
            filters: unsubscribe.topic_filters,
        },
        v5::Packet::PingRequest => Packet::PingReq,
        v5::Packet::Disconnect(disconnect) => Packet::Disconnect {
            reason: disconnect.reason_code.into(),
            session_expiry_s: disconnect.session_expiry_interval_secs,
        },
        v5::Packet::PublishReceived(_) | v5::Packet::PublishComplete(_) => Packet::Ignored,
        _ => return Err(ProtocolViolation(reason::PROTOCOL_ERROR)),
    })
}
