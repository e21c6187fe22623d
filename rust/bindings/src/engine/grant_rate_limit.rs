//! Binding of the rate limit of a grant.

use latchboard_engine::grant_rate_limit::check_rate_limit;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// `(allowed, remaining, next free ms)` of one more use of a grant at `now_ms`; `uses` are the times of earlier ones.
#[pyfunction]
pub fn allowance(uses: Vec<i64>, limit: usize, now_ms: i64) -> PyResult<(bool, usize, i64)> {
    if limit == 0 {
        return Err(PyValueError::new_err("a limit is at least 1"));
    }
    let decision = check_rate_limit(&uses, limit, now_ms);
    Ok((decision.is_allowed, decision.remaining, decision.next_free_ms))
}
