"""A batch of telemetry messages in Python objects: for the reference engine, for tests, and for dry runs over history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PythonTelemetryBatch:
    """(device number, arrival in Unix ms, payload) in order of arrival."""

    items: tuple[tuple[int, int, bytes], ...]

    @classmethod
    def of(cls, messages: Iterable[tuple[int, int, bytes]]) -> PythonTelemetryBatch:
        return cls(tuple(messages))

    def __len__(self) -> int:
        return len(self.items)

    def messages(self) -> list[tuple[int, int, bytes]]:
        return list(self.items)
