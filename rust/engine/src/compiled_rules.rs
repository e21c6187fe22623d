//! Rules as the engine receives them, and the compact form it keeps.
//!
//! Most rules only compare numbers. These are *plain*: each condition is a threshold and a `u16` code (the metric's slot and a mask of
//! the outcomes less, equal, greater that satisfy it). A missing value is NaN, which has no outcome and satisfies nothing. All other
//! rules are *timed* and evaluated one by one: those with a duration, a cooldown, clear conditions or a silence, and also those that
//! compare text or a metric that the device has not reported yet.

use std::sync::Arc;

/// Outcomes of a comparison. The bit's index is "value <= threshold" (1) plus "value >= threshold" (2), less one.
pub const LESS: u8 = 1;
pub const GREATER: u8 = 2;
pub const EQUAL: u8 = 4;
/// No time of a past event: before every instant.
pub const NEVER: i64 = i64::MIN;
/// No deadline: after every instant.
pub const NO_DEADLINE: i64 = i64::MAX;

#[derive(Debug, Clone, PartialEq)]
pub enum ConditionTest {
    /// The outcomes that satisfy it, and the threshold.
    Number(u8, f64),
    Text {
        equal: bool,
        text: Box<str>,
    },
    /// Not reported for this many milliseconds.
    Silent(i64),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub metric: Arc<str>,
    pub test: ConditionTest,
}

/// A rule's definition and its state. Times are Unix milliseconds or `NEVER`.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineRule {
    pub rule: u32,
    /// Lower fires first; equal priorities fire by rule number.
    pub priority: i64,
    /// One satisfied condition is enough.
    pub any: bool,
    pub conditions: Vec<Condition>,
    /// All of them end a match; without them it ends with its conditions.
    pub clear: Vec<Condition>,
    /// How long the conditions must hold before the rule matches.
    pub for_ms: i64,
    pub cooldown_ms: i64,
    /// From `Engine::command_number`.
    pub command: u32,
    pub matched: bool,
    /// Since when the conditions hold, while the rule waits for `for_ms`.
    pub held_since: i64,
    pub last_fired: i64,
    /// When the rule was made, switched on or changed: none of its timers is judged at an earlier time. NEVER: unknown.
    pub since: i64,
}

/// A rule without its numbers: 24 bits of command, 4 bits of plain conditions, then flags.
#[derive(Debug, Clone, Copy)]
pub struct PackedRuleHeader(u32);

const COUNT_SHIFT: u32 = 24;
const MAX_CONDITIONS: usize = 15;
const ANY: u32 = 1 << 28;
const TIMED: u32 = 1 << 29;
const COMMAND: u32 = (1 << 24) - 1;

impl PackedRuleHeader {
    fn new(spec: &EngineRule, is_plain: bool) -> Self {
        let count = if is_plain { spec.conditions.len() as u32 } else { 0 };
        let any = if spec.any { ANY } else { 0 };
        let timed = if is_plain { 0 } else { TIMED };
        Self(spec.command & COMMAND | count << COUNT_SHIFT | any | timed)
    }

    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn command(self) -> u32 {
        self.0 & COMMAND
    }

    /// Plain conditions; a timed rule has none.
    #[inline]
    pub fn condition_count(self) -> usize {
        (self.0 >> COUNT_SHIFT & 15) as usize
    }

    #[inline]
    pub fn any(self) -> bool {
        self.0 & ANY != 0
    }

    #[inline]
    pub fn is_timed(self) -> bool {
        self.0 & TIMED != 0
    }
}

/// A condition of a timed rule; `slot` is None until the device reports the metric.
#[derive(Debug, Clone)]
pub struct BoundCondition {
    pub condition: Condition,
    pub slot: Option<usize>,
}

#[derive(Debug)]
pub struct TimedRule {
    pub any: bool,
    pub for_ms: i64,
    pub cooldown_ms: i64,
    pub held_since: i64,
    /// As in `EngineRule`.
    pub since: i64,
    /// When time alone may next change the rule.
    pub deadline_ms: i64,
    /// NEVER: not since the rule or the values were put from outside.
    pub evaluated_ms: i64,
    pub conditions: Vec<BoundCondition>,
    pub clear: Vec<BoundCondition>,
}

#[derive(Debug, Default)]
pub struct CompiledRules {
    pub rules: Vec<PackedRuleHeader>,
    /// Of all plain conditions: `slot * 8 + mask`.
    pub condition_codes: Vec<u16>,
    pub thresholds: Vec<f64>,
    /// In the order of `rules`.
    pub timed_rules: Vec<TimedRule>,
}

/// `specs` in firing order; `find_slot` by a metric's name.
pub fn compile(specs: &[EngineRule], find_slot: &dyn Fn(&str) -> Option<usize>) -> CompiledRules {
    let mut compiled = CompiledRules::default();
    for spec in specs {
        let plain_conditions: Option<Vec<_>> = spec
            .conditions
            .iter()
            .map(|condition| plain_condition(condition, find_slot))
            .collect();
        match plain_conditions {
            Some(conditions) if may_be_plain(spec) => {
                compiled.rules.push(PackedRuleHeader::new(spec, true));
                for (code, threshold) in conditions {
                    compiled.condition_codes.push(code);
                    compiled.thresholds.push(threshold);
                }
            }
            _ => {
                compiled.rules.push(PackedRuleHeader::new(spec, false));
                compiled.timed_rules.push(timed_rule(spec, find_slot));
            }
        }
    }
    compiled
}

fn may_be_plain(spec: &EngineRule) -> bool {
    spec.for_ms == 0
        && spec.cooldown_ms == 0
        && spec.clear.is_empty()
        && spec.held_since == NEVER
        && spec.conditions.len() <= MAX_CONDITIONS
}

/// (code, threshold)
fn plain_condition(condition: &Condition, find_slot: &dyn Fn(&str) -> Option<usize>) -> Option<(u16, f64)> {
    let ConditionTest::Number(mask, threshold) = condition.test else {
        return None;
    };
    let slot = u16::try_from(find_slot(&condition.metric)?).ok()?;
    Some((slot << 3 | u16::from(mask), threshold))
}

fn timed_rule(spec: &EngineRule, find_slot: &dyn Fn(&str) -> Option<usize>) -> TimedRule {
    let bind = |conditions: &[Condition]| {
        let bound = |condition: &Condition| BoundCondition {
            slot: find_slot(&condition.metric),
            condition: condition.clone(),
        };
        conditions.iter().map(bound).collect()
    };
    TimedRule {
        any: spec.any,
        for_ms: spec.for_ms,
        cooldown_ms: spec.cooldown_ms,
        held_since: spec.held_since,
        since: spec.since,
        deadline_ms: NO_DEADLINE,
        evaluated_ms: NEVER,
        conditions: bind(&spec.conditions),
        clear: bind(&spec.clear),
    }
}
