//! The task of one connection: what it holds, how it handles packets, how it ends, and what the client and the service learn of that.
//!
//! Laws: acknowledgements leave in the order of the publishes (MQTT 5.0, 4.6). A task that ends in whatever way detaches its connection
//! from the device, once.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::time::Sleep;

use super::connect::AuthenticatedMqttConnection;
use crate::connection_handle::{CloseReason, ConnectionHandle, Subscription};
use crate::device::attach::SessionExpiryAndWill;
use crate::device::{BrokerDeviceCredentials, DelayedWill, Device};
use crate::inbound_queue::{BrokerDeviceEvent, FaultKind, InboundEventDevice, MESSAGE_OVERHEAD, QueuePermit, now_ms};
use crate::state::BrokerState;
use crate::transport::{TransportStream, write_final};
use crate::wire::{Packet, PacketCodec, ProtocolViolation, Will, reason};

pub(super) struct ConnectionTask {
    pub(super) stream: TransportStream,
    pub(super) codec: PacketCodec,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    /// Whether bytes were written since the last flush.
    pub(super) unflushed: bool,
    pub(super) shared: Arc<BrokerState>,
    pub(super) device: Arc<Device>,
    pub(super) connection: Arc<ConnectionHandle>,
    pub(super) credentials: BrokerDeviceCredentials,
    pub(super) pending_pubacks: OutgoingPubackQueue,
    pub(super) last_packet_id: u16,
    /// How many QoS-1 publishes may be sent and not acknowledged (MQTT 5.0, 4.9).
    pub(super) send_quota: usize,
    /// The longest silence of the client; None without a keep alive.
    pub(super) keep_alive: Option<Duration>,
    pub(super) last_received: Instant,
    /// Since when the socket has accepted no output.
    pub(super) write_blocked_since: Option<Instant>,
    pub(super) timer: Pin<Box<Sleep>>,
    pub(super) session_expiry: Duration,
    pub(super) will: Option<Will>,
    /// For the disconnect event and the will; None once the connection is detached from its device.
    pub(super) final_permit: Option<QueuePermit>,
}

impl ConnectionTask {
    pub(super) fn new(
        accepted: AuthenticatedMqttConnection,
        stream: TransportStream,
        codec: PacketCodec,
        input: BytesMut,
        output: BytesMut,
        shared: Arc<BrokerState>,
    ) -> Self {
        Self {
            stream,
            codec,
            input,
            output,
            unflushed: false,
            shared,
            device: accepted.device,
            connection: accepted.connection,
            credentials: accepted.credentials,
            pending_pubacks: OutgoingPubackQueue::default(),
            last_packet_id: 0,
            send_quota: accepted.send_quota,
            keep_alive: accepted.keep_alive,
            last_received: Instant::now(),
            write_blocked_since: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            session_expiry: accepted.session_expiry,
            will: accepted.will,
            final_permit: Some(accepted.final_permit),
        }
    }

    /// Tell the service what the broker did not accept.
    pub(super) fn report(&self, kind: FaultKind, topic: &str) {
        let queue = &self.shared.inbound_queue;
        self.device.report(self.credentials.number, kind, topic, queue);
    }

    pub(super) fn source(&self) -> InboundEventDevice {
        self.device.event_source(self.credentials)
    }

    pub(super) async fn run(&mut self) {
        let cause = match self.announce_resumed().await {
            Err(cause) => cause,
            Ok(()) => self.handle_packets().await,
        };
        match cause {
            DisconnectCause::ProtocolError(reason::QOS_NOT_SUPPORTED) => self.report(FaultKind::QosTwo, ""),
            DisconnectCause::ProtocolError(_) => self.report(FaultKind::ProtocolError, ""),
            _ => {}
        }
        self.detach(cause);
        if let Some(code) = cause.reason_code() {
            self.codec.disconnect(&mut self.output, code);
        }
        if !matches!(cause, DisconnectCause::SocketClosed | DisconnectCause::WriteTimeout) {
            write_final(&mut self.stream, &mut self.output).await;
        }
    }

    /// A client whose session is present does not subscribe again, so the broker announces the subscriptions that it has.
    async fn announce_resumed(&mut self) -> Result<(), DisconnectCause> {
        let held_until_ms = self.connection.session_held_until_ms;
        // What was sent at QoS 0 is not held.
        let held = |each: &Subscription| if each.qos > 0 { held_until_ms } else { 0 };
        let filters: Vec<(String, i64)> = {
            let shared_state = self.connection.shared_state.lock();
            let subscriptions = shared_state.subscriptions.iter();
            subscriptions.map(|each| (each.filter.to_string(), held(each))).collect()
        };
        let at_ms = self.device.last_subscribed_ms();
        for (filter, held_until_ms) in filters {
            self.announce_subscription(filter, at_ms, held_until_ms).await?;
        }
        Ok(())
    }

    async fn handle_packets(&mut self) -> DisconnectCause {
        loop {
            match self.codec.next(&mut self.input) {
                Err(violation) => return violation.into(),
                Ok(Some(packet)) => {
                    if let Err(cause) = self.handle(packet).await {
                        return cause;
                    }
                }
                Ok(None) => {
                    if self.input.is_empty() {
                        // Free the buffer: an idle connection holds none.
                        self.input = BytesMut::new();
                    }
                    if let Err(cause) = poll_fn(|cx| self.poll_input(cx)).await {
                        return cause;
                    }
                }
            }
        }
    }

    async fn handle(&mut self, packet: Packet) -> Result<(), DisconnectCause> {
        match packet {
            Packet::Publish(publish) => return self.publish(publish).await,
            Packet::OversizePublish(publish) => {
                self.throttle(publish.qos).await?;
                self.drop_publish(&publish, FaultKind::Oversize, reason::QUOTA_EXCEEDED);
            }
            Packet::PubAck(packet_id) => self.handle_puback(packet_id),
            Packet::PubRel(packet_id) => self.handle_pubrel(packet_id),
            Packet::Subscribe {
                packet_id,
                filters,
                has_subscription_id,
            } => {
                return self.subscribe(packet_id, filters, has_subscription_id).await;
            }
            Packet::Unsubscribe { packet_id, filters } => self.unsubscribe(packet_id, &filters),
            Packet::PingReq => self.codec.pingresp(&mut self.output),
            Packet::Disconnect {
                reason,
                session_expiry_s,
            } => {
                if let Some(seconds) = session_expiry_s {
                    if self.session_expiry.is_zero() && seconds > 0 {
                        // A session that was to end with its connection cannot be kept (MQTT 5.0, 3.14.2.2.2).
                        return Err(DisconnectCause::ProtocolError(reason::PROTOCOL_ERROR));
                    }
                    self.session_expiry = Duration::from_secs(u64::from(seconds)).min(self.shared.limits.max_session_expiry);
                }
                return Err(DisconnectCause::ClientDisconnect {
                    with_will: reason == reason::DISCONNECT_WITH_WILL,
                });
            }
            Packet::Ignored => {}
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DisconnectCause {
    /// The client sent DISCONNECT; with reason 0x04 it asks for its will to be published.
    ClientDisconnect {
        with_will: bool,
    },
    SocketClosed,
    KeepAliveTimeout,
    WriteTimeout,
    ProtocolError(u8),
    ClosedByBroker(CloseReason),
}

impl DisconnectCause {
    /// The reason in the device's `disconnect` event.
    fn event_reason(self) -> &'static str {
        match self {
            Self::ClientDisconnect { .. } => "disconnected",
            Self::ClosedByBroker(CloseReason::Revoked) => "revoked",
            Self::ClosedByBroker(CloseReason::ShuttingDown) => "stopped",
            Self::ClosedByBroker(CloseReason::TakenOver) => "taken_over",
            _ => "lost",
        }
    }

    /// The will is published for a lost connection; not for one that the broker revoked or closed at
    /// shutdown, nor for one whose device has a newer connection.
    fn publishes_will(self) -> bool {
        !matches!(
            self,
            Self::ClientDisconnect { with_will: false }
                | Self::ClosedByBroker(
                    CloseReason::Revoked | CloseReason::ShuttingDown | CloseReason::TakenOver | CloseReason::Evicted
                )
        )
    }

    /// The reason code of the DISCONNECT to an MQTT 5 client; None when none is sent.
    pub(super) fn reason_code(self) -> Option<u8> {
        match self {
            Self::ClientDisconnect { .. } | Self::SocketClosed | Self::WriteTimeout => None,
            Self::KeepAliveTimeout => Some(reason::KEEP_ALIVE_TIMEOUT),
            Self::ProtocolError(code) => Some(code),
            Self::ClosedByBroker(CloseReason::TakenOver) => Some(reason::SESSION_TAKEN_OVER),
            Self::ClosedByBroker(CloseReason::Evicted) => Some(reason::QUOTA_EXCEEDED),
            Self::ClosedByBroker(CloseReason::Revoked) => Some(reason::ADMINISTRATIVE_ACTION),
            Self::ClosedByBroker(CloseReason::BatchRejected) => Some(reason::SERVER_BUSY),
            Self::ClosedByBroker(CloseReason::ShuttingDown) => Some(reason::SERVER_SHUTTING_DOWN),
        }
    }
}

impl From<ProtocolViolation> for DisconnectCause {
    fn from(violation: ProtocolViolation) -> Self {
        Self::ProtocolError(violation.0)
    }
}

impl ConnectionTask {
    /// Detach the connection from its device and queue the will and the disconnect event. Only the first call has an effect.
    pub(super) fn detach(&mut self, cause: DisconnectCause) {
        let Some(mut permit) = self.final_permit.take() else {
            return;
        };
        let will = self.will.take().filter(|_| cause.publishes_will());
        self.count(cause);
        let expiry = if cause == DisconnectCause::ClosedByBroker(CloseReason::Revoked) {
            Duration::ZERO
        } else {
            self.session_expiry
        };
        let disconnect_permit = permit.split(MESSAGE_OVERHEAD);
        let source = self.source();
        let mut will = will.map(|will| DelayedWill {
            due: Instant::now() + will.delay.min(expiry),
            source: source.clone(),
            will,
            permit,
        });
        let delayed = will.take_if(|will| !will.will.delay.min(expiry).is_zero());
        let queue = &self.shared.inbound_queue;
        let announce = |last, session| {
            will.into_iter().for_each(|will| will.publish(queue));
            if let Some(permit) = disconnect_permit.filter(|_| last) {
                let event = disconnect_event(source, cause, session);
                queue.push_low_priority(event, permit);
            }
        };
        let ending = SessionExpiryAndWill { expiry, will: delayed };
        let (connection, limits) = (&self.connection, &self.shared.limits);
        let due = self.device.detach(connection, ending, limits, queue, announce);
        if let Some(due) = due {
            publish_will_later(&self.shared, &self.device, due);
        }
    }

    fn count(&self, cause: DisconnectCause) {
        let stats = &self.shared.stats;
        stats.disconnects.increment();
        stats.connections.subtract(1);
        match cause {
            DisconnectCause::ClosedByBroker(CloseReason::Revoked) => stats.closed_revoked.increment(),
            DisconnectCause::ProtocolError(_) => stats.closed_protocol_error.increment(),
            DisconnectCause::KeepAliveTimeout => stats.closed_keepalive.increment(),
            DisconnectCause::WriteTimeout => stats.closed_slow_reader.increment(),
            _ => {}
        }
    }
}

impl Drop for ConnectionTask {
    /// A task that was dropped, or panicked, does not leave its device connected.
    fn drop(&mut self) {
        self.detach(DisconnectCause::SocketClosed);
    }
}

fn disconnect_event(source: InboundEventDevice, cause: DisconnectCause, session: i64) -> BrokerDeviceEvent {
    BrokerDeviceEvent::Disconnect {
        source,
        reason: cause.event_reason(),
        at_ms: now_ms(),
        session,
    }
}

/// Publish the stored will when its delay is over. Without a runtime the broker is shutting down, and publishes no will.
fn publish_will_later(shared: &Arc<BrokerState>, device: &Arc<Device>, due: Instant) {
    let (shared, device) = (Arc::clone(shared), Arc::clone(device));
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            device.end_sessions(&shared.inbound_queue);
        });
    }
}

struct PendingPuback {
    packet_id: u16,
    /// Of topic and payload.
    digest: u64,
    /// The reason code to acknowledge with, once it is known.
    reason: Option<u8>,
}

/// QoS-1 publishes that were received and not acknowledged, and the last ones that were: a client that waited in vain for a PUBACK
/// may send a publish again on the same connection, and the copy may wait in the socket until after the PUBACK.
#[derive(Default)]
pub(super) struct OutgoingPubackQueue {
    publishes: VecDeque<PendingPuback>,
    /// Sequence number of the first publish.
    first: u64,
    /// Packet id, digest and reason code of the last acknowledged publishes, the oldest first.
    acknowledged: VecDeque<(u16, u64, u8)>,
}

/// Acknowledged publishes that are remembered: as many as may be unacknowledged by default.
const MAX_REMEMBERED: usize = 64;

/// What is known of a publish with DUP.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Retransmission {
    /// Its PUBACK is to come.
    Pending,
    /// Its PUBACK was sent, with this reason code.
    Acknowledged(u8),
}

impl OutgoingPubackQueue {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.publishes.len()
    }

    /// Returns the sequence number for `complete`.
    #[inline]
    pub(super) fn push(&mut self, packet_id: u16, digest: u64) -> u64 {
        self.publishes.push_back(PendingPuback {
            packet_id,
            digest,
            reason: None,
        });
        self.first + self.publishes.len() as u64 - 1
    }

    #[inline]
    pub(super) fn complete(&mut self, sequence: u64, reason: u8) {
        let index = sequence.checked_sub(self.first).map(|index| index as usize);
        if let Some(publish) = index.and_then(|index| self.publishes.get_mut(index)) {
            publish.reason = Some(reason);
        }
    }

    /// What is known of an earlier publish with this packet id and these bytes; None for a new message.
    pub(super) fn find(&self, packet_id: u16, digest: u64) -> Option<Retransmission> {
        // The last publish with the packet id decides: a client uses an id again once it is acknowledged.
        if let Some(publish) = self.publishes.iter().rev().find(|publish| publish.packet_id == packet_id) {
            return (publish.digest == digest).then_some(Retransmission::Pending);
        }
        let (_, earlier, reason) = self.acknowledged.iter().rev().find(|(id, ..)| *id == packet_id)?;
        (*earlier == digest).then_some(Retransmission::Acknowledged(*reason))
    }

    /// `(packet id, reason)` of the first publish, if its reason is known.
    #[inline]
    pub(super) fn pop_completed(&mut self) -> Option<(u16, u8)> {
        let first = self.publishes.front()?;
        let (packet_id, digest, reason) = (first.packet_id, first.digest, first.reason?);
        self.publishes.pop_front();
        self.first += 1;
        if self.acknowledged.len() >= MAX_REMEMBERED {
            self.acknowledged.pop_front();
        }
        self.acknowledged.push_back((packet_id, digest, reason));
        Some((packet_id, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retransmission_is_known_before_and_after_its_puback_and_a_new_message_is_not() {
        let mut queue = OutgoingPubackQueue::default();
        let sequence = queue.push(7, 1);
        assert_eq!(queue.find(7, 1), Some(Retransmission::Pending));
        assert_eq!((queue.find(7, 2), queue.find(8, 1)), (None, None));
        queue.complete(sequence, reason::SUCCESS);
        assert_eq!(queue.pop_completed(), Some((7, reason::SUCCESS)));
        assert_eq!(queue.find(7, 1), Some(Retransmission::Acknowledged(reason::SUCCESS)));
        queue.push(7, 2);
        assert_eq!(queue.find(7, 1), None, "the id has a newer message");
        assert_eq!(queue.find(7, 2), Some(Retransmission::Pending));
    }

    #[test]
    fn the_memory_of_acknowledged_publishes_is_bounded() {
        let mut queue = OutgoingPubackQueue::default();
        for packet_id in 1..=1000 {
            let sequence = queue.push(packet_id, 5);
            queue.complete(sequence, reason::SUCCESS);
            queue.pop_completed();
        }
        assert_eq!(queue.acknowledged.len(), MAX_REMEMBERED);
        assert_eq!(queue.find(1000, 5), Some(Retransmission::Acknowledged(reason::SUCCESS)));
        assert_eq!(queue.find(1, 5), None);
    }
}
