//! A batch of messages on its way through the engine: parse, check, pack, store the latest values, evaluate the device's rules.
//!
//! The engine stops before a message with a metric name that has no number, and reports the name. The caller gets a number from the
//! database and calls again with the rest of the batch.

use std::borrow::{Borrow, Cow};
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::batch_result::{BatchResult, PackedReadingsRow, WatchedReading};
use crate::device_table::DeviceMetricSlots;
use crate::engine::{Engine, PREFETCH_AHEAD, stop_timers};
use crate::fast_json::{ScannedPayload, scan_array, scan_object};
use crate::payload_parser::{
    self, MAX_AHEAD_MS, MAX_METRICS, MAX_PAYLOAD, MessageTime, MetricValue, ParsedPayload, ParsedReading, PayloadFault,
};
use crate::reading_packing;
use crate::rules::{AllOrDueRules, RuleEvaluationContext, evaluate};

/// A message as it arrived, with the place of its device.
#[derive(Clone, Copy)]
pub(crate) struct RawMessage<'a> {
    pub place: u32,
    pub received_ms: i64,
    pub payload: &'a [u8],
}

/// The state of up to this many devices stays in the processor's cache.
const CACHED_DEVICES: usize = 4096;

impl Engine {
    /// `messages`: (device, arrival, payload) in order of arrival. An arrival after `now_ms`, by a clock that was set back
    /// meanwhile, counts as now.
    pub fn ingest<'a>(
        &mut self,
        messages: impl ExactSizeIterator<Item = (u32, i64, &'a [u8])> + Clone,
        now_ms: i64,
    ) -> BatchResult {
        let mut result = BatchResult::default();
        result.rows.reserve(messages.len());
        result.arena.reserve(messages.len() * 48);
        self.devices.sweep_metrics();
        self.believed_until_ms = now_ms.saturating_add(MAX_AHEAD_MS);
        result.consumed = messages.len();
        let exceeds_cache = self.devices.len() > CACHED_DEVICES;
        let mut upcoming = messages.clone();
        if exceeds_cache {
            upcoming
                .by_ref()
                .take(PREFETCH_AHEAD)
                .for_each(|(device, _, _)| self.devices.prefetch(device));
        }
        for (index, (device, stamped_ms, payload)) in messages.clone().enumerate() {
            let received_ms = self.arrival_ms(stamped_ms, now_ms);
            if exceeds_cache && let Some((device, _, _)) = upcoming.next() {
                self.devices.prefetch(device);
            }
            if !self.deaf.is_empty() {
                self.hear_message(device, received_ms, &mut result);
            }
            let place = self.devices.place(device);
            self.advance(place, received_ms, &mut result);
            let raw = RawMessage {
                place,
                received_ms,
                payload,
            };
            let is_done = payload.len() <= MAX_PAYLOAD && self.ingest_fast(raw, &mut result);
            if !is_done && !self.ingest_parsed(raw, &mut result) {
                result.consumed = index;
                result.unknown_names = self.unknown_names(messages.skip(index), now_ms);
                break;
            }
            self.mark_seen(device, received_ms, &mut result);
        }
        self.checkpoint_not_replayed(&mut result);
        result
    }

    /// When a message counts as arrived that has this stamp.
    #[inline]
    pub(crate) fn arrival_ms(&self, stamped_ms: i64, now_ms: i64) -> i64 {
        let received_ms = stamped_ms.min(now_ms);
        if received_ms < self.clock_set_ms && received_ms >= self.old_stamps_from_ms {
            return self.clock_set_ms;
        }
        received_ms
    }

    /// The general path, for every payload. False, with nothing done, if a metric name has no number.
    fn ingest_parsed(&mut self, raw: RawMessage<'_>, result: &mut BatchResult) -> bool {
        let parsed = payload_parser::parse(raw.payload, raw.received_ms);
        let device = self.devices.header(raw.place).number;
        if !UnnumberedMetricNames::new(self).add(device, &parsed).is_empty() {
            return false;
        }
        let mut raw = raw;
        for message in parsed.messages {
            result.messages += 1;
            let (place, accepted) = self.assign_slots(raw.place, &message.readings, result);
            raw.place = place;
            if !accepted.is_empty() {
                self.store_message(raw, message.time, &accepted, result);
            }
        }
        if let Some(ahead_ms) = parsed.ahead_ms {
            self.report_clock_ahead(raw.place, ahead_ms, result);
        }
        for fault in parsed.faults {
            result.count_fault(device, fault);
        }
        for (fault, metric) in parsed.fault_metrics {
            result.name_fault(device, fault, &metric);
        }
        true
    }

    /// Stores a message's values, (slot, value) of any kind, and evaluates the rules.
    pub(crate) fn store_message<'a, V: Borrow<MetricValue<'a>>>(
        &mut self,
        raw: RawMessage<'_>,
        time: MessageTime,
        values: &[(usize, V)],
        result: &mut BatchResult,
    ) {
        let device = self.devices.metrics_of(raw.place);
        result.readings += values.len() as u64;
        let begin = result.arena.len();
        let ts_ms = time.ts_ms;
        if let Some(ahead_ms) = time.ahead_ms() {
            reading_packing::put_ahead(&mut result.arena, ahead_ms);
        }
        for (slot, value) in values {
            reading_packing::put_value(&mut result.arena, device.metric(*slot).number, value.borrow());
        }
        finish_row(device.header.number, ts_ms, begin, result);
        if device.header.watched {
            for (slot, value) in values {
                let watched = watched_reading(device, *slot, ts_ms, value.borrow());
                result.watched.push(watched);
            }
        }
        let mut record = self.devices.record(raw.place);
        let is_replayed = record.header.is_replayed(ts_ms);
        if record.header.is_late(time, raw.received_ms) {
            let values = values.iter().map(|(slot, value)| (*slot, value.borrow()));
            return self.store_late(raw.place, values, ts_ms, result);
        }
        let slots = values.iter().map(|(slot, _)| *slot);
        record.keep_later(slots.clone(), ts_ms, self.believed_until_ms);
        for (slot, value) in values {
            record.store(*slot, value.borrow());
        }
        record.store_times(slots, time, raw.received_ms);
        if !is_replayed {
            result.not_replayed.push(record.header.number);
        }
        self.evaluate_rules(raw, result);
    }

    /// Stores the values of a late message, which rules do not see.
    #[cold]
    pub(crate) fn store_late<'a, V: Borrow<MetricValue<'a>>>(
        &mut self,
        place: u32,
        values: impl Iterator<Item = (usize, V)>,
        ts_ms: i64,
        result: &mut BatchResult,
    ) {
        let mut record = self.devices.record(place);
        let is_replayed = record.header.is_replayed(ts_ms);
        if !record.store_late(values, ts_ms, self.believed_until_ms) {
            return;
        }
        if !is_replayed {
            result.not_replayed.push(record.header.number);
        }
        self.mark_changed(place);
    }

    /// After new values were stored.
    #[inline]
    pub(crate) fn evaluate_rules(&mut self, raw: RawMessage<'_>, result: &mut BatchResult) {
        self.mark_changed(raw.place);
        let mut record = self.devices.record(raw.place);
        let mut evaluation = RuleEvaluationContext::new(raw.received_ms, AllOrDueRules::All, &mut self.fired, result);
        evaluate(&mut record, &mut evaluation);
        if !self.deaf.is_empty() && self.deaf.contains_key(&record.header.number) {
            stop_timers(record.header);
        }
        self.timers.schedule(record.header);
    }

    /// The device's place, which may be new, and the readings with their slots, without those that exceed the limit of metrics.
    fn assign_slots<'a>(
        &mut self,
        place: u32,
        readings: &'a [ParsedReading<'a>],
        result: &mut BatchResult,
    ) -> (u32, Vec<(usize, &'a MetricValue<'a>)>) {
        let device = self.devices.header(place).number;
        let mut ids: Vec<u32> = self.devices.metrics_of(place).ids().collect();
        let mut has_changed = false;
        let mut accepted = Vec::with_capacity(readings.len());
        let metrics = &mut self.devices.metrics;
        for reading in readings {
            let unit = reading.unit.as_deref();
            let found = ids.iter().position(|id| *metrics.get(*id).name == *reading.name);
            let slot = found.unwrap_or(ids.len());
            if found.is_none() && slot >= MAX_METRICS {
                result.count_fault(device, PayloadFault::TooManyMetrics);
                result.name_fault(device, PayloadFault::TooManyMetrics, &reading.name);
                continue;
            }
            accepted.push((slot, &reading.value));
            if found.is_some_and(|slot| unit.is_none() || unit == metrics.get(ids[slot]).unit.as_deref()) {
                continue;
            }
            let id = metrics.find(&reading.name).expect("unknown names were reported");
            let id = metrics.in_unit(id, unit);
            match found {
                Some(slot) => ids[slot] = id,
                None => ids.push(id),
            }
            has_changed = true;
            result.report_metric(device, metrics.get(id));
        }
        let place = if has_changed {
            self.devices.extend_metrics(place, &ids)
        } else {
            place
        };
        (place, accepted)
    }

    #[cold]
    pub(crate) fn report_clock_ahead(&self, place: u32, ahead_ms: i64, result: &mut BatchResult) {
        result.clocks_ahead.insert(self.devices.header(place).number, ahead_ms);
    }

    #[inline]
    fn mark_seen(&mut self, device: u32, received_ms: i64, result: &mut BatchResult) {
        let place = self.devices.place(device);
        let header = self.devices.record(place).header;
        match result.seen.get_mut(header.seen_index as usize) {
            Some((number, newest)) if *number == device => *newest = (*newest).max(received_ms),
            _ => {
                header.seen_index = result.seen.len() as u32;
                result.seen.push((device, received_ms));
            }
        }
    }
}

/// Adds the row whose bytes begin at `begin` of the arena.
#[inline]
pub(crate) fn finish_row(device: u32, ts_ms: i64, begin: usize, result: &mut BatchResult) {
    let end = result.arena.len();
    let digest = reading_packing::digest(&result.arena[begin..end]);
    result.rows.push(PackedReadingsRow {
        device,
        digest,
        ts_ms,
        end,
    });
}

pub(crate) fn watched_reading(device: DeviceMetricSlots<'_>, slot: usize, ts_ms: i64, value: &MetricValue<'_>) -> WatchedReading {
    let metric = device.metric(slot);
    let (value, text) = match value {
        MetricValue::Number(value) => (Some(*value), None),
        MetricValue::Bool(value) => (Some(f64::from(u8::from(*value))), Some(value.to_string().into())),
        MetricValue::Text(text) => (None, Some((&**text).into())),
    };
    WatchedReading {
        device: device.header.number,
        ts_ms,
        metric: metric.name.clone(),
        value,
        text,
        unit: metric.unit.clone(),
    }
}

/// How many messages are searched: as many as a usual batch has, so that a large one in which many messages cannot be taken is not
/// searched to its end for each of them.
const MAX_SEARCHED: usize = 2_048;

/// The metric names of messages that have no number yet. Looks at messages and changes nothing. A device has a limited number of
/// metrics, whatever it sends, so only names within the limit are reported.
struct UnnumberedMetricNames<'e, 'a> {
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
