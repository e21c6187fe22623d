//! A device's metrics and rules without their numbers: one layout for all devices whose rules differ in thresholds only.
//!
//! It says where the words of a device's record lie; `device.rs` shows the whole record.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::metric_layout::MetricLayout;
use crate::rules::{CompactRule, EQUAL, GREATER, LESS};

pub const WORD_BITS: usize = 64;

#[derive(Debug)]
pub struct RuleLayout {
    pub metrics: Arc<MetricLayout>,
    /// Of each plain condition: `slot * 8 + mask`.
    pub condition_codes: Box<[u16]>,
    pub rules: Box<[CompactRule]>,
    /// No rule is timed, and a word has a bit for each condition and each rule.
    pub is_all_plain: bool,
    pub masks: ComparisonMasks,
}

/// For each outcome of a comparison the conditions that it satisfies, one bit per condition.
#[derive(Debug, Default)]
pub struct ComparisonMasks {
    pub less: u64,
    pub greater: u64,
    pub equal: u64,
}

impl ComparisonMasks {
    fn new(condition_codes: &[u16]) -> Self {
        let mut masks = Self::default();
        for (index, code) in condition_codes.iter().take(WORD_BITS).enumerate() {
            let bit = |outcome: u8| u64::from(code & u16::from(outcome) != 0) << index;
            masks.less |= bit(LESS);
            masks.greater |= bit(GREATER);
            masks.equal |= bit(EQUAL);
        }
        masks
    }
}

impl RuleLayout {
    fn new(metrics: Arc<MetricLayout>, condition_codes: &[u16], rules: &[CompactRule]) -> Self {
        let fits = condition_codes.len() < WORD_BITS && rules.len() <= WORD_BITS;
        Self {
            metrics,
            is_all_plain: fits && !rules.iter().any(|rule| rule.is_timed()),
            masks: ComparisonMasks::new(condition_codes),
            condition_codes: condition_codes.into(),
            rules: rules.into(),
        }
    }

    #[inline]
    pub fn slot_count(&self) -> usize {
        self.metrics.len()
    }

    /// The first word of the times when each rule last fired.
    #[inline]
    pub fn last_fired_offset(&self) -> usize {
        self.slot_count() + self.condition_codes.len()
    }

    /// The first word of the rules' numbers, two per word.
    pub fn rule_numbers_offset(&self) -> usize {
        self.last_fired_offset() + self.rules.len()
    }

    /// The first word of the states of the rules beyond the first 64, one bit per rule.
    pub fn matched_offset(&self) -> usize {
        self.rule_numbers_offset() + self.rules.len().div_ceil(2)
    }

    pub fn word_count(&self) -> usize {
        self.matched_offset() + self.rules.len().saturating_sub(WORD_BITS).div_ceil(WORD_BITS)
    }
}

/// All layouts in use.
#[derive(Default)]
pub struct RuleLayouts {
    layouts: HashMap<RuleLayoutKey, Arc<RuleLayout>, RandomState>,
    /// At this size, layouts that no device uses are removed.
    sweep_at: usize,
}

/// Metric layouts are shared, so their address identifies them; a rule layout keeps its own alive.
type RuleLayoutKey = (usize, Box<[u16]>, Box<[CompactRule]>);

impl RuleLayouts {
    pub fn get_or_create(
        &mut self,
        metrics: Arc<MetricLayout>,
        condition_codes: &[u16],
        rules: &[CompactRule],
    ) -> Arc<RuleLayout> {
        let address = Arc::as_ptr(&metrics).addr();
        let key: RuleLayoutKey = (address, condition_codes.into(), rules.into());
        if let Some(layout) = self.layouts.get(&key) {
            return layout.clone();
        }
        if self.layouts.len() >= self.sweep_at {
            self.layouts.retain(|_, layout| Arc::strong_count(layout) > 1);
            self.sweep_at = self.layouts.len() * 2 + 64;
        }
        let layout = Arc::new(RuleLayout::new(metrics, condition_codes, rules));
        self.layouts.insert(key, layout.clone());
        layout
    }

    /// For a device without rules.
    pub fn without_rules(&mut self, metrics: Arc<MetricLayout>) -> Arc<RuleLayout> {
        self.get_or_create(metrics, &[], &[])
    }
}
