//! Rules from Python: tuples, as `adapters/engine/native_engine.py` builds them.

use latchboard_engine::compiled_rules::{Condition, ConditionTest, EQUAL, EngineRule, GREATER, LESS, NEVER};
use latchboard_engine::engine::Engine;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// (metric, comparator, number or milliseconds, text)
type ConditionTuple = (String, String, f64, Option<String>);

/// (rule, priority, any, conditions, clear conditions, for ms, cooldown ms, command, matched, held since, last fired)
pub type RuleTuple = (
    u32,
    i64,
    bool,
    Vec<ConditionTuple>,
    Vec<ConditionTuple>,
    i64,
    i64,
    String,
    bool,
    Option<i64>,
    Option<i64>,
);

pub fn rule_spec(rule: RuleTuple, engine: &mut Engine) -> PyResult<EngineRule> {
    let (rule, priority, any, conditions, clear, for_ms, cooldown_ms, command, matched, held_since, last_fired) = rule;
    Ok(EngineRule {
        rule,
        priority,
        any,
        conditions: conditions.into_iter().map(condition).collect::<PyResult<_>>()?,
        clear: clear.into_iter().map(condition).collect::<PyResult<_>>()?,
        for_ms,
        cooldown_ms,
        command: engine.command_number(&command),
        matched,
        held_since: held_since.unwrap_or(NEVER),
        last_fired: last_fired.unwrap_or(NEVER),
    })
}

fn condition((metric, comparator, number, text): ConditionTuple) -> PyResult<Condition> {
    let test = match (comparator.as_str(), text) {
        ("==", Some(text)) => ConditionTest::Text {
            equal: true,
            text: text.into(),
        },
        ("!=", Some(text)) => ConditionTest::Text {
            equal: false,
            text: text.into(),
        },
        ("silent", None) => ConditionTest::Silent(number as i64),
        (comparator, None) => ConditionTest::Number(mask(comparator)?, number),
        (comparator, Some(_)) => {
            return Err(PyValueError::new_err(format!("text cannot be compared by {comparator}")));
        }
    };
    Ok(Condition {
        metric: metric.into(),
        test,
    })
}

fn mask(comparator: &str) -> PyResult<u8> {
    Ok(match comparator {
        "<" => LESS,
        "<=" => LESS | EQUAL,
        ">" => GREATER,
        ">=" => GREATER | EQUAL,
        "==" => EQUAL,
        "!=" => LESS | GREATER,
        other => return Err(PyValueError::new_err(format!("{other} is no comparator"))),
    })
}
