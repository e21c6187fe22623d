//! The fast path of ingest: payloads that `fast_json` reads. All their metrics and units are known, so none is looked up or compared.

use std::ops::Range;

use crate::batch_result::BatchResult;
use crate::engine::Engine;
use crate::fast_json::{BoolOrTextValue, ScannedPayload, scan_array, scan_object};
use crate::ingest::{RawMessage, finish_row, watched_reading};
use crate::payload_parser::{MessageTime, MetricValue, message_time};
use crate::reading_packing;

impl Engine {
    /// False, with nothing done, when the payload needs the general path.
    #[inline]
    pub(crate) fn ingest_fast(&mut self, raw: RawMessage<'_>, result: &mut BatchResult) -> bool {
        if raw.payload.first() == Some(&b'[') {
            return self.ingest_array(raw, result);
        }
        let metrics = self.devices.metrics_of(raw.place);
        let Some(ts) = scan_object(raw.payload, metrics, &mut self.scan) else {
            return false;
        };
        let mut raw = raw;
        if !self.scan.new_metrics.is_empty() {
            // A message whose time is wrong brings no metrics.
            if ts.is_some() {
                return false;
            }
            raw.place = self.add_metrics(raw.place, result);
        }
        let non_numbers = 0..self.scan.non_numbers.len();
        self.ingest_scanned(raw, ts, 0..self.scan.readings.len(), non_numbers, result);
        true
    }

    /// Those that `scan` has found to be new for the device; returns its new place.
    fn add_metrics(&mut self, place: u32, result: &mut BatchResult) -> u32 {
        let device = self.devices.metrics_of(place);
        for id in &self.scan.new_metrics {
            result.report_metric(device.header.number, device.table.get(*id));
        }
        let ids: Vec<u32> = device.ids().chain(self.scan.new_metrics.iter().copied()).collect();
        self.devices.extend_metrics(place, &ids)
    }

    fn ingest_array(&mut self, raw: RawMessage<'_>, result: &mut BatchResult) -> bool {
        let metrics = self.devices.metrics_of(raw.place);
        if scan_array(raw.payload, metrics, &mut self.scan).is_none() || !self.scan.new_metrics.is_empty() {
            return false;
        }
        let (mut readings, mut non_numbers) = (0, 0);
        for index in 0..self.scan.messages.len() {
            let message = self.scan.messages[index];
            let of_message = non_numbers..message.non_numbers_end;
            let range = readings..message.readings_end;
            (readings, non_numbers) = (range.end, of_message.end);
            self.ingest_scanned(raw, message.ts, range, of_message, result);
        }
        true
    }

    /// `readings` and `non_numbers`: the message's part of the scan buffer.
    #[inline]
    fn ingest_scanned(
        &mut self,
        raw: RawMessage<'_>,
        ts: Option<f64>,
        readings: Range<usize>,
        non_numbers: Range<usize>,
        result: &mut BatchResult,
    ) {
        let arrival = Ok(MessageTime::arrival(raw.received_ms));
        let time = match ts.map_or(arrival, |ts| message_time(ts, raw.received_ms)) {
            Ok(time) => time,
            Err(fault) => return result.count_fault(self.devices.header(raw.place).number, fault),
        };
        if let Some(ahead_ms) = time.ahead_ms() {
            self.report_clock_ahead(raw.place, ahead_ms, result);
        }
        if non_numbers.is_empty() {
            self.ingest_numbers(raw, time, readings, result);
        } else {
            result.messages += 1;
            let values = mixed_values(&self.scan, readings, non_numbers, raw.payload);
            self.store_message(raw, time, &values, result);
        }
    }

    fn ingest_numbers(&mut self, raw: RawMessage<'_>, time: MessageTime, range: Range<usize>, result: &mut BatchResult) {
        let device = self.devices.metrics_of(raw.place);
        let readings = &self.scan.readings[range];
        result.messages += 1;
        result.readings += readings.len() as u64;
        self.row_writer.clear();
        for &(slot, value) in readings {
            let pattern = device.table.pattern(device.id(usize::from(slot)));
            self.row_writer.put_number(pattern.encoded, value);
        }
        let ts_ms = time.ts_ms;
        let begin = result.arena.len();
        if let Some(ahead_ms) = time.ahead_ms() {
            reading_packing::put_ahead(&mut result.arena, ahead_ms);
        }
        result.arena.extend_from_slice(self.row_writer.bytes());
        finish_row(device.header.number, ts_ms, begin, result);
        if device.header.watched {
            for &(slot, value) in readings {
                let value = MetricValue::Number(value);
                let watched = watched_reading(device, usize::from(slot), ts_ms, &value);
                result.watched.push(watched);
            }
        }
        let mut record = self.devices.record(raw.place);
        let is_replayed = record.header.is_replayed(ts_ms);
        if record.header.is_late(time, raw.received_ms) {
            let values = readings
                .iter()
                .map(|(slot, value)| (usize::from(*slot), MetricValue::Number(*value)));
            let values: Vec<_> = values.collect();
            return self.store_late(raw.place, values.into_iter(), ts_ms, result);
        }
        record.store_numbers(readings, time, raw.received_ms, self.believed_until_ms);
        if !is_replayed {
            result.not_replayed.push(record.header.number);
        }
        self.evaluate_rules(raw, result);
    }
}

/// (slot, value) of a message in which not all values are numbers.
fn mixed_values<'a>(
    scan: &ScannedPayload,
    readings: Range<usize>,
    non_numbers: Range<usize>,
    payload: &'a [u8],
) -> Vec<(usize, MetricValue<'a>)> {
    let first = readings.start;
    let numbers = scan.readings[readings].iter();
    let mut values: Vec<_> = numbers
        .map(|(slot, number)| (usize::from(*slot), MetricValue::Number(*number)))
        .collect();
    for (index, value) in &scan.non_numbers[non_numbers] {
        values[index - first].1 = match *value {
            BoolOrTextValue::Bool(value) => MetricValue::Bool(value),
            BoolOrTextValue::Text(begin, end) => MetricValue::Text(String::from_utf8_lossy(&payload[begin..end])),
        };
    }
    values
}
