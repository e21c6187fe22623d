//! The fast path of ingest: payloads that `fast_json` reads. All their metrics and units are known, so none is looked up or compared.

use std::ops::Range;

use crate::batch_result::BatchResult;
use crate::engine::Engine;
use crate::fast_json::{NonNumber, ScanBuffer, scan_array, scan_object};
use crate::ingest::{finish_row, watched_reading};
use crate::payload_parser::{MetricValue, message_time};

/// A message's part of the scan buffer.
#[derive(Clone)]
struct MessageRange {
    readings: Range<usize>,
    non_numbers: Range<usize>,
}

impl Engine {
    /// False, with nothing done, when the payload needs the general path.
    #[inline]
    pub(crate) fn ingest_fast(
        &mut self,
        handle: u32,
        received_ms: i64,
        payload: &[u8],
        result: &mut BatchResult,
    ) -> bool {
        let metrics = &self.devices.headers[handle as usize].rule_layout.metrics;
        if payload.first() == Some(&b'[') {
            return self.ingest_array(handle, received_ms, payload, result);
        }
        let Some(ts) = scan_object(payload, metrics, &mut self.scan) else {
            return false;
        };
        let range = MessageRange {
            readings: 0..self.scan.readings.len(),
            non_numbers: 0..self.scan.non_numbers.len(),
        };
        self.ingest_scanned(handle, ts, range, received_ms, payload, result);
        true
    }

    fn ingest_array(
        &mut self,
        handle: u32,
        received_ms: i64,
        payload: &[u8],
        result: &mut BatchResult,
    ) -> bool {
        let metrics = &self.devices.headers[handle as usize].rule_layout.metrics;
        if scan_array(payload, metrics, &mut self.scan).is_none() {
            return false;
        }
        let mut range = MessageRange {
            readings: 0..0,
            non_numbers: 0..0,
        };
        for index in 0..self.scan.messages.len() {
            let message = self.scan.messages[index];
            range = MessageRange {
                readings: range.readings.end..message.readings_end,
                non_numbers: range.non_numbers.end..message.non_numbers_end,
            };
            let part = range.clone();
            self.ingest_scanned(handle, message.ts, part, received_ms, payload, result);
        }
        true
    }

    #[inline]
    fn ingest_scanned(
        &mut self,
        handle: u32,
        ts: Option<f64>,
        range: MessageRange,
        received_ms: i64,
        payload: &[u8],
        result: &mut BatchResult,
    ) {
        match ts.map_or(Ok(received_ms), |ts| message_time(ts, received_ms)) {
            Err(fault) => {
                result.count_fault(self.devices.headers[handle as usize].number, fault);
            }
            Ok(ts_ms) if range.non_numbers.is_empty() => {
                self.ingest_numbers(handle, ts_ms, range.readings, received_ms, result);
            }
            Ok(ts_ms) => {
                result.messages += 1;
                let values = mixed_values(&self.scan, range, payload);
                self.store_message(handle, ts_ms, &values, received_ms, result);
            }
        }
    }

    fn ingest_numbers(
        &mut self,
        handle: u32,
        ts_ms: i64,
        range: Range<usize>,
        received_ms: i64,
        result: &mut BatchResult,
    ) {
        let mut record = self.devices.record(handle);
        let header = &*record.header;
        let metrics = &*header.rule_layout.metrics;
        let readings = &self.scan.readings[range];
        result.messages += 1;
        result.readings += readings.len() as u64;
        self.row_writer.clear();
        for &(slot, value) in readings {
            let key = metrics.encoded_keys[usize::from(slot)];
            self.row_writer.put_number(key, value);
        }
        let begin = result.arena.len();
        result.arena.extend_from_slice(self.row_writer.bytes());
        finish_row(header, ts_ms, begin, result);
        if header.watched {
            for &(slot, value) in readings {
                let value = MetricValue::Number(value);
                let watched = watched_reading(header, usize::from(slot), ts_ms, &value);
                result.watched.push(watched);
            }
        }
        if ts_ms < header.newest_ms {
            return;
        }
        record.store_numbers(readings, ts_ms, received_ms);
        self.evaluate_rules(handle, received_ms, result);
    }
}

/// (slot, value) of a message in which not all values are numbers.
fn mixed_values<'a>(
    scan: &ScanBuffer,
    range: MessageRange,
    payload: &'a [u8],
) -> Vec<(usize, MetricValue<'a>)> {
    let first = range.readings.start;
    let numbers = scan.readings[range.readings].iter();
    let mut values: Vec<_> = numbers
        .map(|(slot, number)| (usize::from(*slot), MetricValue::Number(*number)))
        .collect();
    for (index, value) in &scan.non_numbers[range.non_numbers] {
        values[index - first].1 = match *value {
            NonNumber::Bool(value) => MetricValue::Bool(value),
            NonNumber::Text(begin, end) => {
                MetricValue::Text(String::from_utf8_lossy(&payload[begin..end]))
            }
        };
    }
    values
}
