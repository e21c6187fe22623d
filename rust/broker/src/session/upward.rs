//! What a device publishes: paced, judged, queued, and answered when its batch is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::{End, Pending, Session};
use crate::clock::now_ms;
use crate::fault::Fault;
use crate::topics;
use crate::uplink::{Event, Item, OVERHEAD, Receipt, Room, TelemetryMessage};
use crate::wire::{Publish, reason};

impl Session {
    pub(super) fn settle(pending: &mut VecDeque<Pending>, first: u64, sequence: u64, answer: u8) {
        let index = sequence.checked_sub(first).map(|index| index as usize);
        if let Some(waiting) = index.and_then(|index| pending.get_mut(index)) {
            waiting.answer = Some(answer);
        }
    }

    /// Write the answers that are due, as far as they are due in order.
    pub(super) fn answer(&mut self) {
        while let Some(Pending {
            packet_id,
            qos,
            answer: Some(answer),
        }) = self.pending.front()
        {
            if *qos == 1 {
                self.wire.puback(&mut self.output, *packet_id, *answer);
            } else {
                self.wire.pubrec(&mut self.output, *packet_id, *answer);
            }
            self.pending.pop_front();
            self.first += 1;
        }
    }

    fn expect_answer(&mut self, packet_id: u16, qos: u8) -> u64 {
        self.pending.push_back(Pending {
            packet_id,
            qos,
            answer: None,
        });
        self.first + self.pending.len() as u64 - 1
    }

    /// Answer at once (in order, that is) for a message that goes nowhere.
    pub(super) fn answer_with(&mut self, packet_id: u16, qos: u8, code: u8) {
        if qos > 0 {
            let sequence = self.expect_answer(packet_id, qos);
            Self::settle(&mut self.pending, self.first, sequence, code);
        }
    }

    /// Wait for the window of unanswered publishes and for the device's rate.
    pub(super) async fn pace(&mut self, qos: u8) -> Result<(), End> {
        if qos > 0 && self.pending.len() >= self.shared.limits.inflight {
            self.wait_for_window().await?;
        }
        let mut counted = false;
        while let Some(delay) = self.device.spend(Instant::now(), &self.shared.limits) {
            if !counted {
                self.shared.stats.throttled.one();
                counted = true;
            }
            self.wait(tokio::time::sleep(delay)).await?;
        }
        Ok(())
    }

    pub(super) async fn publish(&mut self, publish: Publish) -> Result<(), End> {
        self.pace(publish.qos).await?;
        if publish.qos == 2 && !self.is_news(publish.packet_id)? {
            return Ok(());
        }
        if publish.dup {
            self.shared.stats.uplink_duplicates.one();
        }
        let below = (publish.topic.len() <= self.shared.limits.topic)
            .then(|| topics::may_publish(&publish.topic, &self.device.id, self.standing.profile))
            .flatten();
        let Some(below) = below else {
            self.refuse(&publish, Fault::Forbidden, reason::NOT_AUTHORIZED);
            return Ok(());
        };
        if publish.payload.len() > self.shared.limits.payload {
            self.refuse(&publish, Fault::Oversize, reason::QUOTA);
            return Ok(());
        }
        let cost = OVERHEAD + publish.payload.len() + below.len();
        let Some(room) = self.room(cost, publish.qos).await? else {
            self.shared.stats.dropped_queue_full.one();
            self.fault(Fault::QueueFull);
            return Ok(());
        };
        let receipt = (publish.qos > 0).then(|| Receipt {
            sequence: self.expect_answer(publish.packet_id, publish.qos),
            connection: Arc::clone(&self.connection),
        });
        if publish.qos == 2 {
            self.unreleased.push(publish.packet_id);
        }
        let item = self.item(below, &publish.payload, publish.qos, publish.retain);
        self.shared.uplink.push(item, receipt, room);
        Ok(())
    }

    /// Whether a QoS-2 publish is not one that has come before; a client that never releases is not heard for ever.
    fn is_news(&mut self, packet_id: u16) -> Result<bool, End> {
        if self.unreleased.contains(&packet_id) {
            self.repeated(packet_id);
            return Ok(false);
        }
        if self.unreleased.len() >= self.shared.limits.inflight {
            return Err(End::Violation(reason::QUOTA));
        }
        Ok(true)
    }

    /// Drop it, count it, and answer all the same: a device must not send it again and again.
    pub(super) fn refuse(&mut self, publish: &Publish, fault: Fault, code: u8) {
        let stats = &self.shared.stats;
        match fault {
            Fault::Forbidden => stats.dropped_forbidden.one(),
            Fault::Oversize => stats.dropped_oversize.one(),
            Fault::QueueFull => stats.dropped_queue_full.one(),
        }
        self.fault(fault);
        // MQTT 3.1.1 cannot say no: its PUBREC is a yes, and a PUBREL will follow.
        if publish.qos == 2 && !self.wire.is_v5() {
            self.unreleased.push(publish.packet_id);
        }
        self.answer_with(publish.packet_id, publish.qos, code);
    }

    /// The end of a QoS-2 exchange.
    pub(super) fn released(&mut self, packet_id: u16) {
        let known = self.unreleased.iter().position(|id| *id == packet_id);
        let code = known.map_or(reason::PACKET_ID_UNKNOWN, |index| {
            self.unreleased.swap_remove(index);
            reason::SUCCESS
        });
        self.wire.pubcomp(&mut self.output, packet_id, code);
    }

    /// A QoS-2 publish once more: answered again if it has been answered, else its answer is still to come.
    fn repeated(&mut self, packet_id: u16) {
        self.shared.stats.uplink_duplicates.one();
        if !self
            .pending
            .iter()
            .any(|pending| pending.qos == 2 && pending.packet_id == packet_id)
        {
            self.answer_with(packet_id, 2, reason::SUCCESS);
        }
    }

    /// The payload is copied: as a slice of the read buffer, a few bytes would hold all of it.
    fn item(&self, below: &str, payload: &[u8], qos: u8, retain: bool) -> Item {
        let stats = &self.shared.stats;
        let (at_ms, payload) = (now_ms(), Bytes::copy_from_slice(payload));
        stats.uplink_bytes.add(payload.len() as u64);
        if below == "telemetry" && self.standing.profile == topics::Profile::Native {
            stats.uplink_telemetry.one();
            Item::Telemetry(TelemetryMessage {
                device: self.standing.number,
                arrived_ms: at_ms,
                payload,
            })
        } else {
            stats.uplink_publish.one();
            let topic = below.to_owned();
            Item::Event(Event::Publish {
                source: self.source(),
                topic,
                payload,
                qos,
                retain,
                at_ms,
            })
        }
    }

    /// Room in the queue; None for a QoS-0 message whose patience has run out.
    pub(super) async fn room(&mut self, cost: usize, qos: u8) -> Result<Option<Room>, End> {
        if let Some(room) = self.shared.uplink.try_room(cost) {
            return Ok(Some(room));
        }
        self.shared.stats.waited_queue_full.one();
        let shared = Arc::clone(&self.shared);
        if qos == 0 {
            let patience = shared.limits.qos0_patience;
            let waited = self
                .wait(tokio::time::timeout(patience, shared.uplink.room(cost)))
                .await?;
            return Ok(waited.ok().and_then(Result::ok));
        }
        Ok(self.wait(shared.uplink.room(cost)).await?.ok())
    }

    pub(super) fn fault(&self, fault: Fault) {
        let at_ms = now_ms();
        if !self.device.report(fault, at_ms) {
            return;
        }
        if let Some(room) = self.shared.uplink.try_room(OVERHEAD) {
            let event = Event::Fault {
                source: self.source(),
                kind: fault.name(),
                at_ms,
            };
            self.shared.uplink.push_patiently(event, room);
        }
    }
}
