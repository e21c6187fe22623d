//! What one connection holds.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::time::Sleep;

use super::connect::AuthenticatedConnection;
use super::pending_pubacks::PendingPubacks;
use crate::broker_state::BrokerState;
use crate::inbound_queue::{EventDevice, QueuePermit};
use crate::registered_device::{CredentialSnapshot, RegisteredDevice};
use crate::shared_connection_state::Connection;
use crate::transport::TransportStream;
use crate::wire::{PacketCodec, Will};

pub(super) struct ConnectionTask {
    pub(super) stream: TransportStream,
    pub(super) codec: PacketCodec,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    /// Whether bytes were written since the last flush.
    pub(super) unflushed: bool,
    pub(super) shared: Arc<BrokerState>,
    pub(super) device: Arc<RegisteredDevice>,
    pub(super) connection: Arc<Connection>,
    pub(super) credentials: CredentialSnapshot,
    pub(super) inflight_in: PendingPubacks,
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
        accepted: AuthenticatedConnection,
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
            inflight_in: PendingPubacks::default(),
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

    pub(super) fn source(&self) -> EventDevice {
        self.device.event_source(self.credentials)
    }
}
