//! The result of a batch of messages or of a timer tick, as lists by kind. Only the packed rows are per message.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::metrics::Metric;
use crate::payload_parser::{MAX_NAME, PayloadFault};

const HOUR_MS: i64 = 3_600_000;

/// A message to store. Its bytes end at `end` of the arena and begin where the previous row's end.
#[derive(Debug, Clone, Copy)]
pub struct PackedReadingsRow {
    pub device: u32,
    pub digest: i32,
    pub ts_ms: i64,
    pub end: usize,
}

/// A rule whose state changed: `matched`, or since when its conditions hold. Times are Unix milliseconds.
#[derive(Debug)]
pub struct RuleTransition {
    pub device: u32,
    pub rule: u32,
    pub at_ms: i64,
    pub matched: bool,
    pub held_since: Option<i64>,
    pub last_fired: Option<i64>,
    /// `matched` changed.
    pub changed: bool,
}

/// A reading of a device that has live subscribers.
#[derive(Debug)]
pub struct WatchedReading {
    pub device: u32,
    pub ts_ms: i64,
    pub metric: Arc<str>,
    pub value: Option<f64>,
    pub text: Option<Box<str>>,
    pub unit: Option<Arc<str>>,
}

/// A metric, or a unit, that the device reports for the first time.
#[derive(Debug)]
pub struct DiscoveredMetric {
    pub device: u32,
    pub metric: u32,
    pub name: Arc<str>,
    pub unit: Option<Arc<str>>,
}

/// (device, time of its newest message, checkpoint)
pub type DeviceCheckpoint = (u32, i64, Vec<u8>);

#[derive(Debug, Default)]
pub struct BatchResult {
    pub arena: Vec<u8>,
    pub rows: Vec<PackedReadingsRow>,
    /// How many messages were taken: all, or those before the first one with a metric name that has no number.
    pub consumed: usize,
    /// The names without a number in that message and the next ones, by first appearance.
    pub unknown_names: Vec<Box<str>>,
    pub new_metrics: Vec<DiscoveredMetric>,
    pub transitions: Vec<RuleTransition>,
    /// (device, rule, time)
    pub fired: Vec<(u32, u32, i64)>,
    /// (device, rule, time, the rule that won); no winner while the rule cools down
    pub suppressed: Vec<(u32, u32, i64, Option<u32>)>,
    pub watched: Vec<WatchedReading>,
    pub faults: BTreeMap<(u32, PayloadFault), u64>,
    /// The metric of the first fault of each kind that was one of a single reading.
    pub fault_metrics: BTreeMap<(u32, PayloadFault), String>,
    /// By device: how far the last `ts` that was too far ahead is ahead of the arrival.
    pub clocks_ahead: BTreeMap<u32, i64>,
    /// (device, time of its newest message's arrival)
    pub seen: Vec<(u32, i64)>,
    /// Devices with a value whose row a restart does not replay, and at the end of the batch their checkpoints.
    pub not_replayed: Vec<u32>,
    pub checkpoints: Vec<DeviceCheckpoint>,
    pub messages: u64,
    pub readings: u64,
}

impl BatchResult {
    pub fn report_metric(&mut self, device: u32, metric: &Metric) {
        let Metric { number, name, unit } = metric.clone();
        self.new_metrics.push(DiscoveredMetric {
            device,
            metric: number,
            name,
            unit,
        });
    }

    pub fn count_fault(&mut self, device: u32, count_fault: PayloadFault) {
        *self.faults.entry((device, count_fault)).or_default() += 1;
    }

    pub fn name_fault(&mut self, device: u32, fault: PayloadFault, metric: &str) {
        let shown = || metric.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
        self.fault_metrics.entry((device, fault)).or_insert_with(shown);
    }

    /// (device, hour since 1970) of every row, each once, sorted.
    pub fn hours(&self) -> Vec<(u32, i64)> {
        let rows = self.rows.iter();
        let mut hours: Vec<(u32, i64)> = rows.map(|row| (row.device, row.ts_ms.div_euclid(HOUR_MS))).collect();
        hours.sort_unstable();
        hours.dedup();
        hours
    }

    /// Each row with its bytes.
    pub fn packed_rows(&self) -> impl Iterator<Item = (&PackedReadingsRow, &[u8])> {
        let mut begin = 0;
        self.rows.iter().map(move |row| {
            let bytes = &self.arena[begin..row.end];
            begin = row.end;
            (row, bytes)
        })
    }
}
