//! What a batch or a tick means, as columns and short lists. Nothing in it is per message but the packed rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::layout::Slot;
use crate::message::Fault;

const HOUR_MS: i64 = 3_600_000;

/// A row's bytes end at `end` of the arena and begin where the previous row's end.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub device: u32,
    pub digest: i32,
    pub ts_ms: i64,
    pub end: usize,
}

#[derive(Debug)]
pub struct Edge {
    pub device: u32,
    pub rule: u32,
    pub at_ms: i64,
    pub matched: bool,
    pub held_since: Option<i64>,
    pub last_fired: Option<i64>,
    pub turned: bool,
}

#[derive(Debug)]
pub struct Watched {
    pub device: u32,
    pub ts_ms: i64,
    pub metric: Arc<str>,
    pub value: Option<f64>,
    pub text: Option<Box<str>>,
    pub unit: Option<Arc<str>>,
}

#[derive(Debug)]
pub struct MetricReport {
    pub device: u32,
    pub metric: u32,
    pub name: Arc<str>,
    pub unit: Option<Arc<str>>,
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub arena: Vec<u8>,
    pub rows: Vec<Row>,
    pub new_names: Vec<(u32, Arc<str>)>,
    pub new_metrics: Vec<MetricReport>,
    pub edges: Vec<Edge>,
    /// (device, rule, at)
    pub fired: Vec<(u32, u32, i64)>,
    /// (device, rule, at, winner)
    pub suppressed: Vec<(u32, u32, i64, Option<u32>)>,
    pub watched: Vec<Watched>,
    pub faults: BTreeMap<(u32, Fault), u64>,
    /// (device, newest arrival)
    pub seen: Vec<(u32, i64)>,
    pub messages: u64,
    pub readings: u64,
}

impl Outcome {
    /// The device reports this metric, or this unit, for the first time.
    pub fn report(&mut self, device: u32, slot: &Slot) {
        let Slot { metric, name, unit } = slot.clone();
        self.new_metrics.push(MetricReport {
            device,
            metric,
            name,
            unit,
        });
    }

    pub fn fault(&mut self, device: u32, fault: Fault) {
        *self.faults.entry((device, fault)).or_default() += 1;
    }

    /// (device, hour since 1970) of every row, each once, sorted.
    pub fn hours(&self) -> Vec<(u32, i64)> {
        let rows = self.rows.iter();
        let mut hours: Vec<(u32, i64)> = rows
            .map(|row| (row.device, row.ts_ms.div_euclid(HOUR_MS)))
            .collect();
        hours.sort_unstable();
        hours.dedup();
        hours
    }

    /// Every row with its bytes.
    pub fn packed_rows(&self) -> impl Iterator<Item = (&Row, &[u8])> {
        let mut begin = 0;
        self.rows.iter().map(move |row| {
            let bytes = &self.arena[begin..row.end];
            begin = row.end;
            (row, bytes)
        })
    }
}
