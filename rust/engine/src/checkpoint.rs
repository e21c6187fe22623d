//! A device's latest values out of the engine and into it: checkpoints, stored rows after a checkpoint, and queries.

use std::sync::Arc;

use crate::compiled_rules::current_specs;
use crate::device::{DeviceHeader, RareState};
use crate::engine::Engine;
use crate::metric_layout::{MetricLayout, MetricSlot};
use crate::packing::{self, DecodeError, LatestValue};
use crate::payload_parser::{MAX_AHEAD_MS, MessageTime, MetricValue};
use crate::rules::NEVER;

/// (device, time of its newest message, checkpoint)
pub type Checkpoint = (u32, i64, Vec<u8>);

/// Metrics of a device that a checkpoint may hold: many more than a device may report, far fewer than slots can be numbered.
const MAX_RESTORED: usize = 4096;

impl Engine {
    /// Replaces the device's values by those of a checkpoint, of which none arrived after `now_ms`. Fails if it is not readable or
    /// has a metric without a name.
    pub fn restore(&mut self, device: u32, checkpoint: &[u8], now_ms: i64) -> Result<(), DecodeError> {
        let (newest_ms, metrics) = packing::read_checkpoint(checkpoint)?;
        let layout = self.checkpoint_layout(&metrics)?;
        let layout = self.devices.rule_layouts.without_rules(layout);
        let handle = self.devices.handle(device);
        let (header, words) = self.devices.view(handle);
        let specs = current_specs(header, words);
        let values = vec![f64::NAN.to_bits(); layout.slot_count()];
        self.devices.replace_record(handle, layout, &values);
        let mut record = self.devices.record(handle);
        let header = &mut *record.header;
        header.value_count = 0;
        let last_arrival = metrics.iter().map(|entry| entry.received_ms.min(now_ms)).max();
        header.set_newest(MessageTime::arrival(newest_ms.min(now_ms)), last_arrival.unwrap_or(newest_ms));
        if let Some(rare) = header.rare.as_mut() {
            let queued_ms = rare.queued_ms;
            **rare = RareState {
                queued_ms,
                ..RareState::default()
            };
        }
        record.store_checkpoint(&metrics, now_ms);
        self.devices.put_rules(handle, &specs);
        self.reset_deadlines(handle);
        Ok(())
    }

    /// Of a checkpoint's metrics, in their order.
    fn checkpoint_layout(&mut self, metrics: &[LatestValue<'_>]) -> Result<Arc<MetricLayout>, DecodeError> {
        if metrics.len() > MAX_RESTORED {
            return Err(DecodeError("a checkpoint names more metrics than a device can have"));
        }
        let slot = |entry: &LatestValue<'_>| {
            Ok(MetricSlot {
                metric: entry.metric,
                name: self.metric_name(entry.metric)?,
                unit: entry.unit.map(Arc::from),
            })
        };
        let slots = metrics.iter().map(slot).collect::<Result<_, _>>()?;
        Ok(self.devices.metric_layouts.get_or_create(slots))
    }

    /// Takes over the values of a stored row without evaluating rules; ignores a row older than the device's newest. Ignores
    /// also one from so far after `now_ms` that the service's clock was ahead when it was stored, if the device has other values.
    pub fn replay(&mut self, device: u32, ts_ms: i64, packed: &[u8], now_ms: i64) -> Result<(), DecodeError> {
        let mut readings = Vec::new();
        for reading in packing::decode_row(packed)?.1 {
            let (metric, value) = reading?;
            readings.push((self.metric_name(metric)?, metric, value));
        }
        let handle = self.devices.handle(device);
        let header = &self.devices.headers[handle as usize];
        let behind_ms = match header.newest_ms {
            NEVER => 0,
            newest_ms => {
                let latest_ms = now_ms.saturating_add(MAX_AHEAD_MS);
                if ts_ms < newest_ms || (newest_ms <= latest_ms && latest_ms < ts_ms) {
                    return Ok(());
                }
                header.received_ms.saturating_sub(newest_ms)
            }
        };
        let received_ms = ts_ms.saturating_add(behind_ms).min(now_ms);
        let slots = extended_slots(&header.rule_layout.metrics.slots, &readings);
        if slots.len() > MAX_RESTORED {
            return Err(DecodeError("more metrics than a device can have"));
        }
        if slots.len() != header.rule_layout.slot_count() {
            self.devices.extend_metrics(handle, slots);
        }
        let mut record = self.devices.record(handle);
        let metrics = record.header.rule_layout.metrics.clone();
        let mut reported = Vec::with_capacity(readings.len());
        for (name, _, value) in &readings {
            if let Some(slot) = metrics.find_slot(name) {
                record.store(slot, value);
                reported.push(slot);
            }
        }
        reported.sort_unstable();
        reported.dedup();
        record.store_times(reported.into_iter(), MessageTime::arrival(ts_ms), received_ms);
        self.mark_changed(handle);
        self.reset_deadlines(handle);
        Ok(())
    }

    /// Of at most `limit` devices that differ from their last checkpoint.
    pub fn checkpoint(&mut self, limit: usize) -> Vec<Checkpoint> {
        let count = limit.min(self.changed.len());
        let handles: Vec<_> = self.changed.drain(..count).collect();
        self.checkpoints_of(handles)
    }

    /// Of devices that have been taken out of `changed`.
    pub(crate) fn checkpoints_of(&mut self, handles: Vec<u32>) -> Vec<Checkpoint> {
        let mut checkpoints = Vec::with_capacity(handles.len());
        for handle in handles {
            self.devices.headers[handle as usize].changed = false;
            let (header, words) = self.devices.view(handle);
            checkpoints.push((header.number, header.newest_ms, packed(header, words)));
        }
        checkpoints
    }

    /// (name, latest value) of each metric that has a value.
    pub fn latest(&self, device: u32) -> Vec<(&str, LatestValue<'_>)> {
        let Some(handle) = self.devices.handles.get(device) else {
            return Vec::new();
        };
        let (header, words) = self.devices.view(handle);
        latest_values(header, words).collect()
    }

    /// How far the device's clock is ahead of the service's, by its newest message; None if that had no usable `ts`.
    pub fn clock_offset_ms(&self, device: u32) -> Option<i64> {
        let header = &self.devices.headers[self.devices.handles.get(device)? as usize];
        header
            .time_by_device
            .then(|| header.newest_ms.saturating_sub(header.received_ms))
    }

    fn metric_name(&self, metric: u32) -> Result<Arc<str>, DecodeError> {
        self.names
            .name(metric)
            .cloned()
            .ok_or(DecodeError("a metric number has no name; load the names first"))
    }
}

/// The slots, and one for each metric of `readings` (name, metric, value) that they lack.
fn extended_slots(slots: &[MetricSlot], readings: &[(Arc<str>, u32, MetricValue<'_>)]) -> Vec<MetricSlot> {
    let mut slots = slots.to_vec();
    for (name, metric, _) in readings {
        if !slots.iter().any(|slot| slot.name == *name) {
            slots.push(MetricSlot {
                metric: *metric,
                name: name.clone(),
                unit: None,
            });
        }
    }
    slots
}

/// (name, latest value) of the slots that have a value.
fn latest_values<'a>(header: &'a DeviceHeader, words: &'a [u64]) -> impl Iterator<Item = (&'a str, LatestValue<'a>)> {
    let slots = header.rule_layout.metrics.slots.iter().enumerate();
    slots.filter_map(|(index, slot)| {
        let (ts_ms, received_ms) = header.times(index);
        let latest = LatestValue {
            metric: slot.metric,
            value: header.value(words, index)?,
            ts_ms,
            received_ms,
            unit: slot.unit.as_deref(),
        };
        Some((&*slot.name, latest))
    })
}

fn packed(header: &DeviceHeader, words: &[u64]) -> Vec<u8> {
    let newest_ms = header.newest_ms;
    let mut checkpoint = Vec::new();
    packing::put_checkpoint_header(&mut checkpoint, newest_ms);
    for (_, latest) in latest_values(header, words) {
        packing::put_checkpoint_entry(&mut checkpoint, newest_ms, &latest);
    }
    checkpoint
}
