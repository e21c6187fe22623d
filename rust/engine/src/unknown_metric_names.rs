//! The metric names of messages that have no number yet. Looks at messages and changes nothing.
//!
//! A device has a limited number of metrics, whatever it sends, so only names within the limit are reported.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::device_table::DeviceMetricSlots;
use crate::engine::Engine;
use crate::fast_json::{ScannedPayload, scan_array, scan_object};
use crate::payload_parser::{self, MAX_METRICS, MAX_PAYLOAD, ParsedPayload};

/// How many messages are searched: as many as a usual batch has, so that a large one in which many messages cannot be taken is not
/// searched to its end for each of them.
const MAX_SEARCHED: usize = 2_048;

pub(crate) struct UnnumberedMetricNames<'e, 'a> {
    engine: &'e Engine,
    /// By device: metrics that it has not reported before.
    new_metrics: HashMap<u32, Vec<Cow<'a, str>>, RandomState>,
    seen: HashSet<Box<str>, RandomState>,
    names: Vec<Box<str>>,
}

impl<'e, 'a> UnnumberedMetricNames<'e, 'a> {
    pub fn new(engine: &'e Engine) -> Self {
        Self {
            engine,
            new_metrics: HashMap::default(),
            seen: HashSet::default(),
            names: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The next message of this device.
    pub fn add(&mut self, device: u32, parsed: &ParsedPayload<'a>) -> &Self {
        for reading in parsed.messages.iter().flat_map(|message| &message.readings) {
            self.add_metric(device, reading.name.clone());
        }
        self
    }

    fn add_metric(&mut self, device: u32, name: Cow<'a, str>) {
        let reported = self.engine.metrics_of(device);
        if reported.is_some_and(|reported| reported.find_slot(&name).is_some()) {
            return;
        }
        let new_metrics = self.new_metrics.entry(device).or_default();
        if new_metrics.contains(&name) || reported.map_or(0, DeviceMetricSlots::len) + new_metrics.len() >= MAX_METRICS {
            return;
        }
        if self.engine.devices.metrics.find(&name).is_none() && self.seen.insert((&*name).into()) {
            self.names.push((&*name).into());
        }
        new_metrics.push(name);
    }
}

impl Engine {
    /// Of the first of these messages: (device, arrival, payload), in order of arrival.
    #[cold]
    pub(crate) fn unknown_names<'a>(&self, messages: impl Iterator<Item = (u32, i64, &'a [u8])>, now_ms: i64) -> Vec<Box<str>> {
        let mut unknown = UnnumberedMetricNames::new(self);
        let mut scan = ScannedPayload::default();
        for (device, stamped_ms, payload) in messages.take(MAX_SEARCHED) {
            let metrics = self.metrics_of(device);
            if !metrics.is_some_and(|metrics| has_known_form(payload, metrics, &mut scan)) {
                unknown.add(device, &payload_parser::parse(payload, self.arrival_ms(stamped_ms, now_ms)));
            }
        }
        unknown.names
    }

    fn metrics_of(&self, device: u32) -> Option<DeviceMetricSlots<'_>> {
        Some(self.devices.metrics_of(self.devices.find(device)?))
    }
}

/// The fast path takes it: the device has reported all its metrics.
fn has_known_form(payload: &[u8], metrics: DeviceMetricSlots<'_>, scan: &mut ScannedPayload) -> bool {
    if payload.len() > MAX_PAYLOAD {
        return false;
    }
    let scanned = match payload.first() {
        Some(b'[') => scan_array(payload, metrics, scan).is_some(),
        _ => scan_object(payload, metrics, scan).is_some(),
    };
    scanned && scan.new_metrics.is_empty()
}
