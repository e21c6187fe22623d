//! A batch of messages on its way through the engine: parse, check, pack, store the latest values, evaluate the device's rules.
//!
//! The engine stops before a message with a metric name that has no number, and reports the name. The caller gets a number from the
//! database and calls again with the rest of the batch.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::batch_result::{BatchResult, Row, WatchedReading};
use crate::device::DeviceHeader;
use crate::engine::{Engine, PREFETCH_WINDOW};
use crate::evaluate::evaluate;
use crate::firing::{Evaluation, EvaluationKind};
use crate::metric_layout::MetricSlot;
use crate::packing;
use crate::payload_parser::{self, MAX_METRICS, MAX_PAYLOAD, MessageTime, MetricValue, ParsedReading, PayloadFault};
use crate::unknown_names::UnknownNames;

/// A message as it arrived, with the handle of its device.
#[derive(Clone, Copy)]
pub(crate) struct RawMessage<'a> {
    pub handle: u32,
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
        self.batch_number = self.batch_number.wrapping_add(1).max(1);
        result.consumed = messages.len();
        let mut upcoming = messages.clone();
        for (index, (_, stamped_ms, payload)) in messages.clone().enumerate() {
            let received_ms = self.arrival_ms(stamped_ms, now_ms);
            if index % PREFETCH_WINDOW == 0 {
                let next = upcoming.by_ref().take(PREFETCH_WINDOW);
                self.prefetch(next.map(|(device, _, _)| device));
            }
            let handle = self.prefetched[index % PREFETCH_WINDOW];
            let raw = RawMessage {
                handle,
                received_ms,
                payload,
            };
            let is_done = payload.len() <= MAX_PAYLOAD && self.ingest_fast(raw, &mut result);
            if !is_done && !self.ingest_parsed(raw, &mut result) {
                result.consumed = index;
                result.unknown_names = self.unknown_names(messages.skip(index), now_ms);
                break;
            }
            self.mark_seen(handle, received_ms, &mut result);
        }
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
        let device = self.devices.headers[raw.handle as usize].number;
        if !UnknownNames::new(self).add(device, &parsed).is_empty() {
            return false;
        }
        for message in parsed.messages {
            result.messages += 1;
            let accepted = self.assign_slots(raw.handle, &message.readings, result);
            if !accepted.is_empty() {
                self.store_message(raw, message.time, &accepted, result);
            }
        }
        if let Some(ahead_ms) = parsed.ahead_ms {
            self.report_clock_ahead(raw.handle, ahead_ms, result);
        }
        for fault in parsed.faults {
            result.count_fault(device, fault);
        }
        true
    }

    /// Looks up the devices of the next messages and brings their state into the cache.
    #[inline]
    fn prefetch(&mut self, devices: impl Iterator<Item = u32>) {
        let mut count = 0;
        for (device, handle) in devices.zip(&mut self.prefetched) {
            *handle = self.devices.handle(device);
            count += 1;
        }
        if self.devices.headers.len() > CACHED_DEVICES {
            self.devices.prefetch(&self.prefetched[..count]);
        }
    }

    /// Stores a message's values, (slot, value) of any kind, and evaluates the rules.
    pub(crate) fn store_message<'a, V: Borrow<MetricValue<'a>>>(
        &mut self,
        raw: RawMessage<'_>,
        time: MessageTime,
        values: &[(usize, V)],
        result: &mut BatchResult,
    ) {
        let mut record = self.devices.record(raw.handle);
        let header = &*record.header;
        let slots = &header.rule_layout.metrics.slots;
        result.readings += values.len() as u64;
        let begin = result.arena.len();
        let ts_ms = time.ts_ms;
        if let Some(ahead_ms) = time.ahead_ms() {
            packing::put_ahead(&mut result.arena, ahead_ms);
        }
        for (slot, value) in values {
            packing::put_value(&mut result.arena, slots[*slot].metric, value.borrow());
        }
        finish_row(header, ts_ms, begin, result);
        if header.watched {
            for (slot, value) in values {
                let watched = watched_reading(header, *slot, ts_ms, value.borrow());
                result.watched.push(watched);
            }
        }
        if record.header.is_late(time, raw.received_ms) {
            return;
        }
        for (slot, value) in values {
            record.store(*slot, value.borrow());
        }
        let slots = values.iter().map(|(slot, _)| *slot);
        record.store_times(slots, time, raw.received_ms);
        self.evaluate_rules(raw, result);
    }

    /// After new values were stored.
    #[inline]
    pub(crate) fn evaluate_rules(&mut self, raw: RawMessage<'_>, result: &mut BatchResult) {
        self.mark_changed(raw.handle);
        let mut record = self.devices.record(raw.handle);
        self.fired.clear();
        let mut evaluation = Evaluation {
            at_ms: raw.received_ms,
            kind: EvaluationKind::All,
            fired: &mut self.fired,
            result,
        };
        evaluate(&mut record, &mut evaluation);
        self.timers.schedule(record.header, raw.handle);
    }

    /// The readings with their slots, new ones included, without those that exceed the limit of metrics.
    fn assign_slots<'a>(
        &mut self,
        handle: u32,
        readings: &'a [ParsedReading<'a>],
        result: &mut BatchResult,
    ) -> Vec<(usize, &'a MetricValue<'a>)> {
        let header = &self.devices.headers[handle as usize];
        let layout = &*header.rule_layout.metrics;
        let mut new_slots: Option<Vec<MetricSlot>> = None;
        let mut accepted = Vec::with_capacity(readings.len());
        for reading in readings {
            let slots = new_slots.as_ref().unwrap_or(&layout.slots);
            let unit = reading.unit.as_deref();
            let found = slots.iter().position(|slot| *slot.name == *reading.name);
            let index = found.unwrap_or(slots.len());
            if found.is_none() && index >= MAX_METRICS {
                result.count_fault(header.number, PayloadFault::TooManyMetrics);
                continue;
            }
            accepted.push((index, &reading.value));
            if found.is_some_and(|slot| unit.is_none() || unit == slots[slot].unit.as_deref()) {
                continue;
            }
            let slots = new_slots.get_or_insert_with(|| layout.slots.clone());
            let unit = unit.map(Arc::from);
            if let Some(slot) = found {
                slots[slot].unit = unit;
            } else {
                let (metric, name) = self.names.find(&reading.name).expect("unknown names were reported");
                slots.push(MetricSlot { metric, name, unit });
            }
            result.report_metric(header.number, &slots[index]);
        }
        if let Some(slots) = new_slots {
            self.devices.extend_metrics(handle, slots);
        }
        accepted
    }

    #[cold]
    pub(crate) fn report_clock_ahead(&self, handle: u32, ahead_ms: i64, result: &mut BatchResult) {
        let device = self.devices.headers[handle as usize].number;
        result.clocks_ahead.insert(device, ahead_ms);
    }

    #[inline]
    fn mark_seen(&mut self, handle: u32, received_ms: i64, result: &mut BatchResult) {
        let header = &mut self.devices.headers[handle as usize];
        if header.seen_batch == self.batch_number {
            let newest = &mut result.seen[header.seen_index as usize].1;
            *newest = (*newest).max(received_ms);
        } else {
            header.seen_batch = self.batch_number;
            header.seen_index = result.seen.len() as u32;
            result.seen.push((header.number, received_ms));
        }
    }
}

/// Adds the row whose bytes begin at `begin` of the arena.
#[inline]
pub(crate) fn finish_row(header: &DeviceHeader, ts_ms: i64, begin: usize, result: &mut BatchResult) {
    let end = result.arena.len();
    let digest = packing::digest(&result.arena[begin..end]);
    result.rows.push(Row {
        device: header.number,
        digest,
        ts_ms,
        end,
    });
}

pub(crate) fn watched_reading(header: &DeviceHeader, slot: usize, ts_ms: i64, value: &MetricValue<'_>) -> WatchedReading {
    let metric = &header.rule_layout.metrics.slots[slot];
    let (value, text) = match value {
        MetricValue::Number(value) => (Some(*value), None),
        MetricValue::Bool(value) => (Some(f64::from(u8::from(*value))), Some(value.to_string().into())),
        MetricValue::Text(text) => (None, Some((&**text).into())),
    };
    WatchedReading {
        device: header.number,
        ts_ms,
        metric: metric.name.clone(),
        value,
        text,
        unit: metric.unit.clone(),
    }
}
