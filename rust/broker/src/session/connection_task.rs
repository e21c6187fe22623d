//! What the task of one connection holds, and how it handles packets.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::time::Sleep;

use super::connect::AuthenticatedMqttConnection;
use super::disconnect::DisconnectCause;
use super::outgoing_puback_queue::OutgoingPubackQueue;
use super::socket::write_final;
use crate::broker_state::BrokerState;
use crate::drop_reason::DropReason;
use crate::inbound_queue::{InboundEventDevice, QueuePermit};
use crate::registered_device::{BrokerDeviceCredentials, BrokerDeviceEntry};
use crate::shared_connection_state::{ConnectionHandle, Subscription};
use crate::transport::TransportStream;
use crate::wire::{Packet, PacketCodec, Will, reason};

pub(super) struct ConnectionTask {
    pub(super) stream: TransportStream,
    pub(super) codec: PacketCodec,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    /// Whether bytes were written since the last flush.
    pub(super) unflushed: bool,
    pub(super) shared: Arc<BrokerState>,
    pub(super) device: Arc<BrokerDeviceEntry>,
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

    pub(super) fn source(&self) -> InboundEventDevice {
        self.device.event_source(self.credentials)
    }

    pub(super) async fn run(&mut self) {
        let cause = match self.announce_resumed().await {
            Err(cause) => cause,
            Ok(()) => self.handle_packets().await,
        };
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
                self.drop_publish(&publish, DropReason::Oversize, reason::QUOTA_EXCEEDED);
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
