//! What a device's rules look like, their numbers apart: shared by all devices whose rules differ in thresholds only.
//!
//! It says where in a device's record its numbers lie: the last values, the thresholds, when each rule last fired, which rules they
//! are, and (beyond the first 64, which the device's head keeps) whether they match.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::layout::Layout;
use crate::rules::{Cell, EQUAL, GREATER, LESS};

/// Of a set of conditions, and of the rules in a device's head.
pub const BITS: usize = 64;

#[derive(Debug)]
pub struct Shape {
    pub layout: Arc<Layout>,
    /// Slot and mask of each plain condition: `slot * 8 + mask`.
    pub ops: Box<[u16]>,
    pub cells: Box<[Cell]>,
    /// No special rules, and few enough conditions for one bit each.
    pub is_all_plain: bool,
    pub planes: Planes,
}

/// Which conditions each outcome of a comparison satisfies, a bit a condition.
#[derive(Debug, Default)]
pub struct Planes {
    pub less: u64,
    pub greater: u64,
    pub equal: u64,
}

impl Planes {
    fn new(ops: &[u16]) -> Self {
        let mut planes = Self::default();
        for (place, op) in ops.iter().take(BITS).enumerate() {
            let has = |outcome: u8| u64::from(op & u16::from(outcome) != 0) << place;
            planes.less |= has(LESS);
            planes.greater |= has(GREATER);
            planes.equal |= has(EQUAL);
        }
        planes
    }
}

impl Shape {
    fn new(layout: Arc<Layout>, ops: &[u16], cells: &[Cell]) -> Self {
        let fits = ops.len() < BITS && cells.len() <= BITS;
        Self {
            layout,
            is_all_plain: fits && !cells.iter().any(|cell| cell.is_special()),
            planes: Planes::new(ops),
            ops: ops.into(),
            cells: cells.into(),
        }
    }

    #[inline]
    pub fn slots(&self) -> usize {
        self.layout.len()
    }

    /// Where the times of the rules' last firings begin.
    #[inline]
    pub fn fired(&self) -> usize {
        self.slots() + self.ops.len()
    }

    /// Where the rules' numbers begin, two a word.
    pub fn rules(&self) -> usize {
        self.fired() + self.cells.len()
    }

    /// Where the states of the rules beyond the first 64 begin, a bit each.
    pub fn more(&self) -> usize {
        self.rules() + self.cells.len().div_ceil(2)
    }

    /// Words of a record.
    pub fn words(&self) -> usize {
        self.more() + self.cells.len().saturating_sub(BITS).div_ceil(BITS)
    }
}

#[derive(Default)]
pub struct Shapes {
    known: HashMap<Key, Arc<Shape>, RandomState>,
    /// At this size those that no device uses are thrown out.
    sweep_at: usize,
}

/// Layouts are shared, so their address tells them apart; the shape keeps its own alive.
type Key = (usize, Box<[u16]>, Box<[Cell]>);

impl Shapes {
    pub fn of(&mut self, layout: Arc<Layout>, ops: &[u16], cells: &[Cell]) -> Arc<Shape> {
        let key: Key = (Arc::as_ptr(&layout).addr(), ops.into(), cells.into());
        if let Some(shape) = self.known.get(&key) {
            return shape.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, shape| Arc::strong_count(shape) > 1);
            self.sweep_at = self.known.len() * 2 + 64;
        }
        let shape = Arc::new(Shape::new(layout, ops, cells));
        self.known.insert(key, shape.clone());
        shape
    }

    /// Of a device without rules.
    pub fn bare(&mut self, layout: Arc<Layout>) -> Arc<Shape> {
        self.of(layout, &[], &[])
    }
}
