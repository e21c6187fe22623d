//! How connections end, and what is said of it: to the client, and to the service.

use std::time::Duration;

use super::Session;
use crate::clock::now_ms;
use crate::connection::Close;
use crate::uplink::{Event, OVERHEAD, Source};
use crate::wire::{Violation, Will, reason};

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// DISCONNECT; with the reason 0x04 the will is wanted all the same.
    Goodbye {
        with_will: bool,
    },
    /// The socket is gone.
    Gone,
    Silent,
    Stuck,
    Violation(u8),
    Closed(Close),
}

impl End {
    /// The reason in the device's `disconnect` event.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Goodbye { .. } => "disconnected",
            Self::Closed(Close::Expelled) => "revoked",
            Self::Closed(Close::Stopping) => "stopped",
            _ => "lost",
        }
    }

    /// A will speaks for a device that was lost; not for one that we cut, nor for ourselves when we stop.
    fn wants_will(self) -> bool {
        !matches!(
            self,
            Self::Goodbye { with_will: false }
                | Self::Closed(Close::Expelled | Close::Stopping | Close::TakenOver)
        )
    }

    /// What an MQTT 5 client is told.
    pub(super) fn code(self) -> Option<u8> {
        match self {
            Self::Goodbye { .. } | Self::Gone | Self::Stuck => None,
            Self::Silent => Some(reason::KEEP_ALIVE),
            Self::Violation(code) => Some(code),
            Self::Closed(Close::TakenOver) => Some(reason::TAKEN_OVER),
            Self::Closed(Close::Expelled) => Some(reason::ADMINISTRATIVE),
            Self::Closed(Close::Unconfirmed) => Some(reason::BUSY),
            Self::Closed(Close::Stopping) => Some(reason::SHUTTING_DOWN),
        }
    }
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation.0)
    }
}

impl Session {
    /// Leave the device's list, once; the will and the farewell are announced from the reserve.
    pub(super) fn leave(&mut self, end: End) {
        let Some(mut reserve) = self.reserve.take() else {
            return;
        };
        let will = self.will.take().filter(|_| end.wants_will());
        self.count(end);
        let source = self.source();
        let keep = if end == End::Closed(Close::Expelled) {
            Duration::ZERO
        } else {
            self.expiry
        };
        let (uplink, limits) = (&self.shared.uplink, &self.shared.limits);
        self.device.detach(&self.connection, keep, limits, |last| {
            let farewell = reserve.split(OVERHEAD);
            if let Some(will) = will {
                let event = last_words(source.clone(), will);
                uplink.push_patiently(event, reserve);
            }
            if let Some(farewell) = farewell.filter(|_| last) {
                let event = Event::Disconnect {
                    source,
                    reason: end.word(),
                    at_ms: now_ms(),
                };
                uplink.push_patiently(event, farewell);
            }
        });
    }

    fn count(&self, end: End) {
        let stats = &self.shared.stats;
        stats.disconnects.one();
        stats.connections.sub(1);
        match end {
            End::Closed(Close::Expelled) => stats.kicked.one(),
            End::Violation(_) => stats.closed_protocol_error.one(),
            End::Silent => stats.closed_keepalive.one(),
            End::Stuck => stats.closed_slow_reader.one(),
            _ => {}
        }
    }
}

fn last_words(source: Source, will: Will) -> Event {
    Event::Publish {
        source,
        topic: will.topic.to_string(),
        payload: will.payload,
        qos: will.qos,
        retain: will.retain,
        at_ms: now_ms(),
    }
}
