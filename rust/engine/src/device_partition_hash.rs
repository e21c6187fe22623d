//! Which partition a device belongs to. Defined by `domain/partitions/device_hash.py`.

/// Fibonacci hashing: 2^32 divided by the golden ratio.
const MULTIPLIER: u64 = 2_654_435_769;

/// Between 0 and `partitions`, which is not 0.
#[inline]
pub fn partition_of(device: u32, partitions: u32) -> u32 {
    let hash = (u64::from(device) * MULTIPLIER) & u64::from(u32::MAX);
    ((hash * u64::from(partitions)) >> 32) as u32
}
