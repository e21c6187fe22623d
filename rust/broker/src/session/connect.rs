//! The CONNECT of a connection: its checks and the CONNACK.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::connection_handle::ConnectionHandle;
use crate::device::attach::{AttachError, AttachResult, ConnectSessionOptions};
use crate::device::{BrokerDeviceCredentials, Device};
use crate::inbound_queue::{BrokerDeviceEvent, FaultKind, MESSAGE_OVERHEAD, QueuePermit, now_ms};
use crate::limits::BrokerLimits;
use crate::state::BrokerState;
use crate::stats::BrokerStats;
use crate::topic_authorization;
use crate::transport::{TransportStream, poll_read, write_final};
use crate::unauthenticated_connections::AcceptedSocketGuard;
use crate::wire::{ConnackProperties, Connect, PacketCodec, Will, read_connect, reason};

/// How a client has reached the broker.
pub struct PeerInfo<'s> {
    pub over_websocket: bool,
    /// `<ip>:<port>`
    pub address: String,
    /// By when the CONNECT must be complete and accepted.
    pub connect_deadline: Instant,
    /// The names in the certificate that the client has shown; None where the listener asks for none.
    pub certificate_names: Option<Vec<String>>,
    pub accepted: &'s AcceptedSocketGuard,
}

type AuthenticatedDevice = (Arc<Device>, BrokerDeviceCredentials);

/// A connection whose CONNECT was accepted, before its session runs.
pub(super) struct AuthenticatedMqttConnection {
    pub(super) device: Arc<Device>,
    pub(super) connection: Arc<ConnectionHandle>,
    pub(super) credentials: BrokerDeviceCredentials,
    pub(super) will: Option<Will>,
    /// For the disconnect event and the will.
    pub(super) final_permit: QueuePermit,
    pub(super) send_quota: usize,
    pub(super) keep_alive: Option<Duration>,
    pub(super) session_expiry: Duration,
}

/// Read the CONNECT; None when the first packet is no CONNECT or the client closes the socket.
pub(super) async fn receive_connect(
    stream: &mut TransportStream,
    shared: &BrokerState,
    input: &mut BytesMut,
    accepted: &AcceptedSocketGuard,
) -> Option<(PacketCodec, Connect)> {
    loop {
        match read_connect(input, shared.limits.max_connect_packet) {
            Ok(Some(connect)) => return Some(connect),
            Ok(None) => {}
            Err((codec, violation)) => {
                shared.stats.refused_garbage.increment();
                accepted.fail();
                hold_back_banned(shared, accepted).await;
                if let Some(mut codec) = codec {
                    let mut output = BytesMut::new();
                    codec.refuse(&mut output, violation.0);
                    write_final(stream, &mut output).await;
                }
                return None;
            }
        }
        match poll_fn(|cx| poll_read(stream, cx, input)).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => shared.stats.bytes_read.add(count as u64),
        }
    }
}

/// Let a client of a banned address that has failed wait for its answer: it takes one of the few places of its address, so that it
/// cannot try again at once, and a device with correct credentials finds another.
pub(super) async fn hold_back_banned(shared: &BrokerState, accepted: &AcceptedSocketGuard) {
    if let Some(delay) = accepted.answer_delay() {
        let mut shutdown = shared.shutdown.subscribe();
        let _ = tokio::time::timeout(delay, shutdown.wait_for(|shutdown| *shutdown)).await;
    }
}

/// Check the CONNECT and attach the connection to its device. The CONNACK of a success is left in `output`; an error is its reason
/// code.
pub(super) async fn accept_connect(
    shared: &Arc<BrokerState>,
    codec: &mut PacketCodec,
    mut connect: Connect,
    output: &mut BytesMut,
    peer: PeerInfo<'_>,
) -> Result<AuthenticatedMqttConnection, u8> {
    let (device, credentials) = authenticate_peer(shared, &connect, &peer)?;
    if connect.lacks_client_id || is_foreign_client_id(&connect.client_id, &device.id) {
        report(shared, &device, credentials, FaultKind::ClientId, "");
        return Err(reason::CLIENT_IDENTIFIER_NOT_VALID);
    }
    let level = connect.protocol_level;
    let will = match connect.will.take() {
        None => None,
        Some(will) => Some(authorize_will(shared, will, &device, credentials, level)?),
    };
    let (connect_permit, final_permit) = reserve_permits(shared, will.as_ref(), peer.connect_deadline).await?;
    let assigned = assign_client_id(shared, &connect);
    let client_id = assigned.clone().unwrap_or(connect.client_id.clone());
    let queue = &shared.inbound_queue;
    let (limits, request) = (&shared.limits, session_request(&connect, client_id));
    let max_packet_size = request.max_packet_size;
    let announce = |session_present, session| {
        let event = BrokerDeviceEvent::Connect {
            source: device.event_source(credentials),
            protocol: protocol_name(level, peer.over_websocket),
            address: peer.address,
            at_ms: now_ms(),
            max_packet_size,
            session_present,
            session,
        };
        queue.push_low_priority(event, connect_permit);
    };
    let attached = device.attach(credentials, request, limits, queue, announce);
    let attached = match attached {
        Ok(attached) => attached,
        Err(AttachError::CredentialsChanged) => return Err(credentials_changed(&shared.stats)),
        Err(AttachError::TakeoversPaused) => {
            shared.stats.refused_takeovers.increment();
            report(shared, &device, credentials, FaultKind::UsedTwice, "");
            let mut shutdown = shared.shutdown.subscribe();
            tokio::select! {
                () = device.hold_back() => {}
                _ = shutdown.wait_for(|shutdown| *shutdown) => {}
            }
            return Err(reason::SERVER_BUSY);
        }
    };
    count_connect(&shared.stats, &attached);
    let properties = connack_properties(&connect, limits, attached.session_present, assigned);
    codec.accept(output, properties, limits.max_packet_size());
    Ok(AuthenticatedMqttConnection {
        send_quota: usize::from(connect.receive_maximum).min(limits.receive_maximum),
        keep_alive: keep_alive_timeout(connect.keep_alive_s),
        session_expiry: session_expiry(&connect, limits),
        connection: attached.connection,
        device,
        credentials,
        will,
        final_permit,
    })
}

fn report(shared: &BrokerState, device: &Device, credentials: BrokerDeviceCredentials, kind: FaultKind, topic: &str) {
    device.report(credentials.number, kind, topic, &shared.inbound_queue);
}

/// Whether this is the client id of another device, or one that the service has at an external broker. Client ids are separate for
/// each device, so nobody loses a session by it here; but it is a mistake or an attack, and no other broker could bear it.
fn is_foreign_client_id(client_id: &str, device_id: &str) -> bool {
    let is_device_id = client_id.strip_prefix("dev_").is_some_and(|rest| {
        let is_id = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        (20..=64).contains(&rest.len()) && rest.bytes().all(is_id)
    });
    let is_service = client_id == "latchboard" || client_id.starts_with("latchboard-");
    client_id != device_id && (is_device_id || is_service)
}

fn assign_client_id(shared: &BrokerState, connect: &Connect) -> Option<ByteString> {
    (connect.client_id.is_empty()).then(|| shared.assign_client_id())
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

/// The device that connects. From here on its connection need not make room for others.
fn authenticate_peer(shared: &BrokerState, connect: &Connect, peer: &PeerInfo<'_>) -> Result<AuthenticatedDevice, u8> {
    let authenticated = authenticate(shared, connect, peer).inspect_err(|_| peer.accepted.fail())?;
    if peer.accepted.connect() {
        return Ok(authenticated);
    }
    shared.stats.refused_busy.increment();
    Err(reason::SERVER_BUSY)
}

fn authenticate(shared: &BrokerState, connect: &Connect, peer: &PeerInfo<'_>) -> Result<AuthenticatedDevice, u8> {
    let stats = &shared.stats;
    if connect.enhanced_auth {
        stats.refused_credentials.increment();
        return Err(reason::BAD_AUTHENTICATION_METHOD);
    }
    if let Some(names) = &peer.certificate_names {
        return authenticate_by_certificate(shared, connect, names);
    }
    let Some(username) = connect.username.as_deref().filter(|name| !name.is_empty()) else {
        stats.refused_anonymous.increment();
        return Err(reason::NOT_AUTHORIZED);
    };
    let password = connect.password.as_deref().unwrap_or_default();
    let authenticated = shared.registry.authenticate(username, password);
    authenticated.ok_or_else(|| {
        stats.refused_credentials.increment();
        if let Some((device, credentials)) = shared.registry.find_with_credentials(username) {
            report(shared, &device, credentials, FaultKind::WrongPassword, "");
        }
        reason::BAD_USER_NAME_OR_PASSWORD
    })
}

/// The device that a verified certificate names. A username may be left out; another one than the certificate's is refused. The
/// password does not matter.
fn authenticate_by_certificate(shared: &BrokerState, connect: &Connect, names: &[String]) -> Result<AuthenticatedDevice, u8> {
    let username = connect.username.as_deref().unwrap_or_default();
    let mut named = names.iter().filter(|name| username.is_empty() || *name == username);
    let found = named.find_map(|name| shared.registry.find_with_credentials(name));
    found.ok_or_else(|| {
        shared.stats.refused_credentials.increment();
        let mut shown = names.iter().filter_map(|name| shared.registry.find_with_credentials(name));
        if let Some((device, credentials)) = shown.next() {
            report(shared, &device, credentials, FaultKind::OtherUsername, "");
        }
        reason::NOT_AUTHORIZED
    })
}

/// The will with its topic relative to the device's prefix; an error if the device may not publish it. MQTT 3.1.1 has no way to
/// announce Maximum QoS 1, so there a will at QoS 2 is accepted: it goes to the service only, once.
fn authorize_will(
    shared: &BrokerState,
    will: Will,
    device: &Device,
    credentials: BrokerDeviceCredentials,
    level: u8,
) -> Result<Will, u8> {
    if will.qos > 1 && level == 5 {
        shared.stats.refused_will.increment();
        report(shared, device, credentials, FaultKind::QosTwo, &will.topic);
        return Err(reason::QOS_NOT_SUPPORTED);
    }
    let fits = will.topic.len() <= shared.limits.max_topic;
    let topic = topic_authorization::authorize_publish(&will.topic, &device.id, credentials.profile);
    let Some(topic) = topic.filter(|_| fits) else {
        shared.stats.refused_will.increment();
        report(shared, device, credentials, FaultKind::TopicNotAllowed, &will.topic);
        return Err(reason::NOT_AUTHORIZED);
    };
    Ok(Will {
        topic: ByteString::from(topic),
        // A copy: a slice would keep the whole CONNECT in memory.
        payload: Bytes::copy_from_slice(&will.payload),
        ..will
    })
}

/// Queue permits for the connect event, and for the disconnect event with the will.
async fn reserve_permits(shared: &BrokerState, will: Option<&Will>, deadline: Instant) -> Result<(QueuePermit, QueuePermit), u8> {
    let will_bytes = will.map_or(0, |will| MESSAGE_OVERHEAD + will.payload.len() + will.topic.len());
    let bytes = MESSAGE_OVERHEAD + MESSAGE_OVERHEAD + will_bytes;
    let reserved = tokio::time::timeout_at(deadline.into(), shared.inbound_queue.reserve(bytes)).await;
    let Ok(Ok(mut final_permit)) = reserved else {
        shared.stats.refused_busy.increment();
        return Err(reason::SERVER_BUSY);
    };
    let connect_permit = final_permit.split(MESSAGE_OVERHEAD).ok_or(reason::SERVER_BUSY)?;
    Ok((connect_permit, final_permit))
}

fn credentials_changed(stats: &BrokerStats) -> u8 {
    stats.refused_credentials.increment();
    reason::BAD_USER_NAME_OR_PASSWORD
}

fn session_request(connect: &Connect, client_id: ByteString) -> ConnectSessionOptions {
    ConnectSessionOptions {
        client_id,
        clean_start: connect.clean_start,
        max_packet_size: connect.max_packet_size,
    }
}

fn count_connect(stats: &BrokerStats, attached: &AttachResult) {
    stats.connects.increment();
    stats.connections.increment();
    stats.takeovers.add(u64::from(attached.took_over));
    stats.closed_evicted.add(attached.evicted as u64);
}

fn session_expiry(connect: &Connect, limits: &BrokerLimits) -> Duration {
    Duration::from_secs(u64::from(connect.session_expiry_s)).min(limits.max_session_expiry)
}

/// One and a half times the keep alive; a keep alive of 0 means no timeout (MQTT 5.0, 3.1.2.10).
fn keep_alive_timeout(keep_alive_s: u16) -> Option<Duration> {
    (keep_alive_s > 0).then(|| Duration::from_millis(u64::from(keep_alive_s) * 1500))
}

fn connack_properties(
    connect: &Connect,
    limits: &BrokerLimits,
    session_present: bool,
    assigned_client_id: Option<ByteString>,
) -> ConnackProperties {
    let session_expiry_s = session_expiry(connect, limits).as_secs() as u32;
    ConnackProperties {
        session_present,
        session_expiry_s: (session_expiry_s < connect.session_expiry_s).then_some(session_expiry_s),
        receive_maximum: limits.receive_maximum as u16,
        maximum_packet_size: limits.max_packet_size() as u32,
        assigned_client_id,
    }
}
