//! A will that waits for its delay (MQTT 5.0, 3.1.3.2.2).

use std::time::Instant;

use crate::inbound_queue::{BrokerDeviceEvent, InMemoryInboundQueue, InboundEventDevice, QueuePermit};
use crate::wall_clock::now_ms;
use crate::wire::Will;

pub struct DelayedWill {
    pub source: InboundEventDevice,
    pub will: Will,
    pub permit: QueuePermit,
    pub due: Instant,
}

impl DelayedWill {
    pub fn publish(self, queue: &InMemoryInboundQueue) {
        let event = BrokerDeviceEvent::Publish {
            source: self.source,
            topic: self.will.topic.to_string(),
            payload: self.will.payload,
            qos: self.will.qos,
            retain: self.will.retain,
            at_ms: now_ms(),
        };
        queue.push_low_priority(event, self.permit);
    }
}
