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
use crate::limits::Limits;
use crate::stats::Stats;
use crate::topics;
use crate::transport::Io;
use crate::uplink::{Event, OVERHEAD, Room, Source};
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
            Ok(count) => shared.stats.bytes_read.add(count as u64),
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
    mut connect: Connect,
    output: &mut BytesMut,
    visitor: Visitor,
) -> Result<Entry, u8> {
    let (device, standing) = authenticate(shared, &connect)?;
    let will = match connect.will.take() {
        None => None,
        Some(will) => Some(permitted(shared, will, &device, standing)?),
    };
    let (greeting, reserve) = reserve(shared, will.as_ref(), visitor.deadline).await?;
    let assigned = connect.client_id.is_empty().then(|| shared.new_client_id());
    let client_id = assigned.clone().unwrap_or(connect.client_id.clone());
    let announce = || {
        let event = Event::Connect {
            source: Source {
                device: standing.number,
                device_id: Arc::clone(&device.id),
            },
            protocol: protocol_name(connect.level, visitor.over_websocket),
            address: visitor.address,
            at_ms: now_ms(),
        };
        shared.uplink.push_patiently(event, greeting);
    };
    let attached = device
        .attach(standing, client_id, connect.clean, &shared.limits, announce)
        .map_err(|refusal| turned_away(&shared.stats, &refusal))?;
    shared.stats.connects.one();
    shared.stats.connections.one();
    shared.stats.takeovers.add(u64::from(attached.took_over));
    let granted = granted(&connect, &shared.limits, attached.session_present, assigned);
    wire.connack(output, reason::SUCCESS, granted);
    wire.limit(shared.limits.payload + HEADROOM);
    Ok(Entry {
        window: usize::from(connect.receive_max).min(shared.limits.inflight),
        keep_alive: patience(connect.keep_alive_s),
        expiry: expiry(&connect, &shared.limits),
        connection: attached.connection,
        device,
        standing,
        will,
        reserve,
    })
}

/// How somebody has come in.
pub(super) struct Visitor {
    pub(super) over_websocket: bool,
    pub(super) address: String,
    pub(super) deadline: Instant,
}

fn authenticate(shared: &Shared, connect: &Connect) -> Result<(Arc<Device>, Standing), u8> {
    let stats = &shared.stats;
    if connect.enhanced_auth {
        stats.refused_credentials.one();
        return Err(reason::AUTH_METHOD);
    }
    let Some(username) = connect.username.as_deref().filter(|name| !name.is_empty()) else {
        stats.refused_anonymous.one();
        return Err(reason::NOT_AUTHORIZED);
    };
    let password = connect.password.as_deref().unwrap_or_default();
    shared
        .registry
        .authenticate(username, password)
        .ok_or_else(|| {
            stats.refused_credentials.one();
            reason::CREDENTIALS
        })
}

/// The will, its topic cut to what lies below the prefix; or a refusal, if the device may not say it.
fn permitted(shared: &Shared, will: Will, device: &Device, standing: Standing) -> Result<Will, u8> {
    let short = will.topic.len() <= shared.limits.topic;
    let below = topics::may_publish(&will.topic, &device.id, standing.profile);
    let Some(below) = below.filter(|_| short) else {
        shared.stats.refused_will.one();
        return Err(reason::NOT_AUTHORIZED);
    };
    Ok(Will {
        topic: ByteString::from(below),
        // A copy, so that it does not hold all of the CONNECT.
        payload: Bytes::copy_from_slice(&will.payload),
        ..will
    })
}

/// Room for the greeting, and for the farewell with the will.
async fn reserve(
    shared: &Shared,
    will: Option<&Will>,
    deadline: Instant,
) -> Result<(Room, Room), u8> {
    let last_words = will.map_or(0, |will| OVERHEAD + will.payload.len() + will.topic.len());
    let wanted = shared.uplink.room(OVERHEAD + OVERHEAD + last_words);
    let room = tokio::time::timeout_at(deadline.into(), wanted).await;
    let Ok(Ok(mut reserve)) = room else {
        shared.stats.refused_busy.one();
        return Err(reason::BUSY);
    };
    let greeting = reserve.split(OVERHEAD).ok_or(reason::BUSY)?;
    Ok((greeting, reserve))
}

fn turned_away(stats: &Stats, refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::Gone => {
            stats.refused_credentials.one();
            reason::CREDENTIALS
        }
        Refusal::Full => {
            stats.refused_full.one();
            reason::QUOTA
        }
    }
}

fn expiry(connect: &Connect, limits: &Limits) -> Duration {
    Duration::from_secs(u64::from(connect.expiry_s)).min(limits.session_expiry)
}

/// MQTT 5.0, 3.1.2.10: one and a half times what the client has promised; 0 promises nothing.
fn patience(keep_alive_s: u16) -> Option<Duration> {
    (keep_alive_s > 0).then(|| Duration::from_millis(u64::from(keep_alive_s) * 1500))
}

fn granted(
    connect: &Connect,
    limits: &Limits,
    session_present: bool,
    assigned_client_id: Option<ByteString>,
) -> Granted {
    let expiry_s = expiry(connect, limits).as_secs() as u32;
    Granted {
        session_present,
        expiry_s: (expiry_s < connect.expiry_s).then_some(expiry_s),
        receive_max: limits.inflight as u16,
        max_packet: (limits.payload + HEADROOM) as u32,
        assigned_client_id,
    }
}
