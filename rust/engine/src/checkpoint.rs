//! A device's latest values out of the engine and into it: checkpoints, stored rows after a checkpoint, and queries.

use crate::batch_result::{BatchResult, DeviceCheckpoint};
use crate::compiled_rules::NEVER;
use crate::device_record::{LaterValue, RareDeviceState};
use crate::device_table::DeviceMetricSlots;
use crate::engine::Engine;
use crate::payload_parser::{MAX_AHEAD_MS, MessageTime, MetricValue};
use crate::reading_packing::{self, LatestValue, UnpackError};
use crate::rule_installation::current_specs;

/// Metrics of a device that a checkpoint may hold: many more than a device may report, far fewer than slots can be numbered.
const MAX_RESTORED: usize = 4096;

impl Engine {
    /// Replaces the device's values by those of a checkpoint, of which none arrived after `now_ms`. Fails if it is not readable or
    /// has a metric without a name.
    pub fn restore(&mut self, device: u32, checkpoint: &[u8], now_ms: i64) -> Result<(), UnpackError> {
        let (newest_ms, metrics, later) = reading_packing::read_checkpoint(checkpoint)?;
        let (ids, later_slots) = self.checkpoint_metrics(&metrics, &later)?;
        let place = self.devices.place(device);
        let specs = current_specs(self.devices.metrics_of(place));
        let record = self.devices.record(place);
        let header = record.header;
        record.words[header.values_offset()..header.thresholds_offset()].fill(f64::NAN.to_bits());
        header.value_count = 0;
        let last_arrival = metrics.iter().map(|entry| entry.received_ms.min(now_ms)).max();
        header.set_newest(MessageTime::arrival(newest_ms.min(now_ms)), last_arrival.unwrap_or(newest_ms));
        header.at_checkpoint = true;
        if let Some(rare) = header.rare.as_mut() {
            let queued_ms = rare.queued_ms;
            **rare = RareDeviceState {
                queued_ms,
                ..RareDeviceState::default()
            };
        }
        let place = self.devices.install(place, &ids, &specs);
        let mut record = self.devices.record(place);
        record.store_checkpoint(&metrics, now_ms);
        for (slot, entry) in later_slots.into_iter().zip(later) {
            let LatestValue { value, ts_ms, .. } = entry;
            record.put_later(LaterValue::new(slot, value, ts_ms));
        }
        self.reset_deadlines(place);
        Ok(())
    }

    /// The ids of a checkpoint's metrics, in their order, and the slots of its later values.
    fn checkpoint_metrics(
        &mut self,
        metrics: &[LatestValue<'_>],
        later: &[LatestValue<'_>],
    ) -> Result<(Vec<u32>, Vec<usize>), UnpackError> {
        if metrics.len() + later.len() > MAX_RESTORED {
            return Err(UnpackError("a checkpoint names more metrics than a device can have"));
        }
        self.devices.sweep_metrics();
        let mut ids = Vec::with_capacity(metrics.len());
        let mut slots = Vec::with_capacity(later.len());
        for entry in metrics {
            let id = self.metric_id(entry.metric)?;
            ids.push(self.devices.metrics.in_unit(id, entry.unit));
        }
        for entry in later {
            let id = self.metric_id(entry.metric)?;
            let has_slot = |id: &u32| self.devices.metrics.get(*id).number == entry.metric;
            let known = ids.iter().position(has_slot);
            slots.push(known.unwrap_or(ids.len()));
            if known.is_none() {
                ids.push(self.devices.metrics.in_unit(id, entry.unit));
            }
        }
        Ok((ids, slots))
    }

    /// Takes over the values of a stored row without evaluating rules; of a row older than the device's newest, as of a late message.
    /// Ignores one from so far after `now_ms` that the service's clock was ahead when it was stored, if the device has other values.
    pub fn replay(&mut self, device: u32, ts_ms: i64, packed: &[u8], now_ms: i64) -> Result<(), UnpackError> {
        let mut readings = Vec::new();
        for reading in reading_packing::decode_row(packed)?.1 {
            let (metric, value) = reading?;
            readings.push((self.metric_id(metric)?, value));
        }
        let place = self.devices.place(device);
        let header = self.devices.header(place);
        let newest_ms = header.newest_ms;
        let believed_until_ms = now_ms.saturating_add(MAX_AHEAD_MS);
        if newest_ms != NEVER && newest_ms <= believed_until_ms && believed_until_ms < ts_ms {
            return Ok(());
        }
        let behind_ms = match newest_ms {
            NEVER => 0,
            _ => header.received_ms.saturating_sub(newest_ms),
        };
        let received_ms = ts_ms.saturating_add(behind_ms).min(now_ms);
        let (place, slots) = self.slots_of(place, &readings)?;
        let mut record = self.devices.record(place);
        let values = slots.iter().zip(&readings).map(|(slot, (_, value))| (*slot, value));
        if ts_ms < newest_ms {
            if record.store_late(values, ts_ms, believed_until_ms) {
                self.mark_changed(place);
            }
            return Ok(());
        }
        record.keep_later(slots.iter().copied(), ts_ms, believed_until_ms);
        for (slot, value) in values {
            record.store(slot, value);
        }
        let mut reported = slots;
        reported.sort_unstable();
        reported.dedup();
        record.store_times(reported.into_iter(), MessageTime::arrival(ts_ms), received_ms);
        self.mark_changed(place);
        self.reset_deadlines(place);
        Ok(())
    }

    /// The slots of a stored row's readings, with new ones for new metrics, and the device's place, which may be new.
    fn slots_of(&mut self, place: u32, readings: &[(u32, MetricValue<'_>)]) -> Result<(u32, Vec<usize>), UnpackError> {
        let (ids, slots) = extended_metrics(self.devices.metrics_of(place), readings);
        if ids.len() > MAX_RESTORED {
            return Err(UnpackError("more metrics than a device can have"));
        }
        let place = match ids.len() == self.devices.header(place).slots() {
            true => place,
            false => self.devices.extend_metrics(place, &ids),
        };
        Ok((place, slots))
    }

    /// Of at most `limit` devices that differ from their last checkpoint.
    pub fn checkpoint(&mut self, limit: usize) -> Vec<DeviceCheckpoint> {
        let count = limit.min(self.changed.len());
        let numbers: Vec<_> = self.changed.drain(..count).collect();
        self.checkpoints_of(numbers)
    }

    /// Of devices that have been taken out of `changed`.
    pub(crate) fn checkpoints_of(&mut self, numbers: Vec<u32>) -> Vec<DeviceCheckpoint> {
        let mut checkpoints = Vec::with_capacity(numbers.len());
        for number in numbers {
            let place = self.devices.place(number);
            self.devices.record(place).header.changed = false;
            checkpoints.push(self.checkpoint_at(place));
        }
        checkpoints
    }

    /// At the end of a batch.
    #[inline]
    pub(crate) fn checkpoint_not_replayed(&mut self, result: &mut BatchResult) {
        result.not_replayed.sort_unstable();
        result.not_replayed.dedup();
        for number in &result.not_replayed {
            let place = self.devices.place(*number);
            result.checkpoints.push(self.checkpoint_at(place));
        }
    }

    fn checkpoint_at(&mut self, place: u32) -> DeviceCheckpoint {
        self.devices.record(place).header.at_checkpoint = true;
        let device = self.devices.metrics_of(place);
        (device.header.number, device.header.newest_ms, packed(device))
    }

    /// Of the metric with this number, without a unit.
    fn metric_id(&self, number: u32) -> Result<u32, UnpackError> {
        let found = self.devices.metrics.find_number(number);
        found.ok_or(UnpackError("a metric number has no name; load the names first"))
    }
}

/// The ids of the device's metrics, with those of `readings` (id without a unit, value) that it lacks; and the slot of each reading.
fn extended_metrics(device: DeviceMetricSlots<'_>, readings: &[(u32, MetricValue<'_>)]) -> (Vec<u32>, Vec<usize>) {
    let mut ids: Vec<u32> = device.ids().collect();
    let mut slots = Vec::with_capacity(readings.len());
    for (id, _) in readings {
        let number = device.table.get(*id).number;
        let found = ids.iter().position(|id| device.table.get(*id).number == number);
        slots.push(found.unwrap_or(ids.len()));
        if found.is_none() {
            ids.push(*id);
        }
    }
    (ids, slots)
}

fn packed(device: DeviceMetricSlots<'_>) -> Vec<u8> {
    let newest_ms = device.header.newest_ms;
    let mut checkpoint = Vec::new();
    reading_packing::put_checkpoint_header(&mut checkpoint, newest_ms);
    for (_, latest) in last_reports(device) {
        reading_packing::put_checkpoint_entry(&mut checkpoint, newest_ms, &latest);
    }
    if device.header.rare.as_ref().is_some_and(|rare| !rare.later.is_empty()) {
        reading_packing::begin_later(&mut checkpoint);
    }
    for (_, later) in (0..device.len()).filter_map(|slot| later_value(device, slot)) {
        reading_packing::put_checkpoint_entry(&mut checkpoint, newest_ms, &later);
    }
    checkpoint
}

impl Engine {
    /// (name, latest value) of each metric that has a value: the one with the greatest time, also if rules do not see it.
    pub fn latest(&self, device: u32) -> Vec<(&str, LatestValue<'_>)> {
        let device = self.devices.find(device).map(|place| self.devices.metrics_of(place));
        let slots = device
            .into_iter()
            .flat_map(|device| (0..device.len()).map(move |slot| (device, slot)));
        slots
            .filter_map(|(device, slot)| later_value(device, slot).or_else(|| last_report(device, slot)))
            .collect()
    }

    /// (name, value) of each metric that rules see.
    pub fn last_reports(&self, device: u32) -> Vec<(&str, LatestValue<'_>)> {
        let place = self.devices.find(device);
        let values = place.map(|place| last_reports(self.devices.metrics_of(place)));
        values.into_iter().flatten().collect()
    }

    /// How far the device's clock is ahead of the service's, by its newest message; None if that had no usable `ts`.
    pub fn clock_offset_ms(&self, device: u32) -> Option<i64> {
        let header = self.devices.header(self.devices.find(device)?);
        header
            .time_by_device
            .then(|| header.newest_ms.saturating_sub(header.received_ms))
    }
}

/// (name, value that rules see) of the slots that have one.
fn last_reports(device: DeviceMetricSlots<'_>) -> impl Iterator<Item = (&str, LatestValue<'_>)> {
    (0..device.len()).filter_map(move |slot| last_report(device, slot))
}

fn last_report(device: DeviceMetricSlots<'_>, slot: usize) -> Option<(&str, LatestValue<'_>)> {
    let value = device.header.value(device.words, slot)?;
    Some(latest_value(device, slot, value, device.header.times(slot)))
}

/// The one that rules do not see, whose time stands for its arrival.
fn later_value(device: DeviceMetricSlots<'_>, slot: usize) -> Option<(&str, LatestValue<'_>)> {
    let later = device.header.later(slot)?;
    Some(latest_value(device, slot, later.value.clone(), (later.ts_ms, later.ts_ms)))
}

fn latest_value<'a>(
    device: DeviceMetricSlots<'a>,
    slot: usize,
    value: MetricValue<'a>,
    (ts_ms, received_ms): (i64, i64),
) -> (&'a str, LatestValue<'a>) {
    let metric = device.metric(slot);
    let latest = LatestValue {
        metric: metric.number,
        value,
        ts_ms,
        received_ms,
        unit: metric.unit.as_deref(),
    };
    (&metric.name, latest)
}
