//! What the engine is told of a rule, and the compact form it keeps.
//!
//! Most rules compare numbers and nothing else. These are *plain*: each condition is one threshold and one `op` (slot and a mask of
//! the outcomes less, equal, greater that satisfy it). A missing value is NaN, which is neither, so every comparator fails by itself.
//! All others (text, silence, waiting, cooldown, hysteresis, a metric that is not reported yet) are *special* and evaluated one by one.

use std::sync::Arc;

use crate::layout::Layout;

/// The outcomes of a comparison, each at the bit that "not above" (1) and "not below" (2) add up to, less one.
pub const LESS: u8 = 1;
pub const GREATER: u8 = 2;
pub const EQUAL: u8 = 4;
/// No time: before every instant for what has happened, after every instant for what is due.
pub const NEVER: i64 = i64::MIN;
pub const NO_DUE: i64 = i64::MAX;

#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// Satisfied by these outcomes of comparing the value with the number.
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
    pub test: Test,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub rule: u32,
    pub priority: i64,
    pub any: bool,
    pub conditions: Vec<Condition>,
    pub clear: Vec<Condition>,
    pub for_ms: i64,
    pub cooldown_ms: i64,
    pub command: u32,
    pub matched: bool,
    pub held_since: i64,
    pub last_fired: i64,
}

/// A rule without its numbers: 24 bits command, 4 bits number of plain conditions, then flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell(u32);

const COUNT_SHIFT: u32 = 24;
const COUNT_MAX: usize = 15;
const ANY: u32 = 1 << 28;
const SPECIAL: u32 = 1 << 29;
const COMMAND: u32 = (1 << 24) - 1;

impl Cell {
    fn new(spec: &Spec, plain: bool) -> Self {
        let count = if plain {
            spec.conditions.len() as u32
        } else {
            0
        };
        let any = if spec.any { ANY } else { 0 };
        let special = if plain { 0 } else { SPECIAL };
        Self(spec.command & COMMAND | count << COUNT_SHIFT | any | special)
    }

    pub fn command(self) -> u32 {
        self.0 & COMMAND
    }

    #[inline]
    pub fn count(self) -> usize {
        (self.0 >> COUNT_SHIFT & 15) as usize
    }

    #[inline]
    pub fn any(self) -> bool {
        self.0 & ANY != 0
    }

    #[inline]
    pub fn is_special(self) -> bool {
        self.0 & SPECIAL != 0
    }
}

/// A condition of a special rule; `slot` is None while the device has not reported the metric.
#[derive(Debug, Clone)]
pub struct Check {
    pub condition: Condition,
    pub slot: Option<usize>,
}

#[derive(Debug)]
pub struct Special {
    pub any: bool,
    pub for_ms: i64,
    pub cooldown_ms: i64,
    pub held_since: i64,
    pub due: i64,
    pub conditions: Vec<Check>,
    pub clear: Vec<Check>,
}

#[derive(Debug, Default)]
pub struct Compiled {
    pub cells: Vec<Cell>,
    pub ops: Vec<u16>,
    pub thresholds: Vec<f64>,
    /// In the order of their cells.
    pub specials: Vec<Special>,
}

/// `specs` in firing order. A plain condition's op is `slot * 8 + mask`.
pub fn compile(specs: &[Spec], layout: &Layout) -> Compiled {
    let mut compiled = Compiled::default();
    for spec in specs {
        let ops: Option<Vec<_>> = spec
            .conditions
            .iter()
            .map(|condition| op(condition, layout))
            .collect();
        match ops {
            Some(ops) if is_plain(spec) => {
                compiled.cells.push(Cell::new(spec, true));
                for (op, threshold) in ops {
                    compiled.ops.push(op);
                    compiled.thresholds.push(threshold);
                }
            }
            _ => {
                compiled.cells.push(Cell::new(spec, false));
                compiled.specials.push(special(spec, layout));
            }
        }
    }
    compiled
}

fn is_plain(spec: &Spec) -> bool {
    spec.for_ms == 0
        && spec.cooldown_ms == 0
        && spec.clear.is_empty()
        && spec.held_since == NEVER
        && spec.conditions.len() <= COUNT_MAX
}

fn op(condition: &Condition, layout: &Layout) -> Option<(u16, f64)> {
    let Test::Number(mask, threshold) = condition.test else {
        return None;
    };
    let slot = u16::try_from(layout.find(&condition.metric)?).ok()?;
    Some((slot << 3 | u16::from(mask), threshold))
}

fn special(spec: &Spec, layout: &Layout) -> Special {
    let checks = |conditions: &[Condition]| {
        let check = |condition: &Condition| Check {
            slot: layout.find(&condition.metric),
            condition: condition.clone(),
        };
        conditions.iter().map(check).collect()
    };
    Special {
        any: spec.any,
        for_ms: spec.for_ms,
        cooldown_ms: spec.cooldown_ms,
        held_since: spec.held_since,
        due: NO_DUE,
        conditions: checks(&spec.conditions),
        clear: checks(&spec.clear),
    }
}
