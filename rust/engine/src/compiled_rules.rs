//! Installs a device's rules, reads them back with their present state, and recompiles them when the device reports a new metric.

use std::sync::Arc;

use crate::device::DeviceHeader;
use crate::device_table::DeviceTable;
use crate::metric_layout::{MetricLayout, MetricSlot};
use crate::rule_layout::RuleLayout;
use crate::rules::{BoundCondition, Condition, ConditionTest, NEVER, NO_DEADLINE, RuleSpec, compile};

impl DeviceTable {
    /// Moves a device to metrics that begin with its present ones.
    pub fn extend_metrics(&mut self, handle: u32, slots: Vec<MetricSlot>) {
        let metrics = self.metric_layouts.get_or_create(slots);
        let (header, words) = self.view(handle);
        let specs = current_specs(header, words);
        let old_rules = header.rule_layout.rules.iter();
        let was_timed: Vec<_> = old_rules.map(|rule| rule.is_timed()).collect();
        let header = &mut self.headers[handle as usize];
        let newest = (header.newest_ms, header.received_ms);
        let mut deadlines = Vec::new();
        if let Some(rare) = header.rare.as_mut() {
            if !rare.times.is_empty() {
                rare.times.resize(metrics.len(), newest);
            }
            let timed_rules = rare.timed_rules.iter();
            deadlines = timed_rules.map(|rule| rule.deadline_ms).collect();
        }
        self.install(handle, metrics, &specs);
        self.restore_deadlines(handle, &was_timed, &deadlines);
    }

    /// A rule that waited for a metric may be plain now; a rule with a deadline is timed before and after.
    fn restore_deadlines(&mut self, handle: u32, was_timed: &[bool], deadlines: &[i64]) {
        let header = &mut self.headers[handle as usize];
        let layout = header.rule_layout.clone();
        let mut deadlines = deadlines.iter();
        let Some(rare) = header.rare.as_mut() else {
            return;
        };
        let mut timed_rules = rare.timed_rules.iter_mut();
        for (rule, was_timed) in layout.rules.iter().zip(was_timed) {
            let deadline = if *was_timed { deadlines.next() } else { None };
            if rule.is_timed()
                && let Some(timed_rule) = timed_rules.next()
            {
                timed_rule.deadline_ms = deadline.copied().unwrap_or(NO_DEADLINE);
            }
        }
    }

    /// Replaces the rules; `specs` are in firing order.
    pub fn put_rules(&mut self, handle: u32, specs: &[RuleSpec]) {
        let metrics = self.headers[handle as usize].rule_layout.metrics.clone();
        self.install(handle, metrics, specs);
    }

    fn install(&mut self, handle: u32, metrics: Arc<MetricLayout>, specs: &[RuleSpec]) {
        let compiled = compile(specs, &metrics);
        let (codes, rules) = (&compiled.condition_codes, &compiled.rules);
        let layout = self.rule_layouts.get_or_create(metrics, codes, rules);
        let (header, words) = self.view(handle);
        let old_slots = header.rule_layout.slot_count().min(words.len());
        let words = record_words(&words[..old_slots], &compiled.thresholds, specs, &layout);
        self.replace_record(handle, layout, &words);
        let mut record = self.record(handle);
        record.header.matched = 0;
        for (index, spec) in specs.iter().enumerate() {
            record.set_matched(index, spec.matched);
        }
        if record.header.rare.is_some() || !compiled.timed_rules.is_empty() {
            record.header.rare_mut().timed_rules = compiled.timed_rules;
        }
    }
}

/// The words of a record in the layout's order, with no rule beyond the first 64 matched.
fn record_words(values: &[u64], thresholds: &[f64], specs: &[RuleSpec], layout: &RuleLayout) -> Vec<u64> {
    let mut words = Vec::with_capacity(layout.word_count());
    words.extend_from_slice(values);
    words.resize(layout.slot_count(), f64::NAN.to_bits());
    words.extend(thresholds.iter().map(|threshold| threshold.to_bits()));
    words.extend(specs.iter().map(|spec| spec.last_fired.cast_unsigned()));
    for pair in specs.chunks(2) {
        let second = pair.get(1).map_or(0, |spec| u64::from(spec.rule));
        words.push(u64::from(pair[0].rule) | second << 32);
    }
    words.resize(layout.word_count(), 0);
    words
}

/// The rules in firing order, with their present state.
pub fn current_specs(header: &DeviceHeader, words: &[u64]) -> Vec<RuleSpec> {
    let layout = &header.rule_layout;
    let mut timed_rules = header.rare.iter().flat_map(|rare| &rare.timed_rules);
    let thresholds = words.get(layout.slot_count()..layout.last_fired_offset()).unwrap_or_default();
    let mut plain_conditions = layout.condition_codes.iter().zip(thresholds);
    let mut specs = Vec::with_capacity(layout.rules.len());
    for (index, rule) in layout.rules.iter().enumerate() {
        let timed = if rule.is_timed() { timed_rules.next() } else { None };
        let conditions = match timed {
            Some(timed) => unbound(&timed.conditions),
            None => plain_conditions
                .by_ref()
                .take(rule.condition_count())
                .map(|(code, value)| condition(layout, *code, f64::from_bits(*value)))
                .collect(),
        };
        specs.push(RuleSpec {
            rule: header.rule_number(words, index),
            priority: 0,
            any: timed.map_or(rule.any(), |timed| timed.any),
            conditions,
            clear: timed.map_or_else(Vec::new, |timed| unbound(&timed.clear)),
            for_ms: timed.map_or(0, |timed| timed.for_ms),
            cooldown_ms: timed.map_or(0, |timed| timed.cooldown_ms),
            command: rule.command(),
            matched: header.matched(words, index),
            held_since: timed.map_or(NEVER, |timed| timed.held_since),
            last_fired: header.last_fired(words, index),
        });
    }
    specs
}

fn condition(layout: &RuleLayout, code: u16, threshold: f64) -> Condition {
    let metric = layout.metrics.slots[usize::from(code >> 3)].name.clone();
    Condition {
        metric,
        test: ConditionTest::Number((code & 7) as u8, threshold),
    }
}

fn unbound(conditions: &[BoundCondition]) -> Vec<Condition> {
    let conditions = conditions.iter();
    conditions.map(|bound| bound.condition.clone()).collect()
}
