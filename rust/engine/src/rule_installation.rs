//! Installs a device's rules, reads them back with their present state, and recompiles them when the device reports a new metric.

use crate::compiled_rules::{BoundCondition, CompiledRules, Condition, ConditionTest, EngineRule, NEVER, NO_DEADLINE, compile};
use crate::device_record::WORD_BITS;
use crate::device_table::{DeviceMetricSlots, DeviceTable};

impl DeviceTable {
    /// Moves a device to metrics, given by their ids, that begin with its present ones; returns its new place.
    pub fn extend_metrics(&mut self, place: u32, ids: &[u32]) -> u32 {
        let (header, words) = self.view(place);
        let was_timed: Vec<_> = (0..header.rules()).map(|rule| header.rule(words, rule).is_timed()).collect();
        let specs = current_specs(self.metrics_of(place));
        let header = self.record(place).header;
        let newest = (header.newest_ms, header.received_ms);
        let mut deadlines = Vec::new();
        if let Some(rare) = header.rare.as_mut() {
            if !rare.times.is_empty() {
                rare.times.resize(ids.len(), newest);
            }
            let timed_rules = rare.timed_rules.iter();
            deadlines = timed_rules.map(|rule| (rule.deadline_ms, rule.evaluated_ms)).collect();
        }
        let place = self.install(place, ids, &specs);
        self.restore_deadlines(place, &was_timed, &deadlines);
        place
    }

    /// A rule that waited for a metric may be plain now; a rule with a deadline is timed before and after.
    /// `deadlines`: with the time of the last evaluation.
    fn restore_deadlines(&mut self, place: u32, was_timed: &[bool], deadlines: &[(i64, i64)]) {
        let (header, words) = self.view(place);
        let is_timed: Vec<_> = (0..header.rules()).map(|rule| header.rule(words, rule).is_timed()).collect();
        let mut deadlines = deadlines.iter();
        let Some(rare) = self.record(place).header.rare.as_mut() else {
            return;
        };
        let mut timed_rules = rare.timed_rules.iter_mut();
        for (is_timed, was_timed) in is_timed.iter().zip(was_timed) {
            let deadline = if *was_timed { deadlines.next() } else { None };
            if *is_timed && let Some(timed_rule) = timed_rules.next() {
                (timed_rule.deadline_ms, timed_rule.evaluated_ms) = deadline.copied().unwrap_or((NO_DEADLINE, NEVER));
            }
        }
    }

    /// Replaces the rules; `specs` are in firing order. Returns the device's new place.
    pub fn put_rules(&mut self, place: u32, specs: &[EngineRule]) -> u32 {
        let ids: Vec<u32> = self.metrics_of(place).ids().collect();
        self.install(place, &ids, specs)
    }

    /// Gives the device these metrics, by their ids, with the values that their slots have, and rules. Returns its new place.
    pub fn install(&mut self, place: u32, ids: &[u32], specs: &[EngineRule]) -> u32 {
        let table = &self.metrics;
        let compiled = compile(specs, &|name| ids.iter().position(|id| *table.get(*id).name == *name));
        let names = || ids.iter().map(|id| &*table.get(*id).name);
        let reports_u = names().any(|name| name == "u");
        let reports_envelope = names().any(|name| ["ts", "m", "u"].contains(&name));
        let mut words = Vec::new();
        let record = self.record(place);
        let old_values = &record.words[record.header.values_offset()..record.header.thresholds_offset()];
        let header = record.header;
        put_record(&mut words, ids, old_values, &compiled, specs);
        header.slot_count = ids.len() as u16;
        header.condition_count = compiled.condition_codes.len() as u16;
        header.rule_count = specs.len() as u16;
        let fits = header.conditions() <= WORD_BITS && specs.len() <= WORD_BITS;
        header.is_all_plain = fits && compiled.timed_rules.is_empty();
        (header.reports_u, header.reports_envelope) = (reports_u, reports_envelope);
        header.matched = 0;
        if header.rare.is_some() || !compiled.timed_rules.is_empty() {
            header.rare_mut().timed_rules = compiled.timed_rules;
        }
        let place = self.replace_record(place, &words);
        let mut record = self.record(place);
        for (index, spec) in specs.iter().enumerate() {
            record.set_matched(index, spec.matched);
        }
        place
    }
}

/// The words of a record as `device_record.rs` shows it, with no rule beyond the first 64 matched.
fn put_record(words: &mut Vec<u64>, ids: &[u32], values: &[u64], compiled: &CompiledRules, specs: &[EngineRule]) {
    let halves = ids.iter().flat_map(|id| [*id as u16, (*id >> 16) as u16]);
    let halves: Vec<u16> = halves.chain(compiled.condition_codes.iter().copied()).collect();
    let word = |four: &[u16]| four.iter().rev().fold(0, |word, part| word << 16 | u64::from(*part));
    words.reserve(halves.len() / 4 + 2 + ids.len() + compiled.thresholds.len() + specs.len() * 2);
    words.extend(halves.chunks(4).map(word));
    let values_end = words.len() + ids.len();
    words.extend_from_slice(values);
    words.resize(values_end, f64::NAN.to_bits());
    words.extend(compiled.thresholds.iter().map(|threshold| threshold.to_bits()));
    let rules = compiled.rules.iter().zip(specs);
    words.extend(rules.map(|(rule, spec)| u64::from(rule.bits()) << 32 | u64::from(spec.rule)));
    words.extend(specs.iter().map(|spec| spec.last_fired.cast_unsigned()));
    words.resize(words.len() + specs.len().saturating_sub(WORD_BITS).div_ceil(WORD_BITS), 0);
}

/// The rules in firing order, with their present state.
pub fn current_specs(device: DeviceMetricSlots<'_>) -> Vec<EngineRule> {
    let (header, words) = (device.header, device.words);
    let mut timed_rules = header.rare.iter().flat_map(|rare| &rare.timed_rules);
    let mut plain_conditions = 0..header.conditions();
    let mut specs = Vec::with_capacity(header.rules());
    for index in 0..header.rules() {
        let rule = header.rule(words, index);
        let timed = if rule.is_timed() { timed_rules.next() } else { None };
        let conditions = match timed {
            Some(timed) => unbound(&timed.conditions),
            None => plain_conditions
                .by_ref()
                .take(rule.condition_count())
                .map(|index| condition(device, index))
                .collect(),
        };
        specs.push(EngineRule {
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
            since: timed.map_or(NEVER, |timed| timed.since),
        });
    }
    specs
}

/// A plain one.
fn condition(device: DeviceMetricSlots<'_>, index: usize) -> Condition {
    let (header, words) = (device.header, device.words);
    let code = header.condition_code(words, index);
    let threshold = f64::from_bits(words[header.thresholds_offset() + index]);
    Condition {
        metric: device.metric(usize::from(code >> 3)).name.clone(),
        test: ConditionTest::Number((code & 7) as u8, threshold),
    }
}

fn unbound(conditions: &[BoundCondition]) -> Vec<Condition> {
    let conditions = conditions.iter();
    conditions.map(|bound| bound.condition.clone()).collect()
}
