//! Input that is complete, split at every byte, or damaged.

use std::num::{NonZeroU16, NonZeroU32};

use bytes::{Bytes, BytesMut};
use rmqtt_codec::v5;

use super::*;

const V3: &[u8] = b"\x10\x1c\x00\x04MQTT\x04\xc2\x00\x3c\x00\x03abc\x00\x04user\x00\x05passw";
const V5: &[u8] = b"\x10\x1d\x00\x04MQTT\x05\xc2\x00\x3c\x00\x00\x03abc\x00\x04user\x00\x05passw";

fn codec_after(bytes: &[u8]) -> PacketCodec {
    let (mut codec, connect) = read_connect(&mut BytesMut::from(bytes), 1024)
        .ok()
        .flatten()
        .expect("a CONNECT");
    assert_eq!(
        (connect.client_id.as_ref(), connect.password.as_deref()),
        ("abc", Some(&b"passw"[..]))
    );
    codec.set_max_packet_size(64);
    codec
}

/// Pseudo-random bytes from a fixed seed, so that a failure repeats.
fn random_byte(seed: &mut u64) -> u8 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 56) as u8
}

#[test]
fn a_connect_is_read_wherever_its_bytes_are_split() {
    for whole in [V3, V5] {
        for cut in 0..whole.len() {
            let mut input = BytesMut::from(&whole[..cut]);
            assert!(matches!(read_connect(&mut input, 1024), Ok(None)), "{cut}");
            input.extend_from_slice(&whole[cut..]);
            assert!(matches!(read_connect(&mut input, 1024), Ok(Some(_))), "{cut}");
            assert!(input.is_empty());
        }
    }
}

#[test]
fn an_oversize_publish_is_skipped_and_the_next_packet_read_wherever_the_bytes_are_split() {
    let mut stream = vec![0x32, 0xac, 0x02, 0x00, 0x01, b't', 0x00, 0x07];
    stream.resize(3 + 300, b'x');
    stream.extend([0xc0, 0x00]);
    for cut in 0..stream.len() {
        let (mut codec, mut seen) = (codec_after(V3), Vec::new());
        let mut input = BytesMut::new();
        for part in [&stream[..cut], &stream[cut..]] {
            input.extend_from_slice(part);
            while let Some(packet) = codec.next(&mut input).expect("valid") {
                seen.push(match packet {
                    Packet::OversizePublish(Publish {
                        qos: 1, packet_id: 7, ..
                    }) => 'o',
                    Packet::PingReq => 'p',
                    _ => '?',
                });
            }
        }
        assert_eq!(seen, ['o', 'p'], "{cut}");
    }
}

#[test]
fn a_connect_with_random_bytes_never_causes_a_panic() {
    let mut seed = 7;
    for round in 0..200_000u32 {
        let mut bytes = BytesMut::from(if round % 2 == 0 { V3 } else { V5 });
        for _ in 0..3 {
            let at = usize::from(random_byte(&mut seed)) % bytes.len();
            bytes[at] = random_byte(&mut seed);
        }
        let _ = read_connect(&mut bytes, 1024);
    }
}

fn user_properties() -> v5::UserProperties {
    vec![("k".into(), "v".into()), ("key".into(), "value".into())]
}

fn publish(qos: u8) -> v5::Packet {
    use rmqtt_codec::types::{Publish as WirePublish, QoS};
    let properties = v5::PublishProperties {
        topic_alias: NonZeroU16::new(3),
        correlation_data: Some(Bytes::from_static(b"c")),
        message_expiry_interval: NonZeroU32::new(9),
        content_type: Some("t".into()),
        user_properties: user_properties(),
        response_topic: Some("r".into()),
        ..v5::PublishProperties::default()
    };
    v5::Packet::Publish(Box::new(WirePublish {
        dup: false,
        retain: true,
        qos: QoS::try_from(qos).expect("a level"),
        topic: "devices/a/state".into(),
        packet_id: NonZeroU16::new(u16::from(qos)),
        payload: Bytes::from_static(b"ON"),
        properties: Some(properties),
    }))
}

/// One packet of each kind that a client may send, encoded by a client's codec.
fn corpus() -> Vec<Vec<u8>> {
    let packet_id = NonZeroU16::MIN;
    let packets = [
        publish(0),
        publish(2),
        v5::Packet::Subscribe(v5::Subscribe {
            packet_id,
            id: NonZeroU32::new(300),
            user_properties: user_properties(),
            topic_filters: vec![("a/#".into(), v5::SubscriptionOptions::default()); 3],
        }),
        v5::Packet::Unsubscribe(v5::Unsubscribe {
            packet_id,
            user_properties: user_properties(),
            topic_filters: vec!["a/#".into(), "b".into()],
        }),
        v5::Packet::PublishAck(v5::PublishAck {
            packet_id,
            reason_code: v5::PublishAckReason::Success,
            properties: user_properties(),
            reason_string: Some("why".into()),
        }),
        v5::Packet::PingRequest,
    ];
    packets.into_iter().map(encode).collect()
}

fn encode(packet: v5::Packet) -> Vec<u8> {
    let mut out = BytesMut::new();
    tokio_util::codec::Encoder::encode(&mut v5::Codec::default(), packet, &mut out).expect("a valid packet");
    out.to_vec()
}

/// `(bytes, elements)` that a packet keeps in memory.
fn held_memory(packet: &Packet) -> (usize, usize) {
    match packet {
        Packet::Publish(publish) => (publish.topic.len() + publish.payload.len(), 1),
        Packet::Subscribe { filters, .. } => (filters.iter().map(|each| each.filter.len()).sum(), filters.len()),
        Packet::Unsubscribe { filters, .. } => (filters.iter().map(|each| each.len()).sum(), filters.len()),
        _ => (0, 0),
    }
}

/// Change, insert, remove or duplicate bytes; often correct the length afterwards.
fn damage(packet: &mut Vec<u8>, seed: &mut u64) {
    for _ in 0..=random_byte(seed) % 4 {
        let at = usize::from(random_byte(seed)) % packet.len();
        match random_byte(seed) % 6 {
            0 => packet.truncate(at + 1),
            1 => packet.insert(at, random_byte(seed)),
            2 => {
                packet.remove(at);
            }
            3 => packet.extend_from_within(at..),
            _ => packet[at] = random_byte(seed),
        }
        if packet.is_empty() {
            packet.push(random_byte(seed));
        }
    }
    if packet.len() > 2 && packet.len() < 130 && random_byte(seed) < 192 {
        packet[1] = packet.len() as u8 - 2;
    }
}

#[test]
fn damaged_packets_are_refused_or_decoded_and_never_hold_more_memory_than_their_bytes() {
    let (corpus, mut seed) = (corpus(), 11);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let mut decoded = 0;
    for round in 0..300_000usize {
        let mut packet = corpus[round % corpus.len()].clone();
        damage(&mut packet, &mut seed);
        let mut codec = codec_after(if round % 3 == 0 { V3 } else { V5 });
        codec.set_max_packet_size(1024);
        let (mut input, mut left) = (BytesMut::new(), &packet[..]);
        'stream: while !left.is_empty() {
            let (part, rest) = left.split_at(left.len().min(1 + usize::from(random_byte(&mut seed)) % 64));
            input.extend_from_slice(part);
            left = rest;
            loop {
                match codec.next(&mut input) {
                    Err(_) => break 'stream,
                    Ok(None) => break,
                    Ok(Some(found)) => {
                        let (bytes, elements) = held_memory(&found);
                        assert!(bytes <= packet.len() && elements <= packet.len(), "{packet:02x?}");
                        decoded += 1;
                    }
                }
            }
            assert!(input.len() <= packet.len());
        }
        if std::time::Instant::now() > until {
            break;
        }
    }
    assert!(decoded > 1_000, "too few damaged packets were decoded: {decoded}");
}
