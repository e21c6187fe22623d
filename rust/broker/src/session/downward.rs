//! What a device subscribes to and what it is sent.

use std::time::Instant;

use bytestring::ByteString;

use super::{End, Session};
use crate::connection::{Downlink, Subscription};
use crate::topics;
use crate::uplink::{Event, OVERHEAD};
use crate::wire::{self, Publish, reason};

impl Session {
    /// Write one message down; what must be acknowledged is returned with its packet id.
    pub(super) fn send(&mut self, message: Downlink) -> Option<(u16, Downlink)> {
        let stats = &self.shared.stats;
        let now = Instant::now();
        if message.expired(now) {
            stats.downlink_expired.one();
            return None;
        }
        let packet_id = if message.qos == 0 {
            0
        } else {
            self.fresh_packet_id()
        };
        let left = message
            .deadline
            .map(|deadline| (deadline - now).as_secs_f64().ceil() as u32);
        let publish = Publish {
            topic: message.topic.clone(),
            payload: message.payload.clone(),
            qos: message.qos,
            retain: message.retain,
            dup: message.dup,
            packet_id,
            expiry_s: left,
        };
        let stats = &self.shared.stats;
        if self.wire.publish(&mut self.output, &publish).is_err() {
            stats.downlink_too_large.one();
            return None;
        }
        stats.downlink_sent.one();
        (message.qos > 0).then_some((packet_id, message))
    }

    /// Ids go round through 65,535; with at most `window` in flight one that comes round is long free.
    fn fresh_packet_id(&mut self) -> u16 {
        self.next_packet_id = if self.next_packet_id == u16::MAX {
            1
        } else {
            self.next_packet_id + 1
        };
        self.next_packet_id
    }

    pub(super) fn acknowledged(&mut self, packet_id: u16) {
        let mut outbox = self.connection.outbox.lock();
        if let Some(index) = outbox.inflight.iter().position(|(id, _)| *id == packet_id) {
            outbox.inflight.remove(index);
            self.shared.stats.downlink_acked.one();
        }
    }

    pub(super) async fn subscribe(
        &mut self,
        packet_id: u16,
        filters: Vec<wire::Filter>,
        with_id: bool,
    ) -> Result<(), End> {
        self.pace(0).await?;
        let mut known = self.connection.outbox.lock().subscriptions.len();
        let mut codes = Vec::with_capacity(filters.len());
        let mut granted = Vec::new();
        for filter in filters {
            let code = self.judge(&filter, known, with_id);
            codes.push(code);
            let below = topics::below(&filter.pattern, &self.device.id);
            let Some(below) = below.filter(|_| code <= 1) else {
                self.shared.stats.refused_subscribes.one();
                continue;
            };
            known += 1;
            let subscription = Subscription {
                pattern: below.into(),
                qos: code,
                retain_as_published: filter.retain_as_published,
            };
            granted.push((subscription, filter.retain_handling));
        }
        self.wire.suback(&mut self.output, packet_id, &codes);
        let announced = self.news(&granted);
        let limits = &self.shared.limits;
        let left_out =
            self.device
                .subscribe(&self.connection, granted, !announced.is_empty(), limits);
        self.shared.stats.retained_left_out.add(left_out as u64);
        let at_ms = self.device.subscribed_ms();
        for filter in announced {
            self.announce_subscription(filter, at_ms).await?;
        }
        Ok(())
    }

    /// What this connection did not hear before. A client that subscribes once more to what it has, as one does that finds its
    /// session again, has missed nothing: were it announced, all that it has not answered yet would be sent a second time.
    fn news(&self, granted: &[(Subscription, u8)]) -> Vec<String> {
        let outbox = self.connection.outbox.lock();
        let held = |each: &Subscription| {
            let mut all = outbox.subscriptions.iter();
            all.any(|other| other.pattern == each.pattern)
        };
        let new = granted.iter().filter(|(each, _)| !held(each));
        new.map(|(each, _)| each.pattern.to_string()).collect()
    }

    /// The granted QoS, or the reason of a refusal.
    fn judge(&self, filter: &wire::Filter, known: usize, with_id: bool) -> u8 {
        let limits = &self.shared.limits;
        if with_id {
            return reason::SUBSCRIPTION_IDS;
        }
        if filter.pattern.starts_with("$share/") {
            return reason::SHARED;
        }
        let short = filter.pattern.len() <= limits.topic;
        if !short || topics::may_subscribe(&filter.pattern, &self.device.id).is_none() {
            return reason::NOT_AUTHORIZED;
        }
        if known >= limits.filters_per_session {
            return reason::QUOTA;
        }
        // We send nothing at QoS 2.
        filter.qos.min(1)
    }

    pub(super) async fn announce_subscription(
        &mut self,
        filter: String,
        at_ms: i64,
    ) -> Result<(), End> {
        self.shared.stats.subscribes.one();
        if let Some(room) = self.room(OVERHEAD + filter.len(), 1).await? {
            let event = Event::Subscribe {
                source: self.source(),
                filter,
                at_ms,
            };
            self.shared.uplink.push_patiently(event, room);
        }
        Ok(())
    }

    pub(super) fn unsubscribe(&mut self, packet_id: u16, patterns: &[ByteString]) {
        let mut outbox = self.connection.outbox.lock();
        let mut found = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let before = outbox.subscriptions.len();
            if let Some(below) = topics::below(pattern, &self.device.id) {
                outbox
                    .subscriptions
                    .retain(|subscription| &*subscription.pattern != below);
            }
            found.push(outbox.subscriptions.len() < before);
        }
        drop(outbox);
        self.wire.unsuback(&mut self.output, packet_id, &found);
    }
}
