//! Minimum, maximum, sum, count and last value of numbers, by stretch of time and metric. Defined by `domain/telemetry/tally.py`.

use crate::message::Value;
use crate::packing::{Unreadable, readings};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    pub from_ms: i64,
    pub metric: u32,
    pub count: u64,
    pub low: f64,
    pub high: f64,
    pub total: f64,
    pub last: f64,
    pub last_ms: i64,
}

impl Cell {
    fn take(&mut self, value: f64) {
        self.count += 1;
        if value < self.low {
            self.low = value;
        }
        if value > self.high {
            self.high = value;
        }
        // Saturated, because a mean that is no number could not be told.
        self.total = (self.total + value).clamp(-f64::MAX, f64::MAX);
    }
}

pub struct Tally {
    step_ms: i64,
    only: Option<u32>,
    cells: Vec<Cell>,
    /// Where the cells of the stretch at hand begin: rows come newest first, so no other stretch is looked for.
    begin: usize,
}

impl Tally {
    /// `step_ms` is at least 1. `only` leaves out all other metrics.
    pub fn new(step_ms: i64, only: Option<u32>) -> Self {
        Self {
            step_ms: step_ms.max(1),
            only,
            cells: Vec::new(),
            begin: 0,
        }
    }

    /// One stored row; rows are given newest first.
    pub fn add(&mut self, ts_ms: i64, packed: &[u8]) -> Result<(), Unreadable> {
        let from_ms = ts_ms - ts_ms.rem_euclid(self.step_ms);
        if self
            .cells
            .get(self.begin)
            .is_some_and(|cell| cell.from_ms != from_ms)
        {
            self.begin = self.cells.len();
        }
        for reading in readings(packed) {
            let (metric, value) = reading?;
            if self.only.is_some_and(|only| only != metric) {
                continue;
            }
            let value = match value {
                Value::Number(value) => value,
                Value::Bool(value) => f64::from(u8::from(value)),
                Value::Text(_) => continue,
            };
            let stretch = &mut self.cells[self.begin..];
            match stretch.iter_mut().find(|cell| cell.metric == metric) {
                Some(cell) => cell.take(value),
                None => self.cells.push(Cell {
                    from_ms,
                    metric,
                    count: 1,
                    low: value,
                    high: value,
                    total: value,
                    last: value,
                    last_ms: ts_ms,
                }),
            }
        }
        Ok(())
    }

    /// Newest stretch first, and in it by metric number.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = self.cells.clone();
        cells.sort_by_key(|cell| (std::cmp::Reverse(cell.from_ms), cell.metric));
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;
    use crate::packing::put_number;

    fn row(metric: u32, value: f64) -> Vec<u8> {
        let mut packed = Vec::new();
        put_number(&mut packed, metric, value);
        packed
    }

    #[test]
    fn stretches_are_counted_apart_and_the_newest_value_is_the_last() {
        let mut tally = Tally::new(10, None);
        for (ts_ms, value) in [(25, 3.0), (21, 1.0), (19, 5.0)] {
            tally.add(ts_ms, &row(1, value)).unwrap();
        }
        let cells = tally.cells();
        assert_eq!(cells.len(), 2);
        assert_eq!((cells[0].from_ms, cells[0].count), (20, 2));
        assert_eq!(
            (cells[0].low, cells[0].high, cells[0].total, cells[0].last),
            (1.0, 3.0, 4.0, 3.0)
        );
        assert_eq!((cells[1].from_ms, cells[1].last_ms), (10, 19));
    }

    #[test]
    fn a_sum_beyond_what_a_double_holds_stays_a_number() {
        let mut tally = Tally::new(10, Some(1));
        for ts_ms in [3, 2, 1] {
            tally.add(ts_ms, &row(1, f64::MAX)).unwrap();
            tally.add(ts_ms, &row(2, 1.0)).unwrap();
        }
        let cells = tally.cells();
        assert_eq!((cells.len(), cells[0].total), (1, f64::MAX));
    }
}
