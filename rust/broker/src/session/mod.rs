//! One connection, from its CONNECT to its end.
//!
//! A connection is one task that owns its socket and handles one packet at a time. Law: every wait of it (for bytes, for the inbound
//! queue, for the device's rate limit) goes through `ConnectionTask::poll_background`, which also acknowledges, sends and notices a close. So
//! a device whose own messages must wait still receives messages, and can be disconnected at any moment.
//!
//! Read `connect`, `state`, `poll`, then `inbound`, `outbound`, `subscribe`, `disconnect`.

mod connect;
mod connection_task;
mod disconnect;
mod inbound;
mod pending_pubacks;
mod outbound;
mod poll;
mod socket;
mod subscribe;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;

use self::connect::{accept_connect, receive_connect};
use self::connection_task::ConnectionTask;
use self::disconnect::DisconnectCause;
use self::socket::write_final;
use crate::broker_state::BrokerState;
use crate::drop_reason::DropReason;
use crate::shared_connection_state::Subscription;
use crate::transport::TransportStream;
use crate::wire::{Packet, reason};

pub use self::connect::PeerInfo;

/// Serve one socket until its end.
pub async fn serve(mut stream: TransportStream, shared: Arc<BrokerState>, peer: PeerInfo<'_>) {
    let mut input = BytesMut::new();
    let mut shutdown = shared.shutdown.subscribe();
    let connect = receive_connect(&mut stream, &shared, &mut input, peer.accepted);
    let received = tokio::select! {
        received = tokio::time::timeout_at(peer.connect_deadline.into(), connect) => received,
        _ = shutdown.wait_for(|shutdown| *shutdown) => return,
    };
    drop(shutdown);
    let (mut codec, connect) = match received {
        Ok(Some(received)) => received,
        Ok(None) => return,
        Err(_) => {
            peer.accepted.fail();
            return shared.stats.refused_timeout.increment();
        }
    };
    let mut output = BytesMut::new();
    match accept_connect(&shared, &mut codec, connect, &mut output, peer).await {
        Err(code) => {
            codec.refuse(&mut output, code);
            write_final(&mut stream, &mut output).await;
        }
        Ok(accepted) => {
            // Boxed, so that a task that waits for a CONNECT does not carry the space of a session.
            let run = async move {
                let mut session = ConnectionTask::new(accepted, stream, codec, input, output, shared);
                session.reset_timer();
                session.run().await;
            };
            Box::pin(run).await;
        }
    }
}

impl ConnectionTask {
    async fn run(&mut self) {
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
