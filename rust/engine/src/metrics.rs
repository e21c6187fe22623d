//! All metrics of the fleet: each name with its number, and with each unit that devices report it in.
//!
//! A device's record holds ids, which are positions in this table. So names, numbers and units are kept once, in the processor's
//! cache, whatever each device reports and in whatever order. The database assigns the numbers; the engine reports names that have
//! none, and takes no message that contains one.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::reading_packing::EncodedMetricKey;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Metric {
    pub number: u32,
    pub name: Arc<str>,
    pub unit: Option<Arc<str>>,
}

#[derive(Default)]
pub struct MetricInterner {
    /// By id.
    metrics: Vec<Metric>,
    patterns: Vec<MetricJsonKeyPattern>,
    /// Of metrics without a unit, which stay for ever.
    by_name: HashMap<Arc<str>, u32, RandomState>,
    by_number: HashMap<u32, u32, RandomState>,
    /// Of metrics with a unit, which stay as long as a device reports them: (number, unit).
    with_unit: HashMap<(u32, Arc<str>), u32, RandomState>,
    free: Vec<u32>,
    /// At this many metrics with a unit, those that no device reports are removed.
    sweep_at: usize,
}

impl MetricInterner {
    /// Names the metric with this number.
    pub fn name(&mut self, number: u32, name: &str) {
        if self.by_name.get(name).is_some_and(|id| self.get(*id).number == number) {
            return;
        }
        let name: Arc<str> = Arc::from(name);
        let id = self.add(Metric {
            number,
            name: name.clone(),
            unit: None,
        });
        self.by_name.insert(name, id);
        self.by_number.insert(number, id);
    }

    fn add(&mut self, metric: Metric) -> u32 {
        let pattern = MetricJsonKeyPattern::new(&metric);
        if let Some(id) = self.free.pop() {
            self.metrics[id as usize] = metric;
            self.patterns[id as usize] = pattern;
            return id;
        }
        self.metrics.push(metric);
        self.patterns.push(pattern);
        (self.metrics.len() - 1) as u32
    }

    pub fn get(&self, id: u32) -> &Metric {
        &self.metrics[id as usize]
    }

    #[inline(always)]
    pub fn pattern(&self, id: u32) -> &MetricJsonKeyPattern {
        &self.patterns[id as usize]
    }

    /// The id of the metric without a unit.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The id of the metric with this number, without a unit.
    pub fn find_number(&self, number: u32) -> Option<u32> {
        self.by_number.get(&number).copied()
    }

    /// The id of the same metric in this unit.
    pub fn in_unit(&mut self, id: u32, unit: Option<&str>) -> u32 {
        let Metric { number, name, .. } = self.get(id).clone();
        let Some(unit) = unit else {
            return self.by_name[&name];
        };
        let unit: Arc<str> = Arc::from(unit);
        let key = (number, unit.clone());
        if let Some(id) = self.with_unit.get(&key) {
            return *id;
        }
        let id = self.add(Metric {
            number,
            name,
            unit: Some(unit),
        });
        self.with_unit.insert(key, id);
        id
    }

    /// So many units have been reported that `sweep` may find some that no device reports any more.
    pub fn is_crowded(&self) -> bool {
        self.with_unit.len() > self.sweep_at
    }

    /// Removes the metrics with a unit that are not in `used`, which has a flag for each id.
    pub fn sweep(&mut self, used: &[bool]) {
        let free = &mut self.free;
        self.with_unit.retain(|_, id| {
            if !used[*id as usize] {
                free.push(*id);
            }
            used[*id as usize]
        });
        self.sweep_at = self.with_unit.len() * 2 + 1024;
    }

    pub fn len(&self) -> usize {
        self.metrics.len()
    }
}

/// How a metric's key is found in a JSON payload and written to a row: `"name":` as a compact JSON writer puts it. One cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct MetricJsonKeyPattern {
    text: Box<[u8]>,
    /// The first 16 bytes, and a mask of those that belong to the key: one comparison instead of a call of memcmp.
    prefix: u128,
    mask: u128,
    pub encoded: EncodedMetricKey,
}

const _: () = assert!(size_of::<MetricJsonKeyPattern>() == 64);

const PREFIX: usize = 16;

impl MetricJsonKeyPattern {
    fn new(metric: &Metric) -> Self {
        let text = format!("\"{}\":", metric.name).into_bytes();
        let mut prefix = [0; PREFIX];
        let mut mask = [0; PREFIX];
        for (index, byte) in text.iter().take(PREFIX).enumerate() {
            prefix[index] = *byte;
            mask[index] = 0xff;
        }
        Self {
            prefix: u128::from_le_bytes(prefix),
            mask: u128::from_le_bytes(mask),
            text: text.into(),
            encoded: EncodedMetricKey::new(metric.number),
        }
    }

    /// Where the value begins, if this key and its colon begin at `at`.
    #[inline(always)]
    pub fn matches(&self, payload: &[u8], at: usize) -> Option<usize> {
        let rest = payload.get(at..)?;
        let prefix = match rest.first_chunk() {
            Some(prefix) => u128::from_le_bytes(*prefix),
            None => zero_padded(rest),
        };
        let found = (prefix ^ self.prefix) & self.mask == 0 && (self.text.len() <= PREFIX || rest.starts_with(&self.text));
        found.then_some(at + self.text.len())
    }
}

/// The end of a payload that is shorter than a prefix, padded with zeros, which no key contains.
#[inline]
fn zero_padded(rest: &[u8]) -> u128 {
    let mut prefix = [0; PREFIX];
    prefix[..rest.len()].copy_from_slice(rest);
    u128::from_le_bytes(prefix)
}
