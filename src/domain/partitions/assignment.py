"""Which instance should own which partition: rendezvous hashing with a bound on the load of each instance.

Every instance computes the same assignment from the same members, without talking to the others. When the members change, few
partitions move: those of an instance that left, and about one share for an instance that joined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=64)
def assign(count: int, instances: frozenset[str]) -> Sequence[str]:
    """The instance of each partition. None owns more than its share, rounded up. Empty without instances."""
    if not instances:
        return ()
    free = dict.fromkeys(instances, -(-count // len(instances)))
    owners = []
    for partition in range(count):
        owner = max((each for each in instances if free[each]), key=lambda instance: _score(instance, partition))
        free[owner] -= 1
        owners.append(owner)
    return tuple(owners)


@lru_cache(maxsize=50_000)
def _score(instance: str, partition: int) -> bytes:
    return hashlib.blake2b(f"{partition}/{instance}".encode(), digest_size=8).digest()
