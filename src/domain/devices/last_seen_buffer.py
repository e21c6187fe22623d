"""Collects in memory when each device was last seen; the checkpoint worker writes it, so no message costs a write of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class LastSeenBuffer:
    def __init__(self) -> None:
        self._newest_ms: dict[int, int] = {}

    def update(self, last_seen: Iterable[tuple[int, int]]) -> None:
        """Takes (device number, Unix ms) pairs."""
        self._newest_ms.update(last_seen)

    def drain(self) -> Mapping[int, int]:
        """Device number → Unix ms; the buffer is empty afterwards."""
        newest, self._newest_ms = self._newest_ms, {}
        return newest

    def put_back(self, last_seen: Mapping[int, int]) -> None:
        """Return what could not be written. Times that arrived in the meantime win."""
        self._newest_ms = {**last_seen, **self._newest_ms}
