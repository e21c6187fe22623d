//! How a connection ends, and what the client and the service learn of it.

use std::time::Duration;

use super::state::Session;
use crate::clock::now_ms;
use crate::connection::CloseReason;
use crate::inbound_queue::{DeviceEvent, EventSource, MESSAGE_OVERHEAD};
use crate::wire::{ProtocolViolation, Will, reason};

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
            _ => "lost",
        }
    }

    /// The will is published for a lost connection; not for one that the broker revoked, took over or closed at shutdown.
    fn publishes_will(self) -> bool {
        !matches!(
            self,
            Self::ClientDisconnect { with_will: false }
                | Self::ClosedByBroker(
                    CloseReason::Revoked | CloseReason::ShuttingDown | CloseReason::TakenOver
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

impl Session {
    /// Detach the connection from its device and queue the will and the disconnect event. Only the first call has an effect.
    pub(super) fn detach(&mut self, cause: DisconnectCause) {
        let Some(mut permit) = self.final_permit.take() else {
            return;
        };
        let will = self.will.take().filter(|_| cause.publishes_will());
        self.count(cause);
        let source = self.source();
        let expiry = if cause == DisconnectCause::ClosedByBroker(CloseReason::Revoked) {
            Duration::ZERO
        } else {
            self.session_expiry
        };
        let (queue, limits) = (&self.shared.inbound_queue, &self.shared.limits);
        self.device
            .detach(&self.connection, expiry, limits, |last| {
                let disconnect_permit = permit.split(MESSAGE_OVERHEAD);
                if let Some(will) = will {
                    queue.push_low_priority(will_event(source.clone(), will), permit);
                }
                if let Some(permit) = disconnect_permit.filter(|_| last) {
                    let event = DeviceEvent::Disconnect {
                        source,
                        reason: cause.event_reason(),
                        at_ms: now_ms(),
                    };
                    queue.push_low_priority(event, permit);
                }
            });
    }

    fn count(&self, cause: DisconnectCause) {
        let stats = &self.shared.stats;
        stats.disconnects.increment();
        stats.connections.subtract(1);
        match cause {
            DisconnectCause::ClosedByBroker(CloseReason::Revoked) => {
                stats.closed_revoked.increment()
            }
            DisconnectCause::ProtocolError(_) => stats.closed_protocol_error.increment(),
            DisconnectCause::KeepAliveTimeout => stats.closed_keepalive.increment(),
            DisconnectCause::WriteTimeout => stats.closed_slow_reader.increment(),
            _ => {}
        }
    }
}

impl Drop for Session {
    /// A task that was dropped, or panicked, does not leave its device connected.
    fn drop(&mut self) {
        self.detach(DisconnectCause::SocketClosed);
    }
}

fn will_event(source: EventSource, will: Will) -> DeviceEvent {
    DeviceEvent::Publish {
        source,
        topic: will.topic.to_string(),
        payload: will.payload,
        qos: will.qos,
        retain: will.retain,
        at_ms: now_ms(),
    }
}
