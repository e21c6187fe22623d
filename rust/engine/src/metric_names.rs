//! Metric numbers, shared by all devices. A name gets the next number when a device first reports it, and keeps it for ever.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

#[derive(Default)]
pub struct MetricNames {
    numbers: HashMap<Arc<str>, u32, RandomState>,
    names: HashMap<u32, Arc<str>, RandomState>,
    highest: u32,
}

impl MetricNames {
    pub fn set(&mut self, number: u32, name: &str) {
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(name.clone(), number);
        self.names.insert(number, name);
        self.highest = self.highest.max(number);
    }

    /// (number, name)
    pub fn find(&self, name: &str) -> Option<(u32, Arc<str>)> {
        let (name, number) = self.numbers.get_key_value(name)?;
        Some((*number, name.clone()))
    }

    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(&number)
    }

    /// Assigns the next number.
    pub fn add(&mut self, name: &str) -> (u32, Arc<str>) {
        let number = self.highest + 1;
        self.set(number, name);
        (number, self.names[&number].clone())
    }
}
