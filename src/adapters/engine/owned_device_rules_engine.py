"""The engine of an instance of a cluster: rules are set for the devices that it owns only.

Every instance learns of every changed rule. A rule of another instance's device would fire here too, as soon as a timer is due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from adapters.engine import _native
from adapters.engine.native_engine import NativeEngine
from domain.rules.model import EngineRule
from domain.rules.ports import RawTelemetryBatch


class OwnedDeviceRulesEngine(NativeEngine):
    def __init__(self, owns_device: Callable[[int], bool]) -> None:
        super().__init__()
        self._owns_device = owns_device

    def set_rules(self, device_no: int, rules: Sequence[EngineRule]) -> None:
        if self._owns_device(device_no):
            super().set_rules(device_no, rules)


def read_blocks(blocks: Sequence[bytes]) -> RawTelemetryBatch:
    """Raises ValueError for anything but blocks."""
    return _native.RawTelemetryBatch.from_blocks(blocks)
