"""An instance of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class InboundLogReachability(IntEnum):
    """Whether an instance reaches the cluster's log."""

    LOST = 0
    RECENT = 1
    """It does, but there was a gap a moment ago."""
    STEADY = 2


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A running instance. `beats` grows while it lives; no clock is compared with another machine's."""

    instance: str
    beats: int
    log_reach: InboundLogReachability = InboundLogReachability.STEADY
