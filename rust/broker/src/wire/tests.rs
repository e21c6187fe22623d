//! What comes in, whole, cut and damaged.

use std::num::{NonZeroU16, NonZeroU32};

use super::*;

const V3: &[u8] = b"\x10\x1c\x00\x04MQTT\x04\xc2\x00\x3c\x00\x03abc\x00\x04user\x00\x05passw";
const V5: &[u8] = b"\x10\x1d\x00\x04MQTT\x05\xc2\x00\x3c\x00\x00\x03abc\x00\x04user\x00\x05passw";

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
                    Packet::Oversize(Publish {
                        qos: 1,
                        packet_id: 7,
                        ..
                    }) => 'o',
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

fn pairs() -> v5::UserProperties {
    vec![("k".into(), "v".into()), ("key".into(), "value".into())]
}

fn a_publish(qos: u8) -> v5::Packet {
    use rmqtt_codec::types::{Publish as WirePublish, QoS};
    let properties = v5::PublishProperties {
        topic_alias: NonZeroU16::new(3),
        correlation_data: Some(Bytes::from_static(b"c")),
        message_expiry_interval: NonZeroU32::new(9),
        content_type: Some("t".into()),
        user_properties: pairs(),
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

/// Packets of every kind that a client may send, as a client's codec writes them.
fn corpus() -> Vec<Vec<u8>> {
    let packet_id = NonZeroU16::MIN;
    let packets = [
        a_publish(0),
        a_publish(2),
        v5::Packet::Subscribe(v5::Subscribe {
            packet_id,
            id: NonZeroU32::new(300),
            user_properties: pairs(),
            topic_filters: vec![("a/#".into(), v5::SubscriptionOptions::default()); 3],
        }),
        v5::Packet::Unsubscribe(v5::Unsubscribe {
            packet_id,
            user_properties: pairs(),
            topic_filters: vec!["a/#".into(), "b".into()],
        }),
        v5::Packet::PublishAck(v5::PublishAck {
            packet_id,
            reason_code: v5::PublishAckReason::Success,
            properties: pairs(),
            reason_string: Some("why".into()),
        }),
        v5::Packet::PingRequest,
    ];
    packets.into_iter().map(written).collect()
}

fn written(packet: v5::Packet) -> Vec<u8> {
    let mut out = BytesMut::new();
    tokio_util::codec::Encoder::encode(&mut v5::Codec::default(), packet, &mut out)
        .expect("a valid packet");
    out.to_vec()
}

/// Bytes a packet holds on to, and the things it consists of.
fn weight(packet: &Packet) -> (usize, usize) {
    match packet {
        Packet::Publish(publish) => (publish.topic.len() + publish.payload.len(), 1),
        Packet::Subscribe { filters, .. } => (
            filters.iter().map(|each| each.pattern.len()).sum(),
            filters.len(),
        ),
        Packet::Unsubscribe { patterns, .. } => {
            (patterns.iter().map(|each| each.len()).sum(), patterns.len())
        }
        _ => (0, 0),
    }
}

/// Flip, cut, double or stretch; often with a length that is true for what is left.
fn damage(packet: &mut Vec<u8>, seed: &mut u64) {
    for _ in 0..=noise(seed) % 4 {
        let at = usize::from(noise(seed)) % packet.len();
        match noise(seed) % 6 {
            0 => packet.truncate(at + 1),
            1 => packet.insert(at, noise(seed)),
            2 => {
                packet.remove(at);
            }
            3 => packet.extend_from_within(at..),
            _ => packet[at] = noise(seed),
        }
        if packet.is_empty() {
            packet.push(noise(seed));
        }
    }
    if packet.len() > 2 && packet.len() < 130 && noise(seed) < 192 {
        packet[1] = packet.len() as u8 - 2;
    }
}

#[test]
fn damaged_packets_of_every_kind_are_refused_or_understood_and_hold_no_more_than_they_are() {
    let (corpus, mut seed) = (corpus(), 11);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let mut understood = 0;
    for round in 0..300_000usize {
        let mut packet = corpus[round % corpus.len()].clone();
        damage(&mut packet, &mut seed);
        let mut wire = greeted(if round % 3 == 0 { V3 } else { V5 });
        wire.limit(1024);
        let (mut input, mut left) = (BytesMut::new(), &packet[..]);
        'stream: while !left.is_empty() {
            let (part, rest) =
                left.split_at(left.len().min(1 + usize::from(noise(&mut seed)) % 64));
            input.extend_from_slice(part);
            left = rest;
            loop {
                match wire.next(&mut input) {
                    Err(_) => break 'stream,
                    Ok(None) => break,
                    Ok(Some(found)) => {
                        let (bytes, things) = weight(&found);
                        assert!(
                            bytes <= packet.len() && things <= packet.len(),
                            "{packet:02x?}"
                        );
                        understood += 1;
                    }
                }
            }
            assert!(input.len() <= packet.len());
        }
        if std::time::Instant::now() > until {
            break;
        }
    }
    assert!(
        understood > 1_000,
        "the damage leaves nothing to understand: {understood}"
    );
}
