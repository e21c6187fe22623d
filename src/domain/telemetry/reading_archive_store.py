"""A store for the history of raw telemetry, for readings that the database no longer keeps.

The database stores every message in the transaction of its effects. When a message is older than the database keeps, a worker
moves it (`old_reading_mover.py`); queries read both (`queries/database_and_archive_reading_history.py`). The store knows readings
by the names of their metrics, and devices by number and id, so that a database restored from a backup, which gives numbers again,
never reads the values of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.kernel.clock import DAY_MS, HOUR_MS
from domain.kernel.ids import DeviceId
from domain.rules.model import MetricValue
from domain.telemetry.ports import HasRollups, MessageKey

NOT_ANSWERING = "The store of older readings does not answer. Try later, or ask for newer ones with `since`."

DeviceKey = tuple[int, DeviceId]
"""(device number, device id)"""


@dataclass(frozen=True, slots=True)
class ArchivedMessageReadings:
    at_ms: int
    digest: int
    ahead_ms: int | None
    """How far the reported time is after `at_ms`, where the device reported a later one."""
    readings: tuple[tuple[str, MetricValue], ...]
    """(metric, value) in the order of the message."""


class ReadingArchiveStore(Protocol):
    """Its calls raise Unavailable (NOT_ANSWERING) when it does not answer, or answers with an error: nothing is known to be
    done."""

    async def add_many(self, messages: Sequence[tuple[DeviceKey, ArchivedMessageReadings]]) -> None:
        """Store messages durably. One with the key of a stored one (device, time, digest) is the same message."""

    async def list_page(
        self, device: DeviceKey, since_ms: int, until_ms: int, limit: int, after: MessageKey | None, *, newest_first: bool = True
    ) -> Sequence[ArchivedMessageReadings]:
        """The messages with since ≤ time < until that follow `after`, in the order of their keys."""

    async def delete_device(self, device_no: int) -> None:
        """Delete all messages of the device number."""


def oldest_kept_ms(now_ms: int, days: int) -> int:
    """A full hour; the database keeps all readings from then on."""
    return (now_ms - days * DAY_MS) // HOUR_MS * HOUR_MS


async def expired_readings_ms(tx: HasRollups, now_ms: int, days: int) -> int:
    """Older readings need not be kept. None later than the oldest hour that still needs its roll-up."""
    due = await tx.due_rollups.find_oldest_hour()
    kept_ms = oldest_kept_ms(now_ms, days)
    return kept_ms if due is None else min(kept_ms, due * HOUR_MS)


def name_of_unnamed(number: int) -> str:
    """For a metric whose name the database lacks."""
    return f"#{number}"


def number_of_unnamed(name: str) -> int | None:
    return int(name[1:]) if name[:1] == "#" and name[1:].isdecimal() else None
