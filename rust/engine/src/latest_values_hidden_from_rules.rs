//! Values that `latest` shows and rules do not see: they came late, or a message of an earlier time has driven rules since. A device
//! has such values only until a message of a later time reports the metric. Defined by `domain/telemetry/engine/reference_device_state.py`.

use std::borrow::Borrow;

use crate::device_record::EngineDeviceRecord;
use crate::device_record_layout::DeviceRecordHeader;
use crate::payload_parser::MetricValue;

/// A value of a later time than the slot's own, which rules see.
pub struct LatestValueHiddenFromRules {
    pub slot: usize,
    pub value: MetricValue<'static>,
    pub ts_ms: i64,
}

impl LatestValueHiddenFromRules {
    pub fn new(slot: usize, value: MetricValue<'_>, ts_ms: i64) -> Self {
        let value = match value {
            MetricValue::Number(number) => MetricValue::Number(number),
            MetricValue::Bool(value) => MetricValue::Bool(value),
            MetricValue::Text(text) => MetricValue::Text(text.into_owned().into()),
        };
        Self { slot, value, ts_ms }
    }
}

impl DeviceRecordHeader {
    pub(crate) fn later(&self, slot: usize) -> Option<&LatestValueHiddenFromRules> {
        self.rare.as_ref()?.later.iter().find(|later| later.slot == slot)
    }
}

impl EngineDeviceRecord<'_> {
    /// Before a message of this time, which drives rules, replaces the values of these slots. A time after `believed_until_ms` is
    /// not believed: the service's clock was ahead.
    pub fn keep_later(&mut self, slots: impl Iterator<Item = usize>, ts_ms: i64, believed_until_ms: i64) {
        for slot in slots {
            let is_kept = self.has_later_than(slot, ts_ms, believed_until_ms);
            let is_later = self.header.later(slot).is_some();
            if is_kept && !is_later {
                let own = self.header.value(self.words, slot);
                let own = own.map(|value| LatestValueHiddenFromRules::new(slot, value, self.header.times(slot).0));
                own.into_iter().for_each(|own| self.put_later(own));
            } else if is_later && !is_kept {
                self.header.rare_mut().later.retain(|later| later.slot != slot);
            }
        }
    }

    /// Stores a message that rules do not see. Returns whether one of its values is the latest of its metric now.
    #[cold]
    pub fn store_late<'a, V: Borrow<MetricValue<'a>>>(
        &mut self,
        values: impl Iterator<Item = (usize, V)>,
        ts_ms: i64,
        believed_until_ms: i64,
    ) -> bool {
        let mut has_changed = false;
        for (slot, value) in values {
            if !self.has_later_than(slot, ts_ms, believed_until_ms) {
                self.put_later(LatestValueHiddenFromRules::new(slot, value.borrow().clone(), ts_ms));
                has_changed = true;
            }
        }
        has_changed
    }

    pub(crate) fn put_later(&mut self, value: LatestValueHiddenFromRules) {
        let later = &mut self.header.rare_mut().later;
        later.retain(|other| other.slot != value.slot);
        later.push(value);
    }

    fn has_later_than(&self, slot: usize, ts_ms: i64, believed_until_ms: i64) -> bool {
        let own_ms = || self.header.has_value(self.words, slot).then(|| self.header.times(slot).0);
        let latest_ms = self.header.later(slot).map(|later| later.ts_ms).or_else(own_ms);
        latest_ms.is_some_and(|latest_ms| ts_ms < latest_ms && latest_ms <= believed_until_ms)
    }
}
