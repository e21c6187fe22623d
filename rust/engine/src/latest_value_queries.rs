//! Queries of a device's latest values.

use crate::device_table::DeviceMetricSlots;
use crate::engine::Engine;
use crate::payload_parser::MetricValue;
use crate::reading_packing::LatestValue;

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
pub(crate) fn last_reports(device: DeviceMetricSlots<'_>) -> impl Iterator<Item = (&str, LatestValue<'_>)> {
    (0..device.len()).filter_map(move |slot| last_report(device, slot))
}

fn last_report(device: DeviceMetricSlots<'_>, slot: usize) -> Option<(&str, LatestValue<'_>)> {
    let value = device.header.value(device.words, slot)?;
    Some(latest_value(device, slot, value, device.header.times(slot)))
}

/// The one that rules do not see, whose time stands for its arrival.
pub(crate) fn later_value(device: DeviceMetricSlots<'_>, slot: usize) -> Option<(&str, LatestValue<'_>)> {
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
