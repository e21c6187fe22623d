//! The sequence numbers of acknowledged telemetry messages, to be compared with what the service stored.

use parking_lot::Mutex;

/// The first and last sequence number of a range without gaps, both included.
pub type PubackSequenceRange = (u64, u64);

/// One list of ranges for each device; no lists where nothing is logged. PUBACKs arrive in order, so a range ends only where a message
/// was never acknowledged.
#[derive(Default)]
pub struct ReceivedPubackLog {
    devices: Vec<Mutex<Vec<PubackSequenceRange>>>,
}

impl ReceivedPubackLog {
    pub fn new(devices: usize) -> Self {
        Self {
            devices: (0..devices).map(|_| Mutex::default()).collect(),
        }
    }

    pub fn record(&self, device: usize, sequence: u64) {
        let Some(ranges) = self.devices.get(device) else {
            return;
        };
        let mut ranges = ranges.lock();
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == sequence => *last = sequence,
            _ => ranges.push((sequence, sequence)),
        }
    }

    pub fn ranges(&self, device: usize) -> Vec<PubackSequenceRange> {
        let ranges = self.devices.get(device);
        ranges.map_or_else(Vec::new, |ranges| ranges.lock().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_where_a_sequence_number_is_missing() {
        let log = ReceivedPubackLog::new(2);
        for sequence in [0, 1, 2, 5, 6, 9] {
            log.record(1, sequence);
        }
        assert_eq!(log.ranges(1), [(0, 2), (5, 6), (9, 9)]);
        assert!(log.ranges(0).is_empty() && log.ranges(7).is_empty());
    }
}
