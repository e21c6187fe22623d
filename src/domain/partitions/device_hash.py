"""Which partition a device belongs to: Fibonacci hashing, which spreads neighbouring device numbers and any step between them.

Python, Rust and SQL compute the same number. A device number is below 2^31, so 64-bit integers suffice everywhere. A partition is
a range of hashes, so a database finds its devices with an index on the hash, whatever the number of partitions is.
"""

from __future__ import annotations

HASH_FACTOR = 2_654_435_769
"""2^32 divided by the golden ratio."""
HASH_BITS = 32
_MASK = 0xFFFF_FFFF


def hash_of(device_no: int) -> int:
    return device_no * HASH_FACTOR & _MASK


def partition_of(device_no: int, count: int) -> int:
    """The partition, 0 to `count` - 1, of a device."""
    return hash_of(device_no) * count >> HASH_BITS


def hash_range(partition: int, count: int) -> tuple[int, int]:
    """The lowest and the highest hash of the devices in a partition."""
    return -(-(partition << HASH_BITS) // count), -(-((partition + 1) << HASH_BITS) // count) - 1
