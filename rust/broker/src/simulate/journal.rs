//! Which telemetry messages were confirmed, for whoever wants to look for them in the storage afterwards.

use parking_lot::Mutex;

/// Numbers from the first to the last, both included.
pub type Run = (u64, u64);

/// One list of runs a device; empty where no journal is kept. Confirmations come in order, so a run ends only where a message was
/// never confirmed.
#[derive(Default)]
pub struct Journal {
    devices: Vec<Mutex<Vec<Run>>>,
}

impl Journal {
    pub fn of(devices: usize) -> Self {
        Self {
            devices: (0..devices).map(|_| Mutex::default()).collect(),
        }
    }

    pub fn note(&self, device: usize, number: u64) {
        let Some(runs) = self.devices.get(device) else {
            return;
        };
        let mut runs = runs.lock();
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }

    pub fn runs(&self, device: usize) -> Vec<Run> {
        self.devices
            .get(device)
            .map_or_else(Vec::new, |runs| runs.lock().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_where_a_number_is_missing() {
        let journal = Journal::of(2);
        for number in [0, 1, 2, 5, 6, 9] {
            journal.note(1, number);
        }
        assert_eq!(journal.runs(1), [(0, 2), (5, 6), (9, 9)]);
        assert!(journal.runs(0).is_empty() && journal.runs(7).is_empty());
    }
}
