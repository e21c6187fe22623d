"""When each device was last heard of, gathered in memory and written with the next checkpoint: not one write per message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class LastSeenBuffer:
    def __init__(self) -> None:
        self._newest_ms: dict[int, int] = {}

    def update(self, seen: Iterable[tuple[int, int]]) -> None:
        self._newest_ms.update(seen)

    def drain(self) -> Mapping[int, int]:
        newest, self._newest_ms = self._newest_ms, {}
        return newest

    def put_back(self, seen: Mapping[int, int]) -> None:
        """What could not be written; newer news win."""
        self._newest_ms = {**seen, **self._newest_ms}
