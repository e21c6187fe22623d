//! From the packets of either version to ours.

use std::num::NonZeroU16;

use bytestring::ByteString;
use rmqtt_codec::types::{Publish as WirePublish, QoS};
use rmqtt_codec::{v3, v5};

use super::{Connect, Filter, Packet, Publish, Violation, Will, reason};

pub(super) fn from_v3(connect: v3::Connect) -> Connect {
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

pub(super) fn from_v5(connect: v5::Connect) -> Connect {
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

pub(super) fn packet_v3(packet: v3::Packet) -> Result<Packet, Violation> {
    Ok(match packet {
        v3::Packet::Publish(publish) => upward(*publish)?,
        v3::Packet::PublishAck { packet_id } => Packet::PubAck(packet_id.get()),
        v3::Packet::PublishRelease { packet_id } => Packet::PubRel(packet_id.get()),
        v3::Packet::Subscribe {
            packet_id,
            topic_filters,
        } => {
            let plain = |(pattern, qos): (ByteString, QoS)| Filter {
                pattern,
                qos: qos.value(),
                retain_as_published: false,
                retain_handling: 0,
            };
            let filters = topic_filters.into_iter().map(plain).collect();
            Packet::Subscribe {
                packet_id: packet_id.get(),
                filters,
                with_id: false,
            }
        }
        v3::Packet::Unsubscribe {
            packet_id,
            topic_filters,
        } => Packet::Unsubscribe {
            packet_id: packet_id.get(),
            patterns: topic_filters,
        },
        v3::Packet::PingRequest => Packet::Ping,
        v3::Packet::Disconnect => Packet::Disconnect {
            reason: reason::SUCCESS,
            expiry_s: None,
        },
        v3::Packet::PublishReceived { .. } | v3::Packet::PublishComplete { .. } => Packet::Ignored,
        _ => return Err(Violation(reason::PROTOCOL_ERROR)),
    })
}

pub(super) fn packet_v5(packet: v5::Packet) -> Result<Packet, Violation> {
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
                filters: subscribe
                    .topic_filters
                    .into_iter()
                    .map(with_options)
                    .collect(),
                with_id: subscribe.id.is_some(),
            }
        }
        v5::Packet::Unsubscribe(unsubscribe) => Packet::Unsubscribe {
            packet_id: unsubscribe.packet_id.get(),
            patterns: unsubscribe.topic_filters,
        },
        v5::Packet::PingRequest => Packet::Ping,
        v5::Packet::Disconnect(bye) => Packet::Disconnect {
            reason: bye.reason_code.into(),
            expiry_s: bye.session_expiry_interval_secs,
        },
        v5::Packet::PublishReceived(_) | v5::Packet::PublishComplete(_) => Packet::Ignored,
        _ => return Err(Violation(reason::PROTOCOL_ERROR)),
    })
}
