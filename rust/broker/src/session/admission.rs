//! The beginning of a connection: its CONNECT, every check of it, and the CONNACK.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use super::{HEADROOM, poll_read, say};
use crate::broker::Shared;
use crate::clock::now_ms;
use crate::connection::Connection;
use crate::device::{Device, Refusal, Standing};
use crate::topics;
use crate::transport::Io;
use crate::uplink::{Event, Item, OVERHEAD, Room, Source};
use crate::wire::{self, Connect, Granted, Will, Wire, reason};

/// The first packet of a connection: a CONNECT, or its end.
pub(super) async fn greet(
    io: &mut Io,
    shared: &Shared,
    input: &mut BytesMut,
) -> Option<(Wire, Connect)> {
    loop {
        match wire::connect(input, shared.limits.connect_packet) {
            Ok(Some(greeting)) => return Some(greeting),
            Ok(None) => {}
            Err((wire, violation)) => {
                shared.stats.refused_garbage.one();
                if let Some(mut wire) = wire {
                    let mut output = BytesMut::new();
                    wire.refuse(&mut output, violation.0);
                    say(io, &mut output).await;
                }
                return None;
            }
        }
        match poll_fn(|cx| poll_read(io, cx, input)).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// A device that has been let in, before its session runs.
pub(super) struct Entry {
    pub(super) device: Arc<Device>,
    pub(super) connection: Arc<Connection>,
    pub(super) standing: Standing,
    pub(super) will: Option<Will>,
    /// Room for the disconnect event and the will.
    pub(super) reserve: Room,
    pub(super) window: usize,
    pub(super) keep_alive: Option<Duration>,
    pub(super) expiry: Duration,
}

fn protocol_name(level: u8, over_websocket: bool) -> &'static str {
    match (level, over_websocket) {
        (5, false) => "mqtt/5",
        (5, true) => "ws/mqtt/5",
        (3, false) => "mqtt/3.1",
        (3, true) => "ws/mqtt/3.1",
        (_, false) => "mqtt/3.1.1",
        (_, true) => "ws/mqtt/3.1.1",
    }
}

/// Every check of a CONNECT, in order; the CONNACK of a success is left in `output`.
pub(super) async fn admit(
    shared: &Arc<Shared>,
    wire: &mut Wire,
    connect: Connect,
    output: &mut BytesMut,
    over_websocket: bool,
    address: String,
    deadline: Instant,
) -> Result<Entry, u8> {
    let (stats, limits) = (&shared.stats, &shared.limits);
    if connect.enhanced_auth {
        stats.refused_credentials.one();
        return Err(reason::AUTH_METHOD);
    }
    let Some(username) = connect.username.filter(|name| !name.is_empty()) else {
        stats.refused_anonymous.one();
        return Err(reason::NOT_AUTHORIZED);
    };
    let Some((device, standing)) = shared
        .registry
        .authenticate(&username, &connect.password.unwrap_or_default())
    else {
        stats.refused_credentials.one();
        return Err(reason::CREDENTIALS);
    };
    let will = match connect.will {
        None => None,
        Some(will) => {
            let Some(below) = topics::may_publish(&will.topic, &device.id, standing.profile) else {
                stats.refused_will.one();
                return Err(reason::NOT_AUTHORIZED);
            };
            let topic = ByteString::from(below);
            Some(Will {
                topic,
                payload: Bytes::copy_from_slice(&will.payload),
                ..will
            })
        }
    };
    let farewell = OVERHEAD
        + will
            .as_ref()
            .map_or(0, |will| OVERHEAD + will.payload.len() + will.topic.len());
    let room =
        tokio::time::timeout_at(deadline.into(), shared.uplink.room(OVERHEAD + farewell)).await;
    let Ok(Ok(mut reserve)) = room else {
        stats.refused_busy.one();
        return Err(reason::BUSY);
    };
    let Some(greeting) = reserve.split(OVERHEAD) else {
        return Err(reason::BUSY);
    };
    let assigned = connect.client_id.is_empty().then(|| shared.new_client_id());
    let client_id = assigned.clone().unwrap_or(connect.client_id);
    let source = Source {
        device: standing.number,
        device_id: Arc::clone(&device.id),
    };
    let announce = || {
        let protocol = protocol_name(connect.level, over_websocket);
        let event = Event::Connect {
            source: source.clone(),
            protocol,
            address,
            at_ms: now_ms(),
        };
        shared.uplink.push(Item::Event(event), None, greeting);
    };
    let attached = match device.attach(standing, client_id, connect.clean, limits, announce) {
        Ok(attached) => attached,
        Err(Refusal::Gone) => {
            stats.refused_credentials.one();
            return Err(reason::CREDENTIALS);
        }
        Err(Refusal::Full) => {
            stats.refused_full.one();
            return Err(reason::QUOTA);
        }
    };
    stats.connects.one();
    stats.connections.one();
    if attached.took_over {
        stats.takeovers.one();
    }
    let expiry = Duration::from_secs(u64::from(connect.expiry_s)).min(limits.session_expiry);
    let granted_expiry = expiry.as_secs() as u32;
    let granted = Granted {
        session_present: attached.session_present,
        expiry_s: (granted_expiry < connect.expiry_s).then_some(granted_expiry),
        receive_max: limits.inflight as u16,
        max_packet: (limits.payload + HEADROOM) as u32,
        assigned_client_id: assigned,
    };
    wire.connack(output, reason::SUCCESS, granted);
    wire.limit(limits.payload + HEADROOM);
    Ok(Entry {
        device,
        connection: attached.connection,
        standing,
        will,
        reserve,
        window: usize::from(connect.receive_max).min(limits.inflight),
        // MQTT 5.0, 3.1.2.10: one and a half times what the client has promised.
        keep_alive: (connect.keep_alive_s > 0)
            .then(|| Duration::from_millis(u64::from(connect.keep_alive_s) * 1500)),
        expiry,
    })
}
