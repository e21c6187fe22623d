//! What the engine does with a partition that another engine takes over.

use crate::checkpoint::DeviceCheckpoint;
use crate::device_partition_hash::partition_of;
use crate::engine::Engine;

impl Engine {
    /// Removes the devices of a partition with their values, rules and timers; returns how many. Another engine has them now.
    pub fn drop_partition(&mut self, partition: u32, partitions: u32) -> usize {
        let is_dropped = |number: &u32| partition_of(*number, partitions) == partition;
        self.changed.retain(|number| !is_dropped(number));
        let numbers = self.devices.headers().map(|header| header.number);
        let dropped: Vec<u32> = numbers.filter(is_dropped).collect();
        for number in &dropped {
            self.devices.remove(*number);
        }
        dropped.len()
    }

    /// Checkpoints of the devices of a partition that differ from their last one, at most `limit`.
    pub fn checkpoint_partition(&mut self, partition: u32, partitions: u32, limit: usize) -> Vec<DeviceCheckpoint> {
        let mut taken = Vec::new();
        self.changed.retain(|number| {
            let is_taken = taken.len() < limit && partition_of(*number, partitions) == partition;
            if is_taken {
                taken.push(*number);
            }
            !is_taken
        });
        self.checkpoints_of(taken)
    }
}
