//! SUBSCRIBE and UNSUBSCRIBE, and the subscribe events for the service.

use bytestring::ByteString;

use super::connection::{ConnectionTask, DisconnectCause};
use crate::connection_handle::Subscription;
use crate::inbound_queue::{BrokerDeviceEvent, FaultKind, MESSAGE_OVERHEAD};
use crate::topic_authorization;
use crate::wire::{SubscribeFilter, reason};

fn refusal(code: u8) -> FaultKind {
    match code {
        reason::QUOTA_EXCEEDED => FaultKind::TooManySubscriptions,
        reason::NOT_AUTHORIZED => FaultKind::TopicNotAllowed,
        _ => FaultKind::NotOffered,
    }
}

impl ConnectionTask {
    pub(super) async fn subscribe(
        &mut self,
        packet_id: u16,
        filters: Vec<SubscribeFilter>,
        has_subscription_id: bool,
    ) -> Result<(), DisconnectCause> {
        self.throttle(0).await?;
        let mut held: Vec<Box<str>> = {
            let shared_state = self.connection.shared_state.lock();
            shared_state.subscriptions.iter().map(|each| each.filter.clone()).collect()
        };
        let mut codes = Vec::with_capacity(filters.len());
        let mut granted = Vec::new();
        for filter in filters {
            let code = self.subscribe_code(&filter, &held, has_subscription_id);
            codes.push(code);
            let relative = topic_authorization::relative_topic(&filter.filter, &self.device.id);
            let Some(relative) = relative.filter(|_| code <= 1) else {
                self.shared.stats.refused_subscribes.increment();
                self.report(refusal(code), &filter.filter);
                continue;
            };
            if !held.iter().any(|other| **other == *relative) {
                held.push(relative.into());
            }
            let subscription = Subscription {
                filter: relative.into(),
                qos: code,
                retain_as_published: filter.retain_as_published,
            };
            granted.push((subscription, filter.retain_handling));
        }
        self.codec.suback(&mut self.output, packet_id, &codes);
        let new = self.new_filters(&granted);
        let limits = &self.shared.limits;
        let left_out = self.device.subscribe(&self.connection, granted, !new.is_empty(), limits);
        self.shared.stats.retained_left_out.add(left_out as u64);
        let at_ms = self.device.last_subscribed_ms();
        for filter in new {
            self.announce_subscription(filter, at_ms, 0).await?;
        }
        Ok(())
    }

    /// The filters that this connection does not have yet. Only these are announced: after a subscribe event the service sends all
    /// unanswered commands, and a client that repeats a subscription has already received them.
    fn new_filters(&self, granted: &[(Subscription, u8)]) -> Vec<String> {
        let shared_state = self.connection.shared_state.lock();
        let exists = |each: &Subscription| {
            let mut subscriptions = shared_state.subscriptions.iter();
            subscriptions.any(|other| other.filter == each.filter)
        };
        let new = granted.iter().filter(|(each, _)| !exists(each));
        new.map(|(each, _)| each.filter.to_string()).collect()
    }

    /// The granted QoS, or the reason code of a refusal. `held`: the filters of the session so far.
    fn subscribe_code(&self, filter: &SubscribeFilter, held: &[Box<str>], has_subscription_id: bool) -> u8 {
        let limits = &self.shared.limits;
        if has_subscription_id {
            return reason::SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED;
        }
        if filter.filter.starts_with("$share/") {
            return reason::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED;
        }
        let fits = filter.filter.len() <= limits.max_topic;
        let relative = topic_authorization::authorize_subscribe(&filter.filter, &self.device.id);
        let Some(relative) = relative.filter(|_| fits) else {
            return reason::NOT_AUTHORIZED;
        };
        if !held.iter().any(|other| **other == *relative) && !self.has_room(relative, held) {
            return reason::QUOTA_EXCEEDED;
        }
        // The broker sends nothing at QoS 2.
        filter.qos.min(1)
    }

    /// The device's command topics have places of their own: no other subscription may keep it from hearing commands.
    fn has_room(&self, relative: &str, held: &[Box<str>]) -> bool {
        let limits = &self.shared.limits;
        let is_command = |filter: &str| self.credentials.profile.is_command_filter(filter);
        let commands = held.iter().filter(|other| is_command(other)).count();
        if is_command(relative) {
            commands < limits.max_command_subscriptions_per_session
        } else {
            held.len() - commands < limits.max_subscriptions_per_session
        }
    }

    pub(super) async fn announce_subscription(
        &mut self,
        filter: String,
        at_ms: i64,
        held_until_ms: i64,
    ) -> Result<(), DisconnectCause> {
        self.shared.stats.subscribes.increment();
        let bytes = MESSAGE_OVERHEAD + filter.len();
        if let Some(permit) = self.reserve(bytes, 1).await? {
            let event = BrokerDeviceEvent::Subscribe {
                source: self.source(),
                filter,
                at_ms,
                held_until_ms,
            };
            self.shared.inbound_queue.push_low_priority(event, permit);
        }
        Ok(())
    }

    pub(super) fn unsubscribe(&mut self, packet_id: u16, filters: &[ByteString]) {
        let mut shared_state = self.connection.shared_state.lock();
        let mut found = Vec::with_capacity(filters.len());
        for filter in filters {
            let before = shared_state.subscriptions.len();
            if let Some(relative) = topic_authorization::relative_topic(filter, &self.device.id) {
                shared_state
                    .subscriptions
                    .retain(|subscription| &*subscription.filter != relative);
            }
            found.push(shared_state.subscriptions.len() < before);
        }
        drop(shared_state);
        self.codec.unsuback(&mut self.output, packet_id, &found);
    }
}
