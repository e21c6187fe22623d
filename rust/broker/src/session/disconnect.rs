//! How a connection ends, and what the client and the service learn of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection_task::ConnectionTask;
use crate::broker_state::BrokerState;
use crate::inbound_queue::{BrokerDeviceEvent, InboundEventDevice, MESSAGE_OVERHEAD};
use crate::registered_device::{BrokerDeviceEntry, DelayedWill, SessionExpiryAndWill};
use crate::shared_connection_state::CloseReason;
use crate::wall_clock::now_ms;
use crate::wire::{ProtocolViolation, reason};

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
fn publish_will_later(shared: &Arc<BrokerState>, device: &Arc<BrokerDeviceEntry>, due: Instant) {
    let (shared, device) = (Arc::clone(shared), Arc::clone(device));
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            device.end_sessions(&shared.inbound_queue);
        });
    }
}
