//! Metric numbers, shared by all devices and all instances. The database assigns them; the engine reports names that have none, and
//! takes no message that contains one.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

#[derive(Default)]
pub struct MetricNames {
    numbers: HashMap<Arc<str>, u32, RandomState>,
    names: HashMap<u32, Arc<str>, RandomState>,
}

impl MetricNames {
    pub fn set(&mut self, number: u32, name: &str) {
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(name.clone(), number);
        self.names.insert(number, name);
    }

    /// (number, name)
    pub fn find(&self, name: &str) -> Option<(u32, Arc<str>)> {
        let (name, number) = self.numbers.get_key_value(name)?;
        Some((*number, name.clone()))
    }

    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(&number)
    }
}
