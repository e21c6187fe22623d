"""Messages from devices that the database refused: set aside with their bytes, listed for the operator, and replayed.

The law: a message is set aside only when the database has refused its data, never because the database does not answer; and it is
set aside before its device gets the PUBACK. At most MAX_DEAD_LETTERS are kept; beyond that the oldest are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from domain.devices.health import device_event
from domain.devices.model import Device
from domain.ingest.ports import IngestDeadLetter, IngestTx
from domain.ingest.restore import find_rules
from domain.kernel.clock import HOUR_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.model import EngineRule

MAX_DEAD_LETTERS = 100_000
"""A payload is 64 KiB at most and usually below 200 bytes, so this is some 30 MB of the database."""
MAX_REASON_LENGTH = 500
MAX_ANNOUNCED = 10_000
"""Devices whose last announcement is remembered."""
TELEMETRY_KIND = "telemetry"
"""The kind of native telemetry; every other kind is a topic below the device's prefix."""


@service
class IngestDeadLetterService:
    uow: UnitOfWork[IngestTx]
    clock: Clock
    max_letters: int = MAX_DEAD_LETTERS
    count: int = field(default=0, init=False)
    """Stored letters when last counted, for the metrics."""
    added: int = field(default=0, init=False)
    replayed: int = field(default=0, init=False)
    discarded: int = field(default=0, init=False)
    """Deleted because there were more than the maximum."""
    _announced_ms: dict[int, int] = field(default_factory=dict, init=False)
    """When the account was last told of a device's letters, in monotonic ms."""

    async def set_aside(self, letters: Sequence[IngestDeadLetter]) -> None:
        """Store the letters in one transaction. Raises Unavailable."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            devices = await tx.devices.list_by_numbers({letter.device_no for letter in letters})
            device_ids = {device.device_no: device.device_id for device in devices}
            await tx.dead_letters.add_many(
                [replace(letter, device_id=device_ids.get(letter.device_no), created_ms=now_ms) for letter in letters]
            )
            for device in devices:
                self._announce(tx, device, now_ms)
            discarded = await tx.dead_letters.delete_oldest(self.max_letters)
            count = await tx.dead_letters.count()
        self.added += len(letters)
        self.discarded += discarded
        self.count = count

    def _announce(self, tx: IngestTx, device: Device, now_ms: int) -> None:
        """`device_message_set_aside`, at most once an hour for a device."""
        now, last = self.clock.monotonic_ms(), self._announced_ms.get(device.device_no)
        if last is not None and now - last < HOUR_MS:
            return
        if len(self._announced_ms) >= MAX_ANNOUNCED:
            self._announced_ms.clear()  # rather told twice than never
        tx.after_commit(lambda: self._announced_ms.__setitem__(device.device_no, now))
        text = "The database refused what the device sent. It is set aside: latchboard deadletters shows it"
        tx.emit(device_event(device, "device_message_set_aside", text, now_ms))

    async def list_for_replay(self, limit: int) -> Sequence[IngestDeadLetter]:
        async with self.uow.read() as tx:
            self.count = await tx.dead_letters.count()
            return await tx.dead_letters.list_for_replay(limit)

    async def find_rules(self, device_no: int) -> Sequence[EngineRule] | None:
        """The rules of a letter's device with their stored states; None if the device was deleted."""
        return await find_rules(self.uow, device_no)

    async def complete_replay(self, letter: IngestDeadLetter) -> None:
        async with self.uow.write(caller=None) as tx:
            await tx.dead_letters.delete([letter.letter_id])
        self.replayed += 1

    async def fail_replay(self, letter: IngestDeadLetter, reason: str) -> None:
        async with self.uow.write(caller=None) as tx:
            await tx.dead_letters.set_aside_again(letter.letter_id, reason)


def reason_of(error: BaseException) -> str:
    """The database's own words where the error has a cause; without characters that a database cannot store."""
    cause = error.__cause__ or error
    text = f"{type(cause).__name__}: {cause}".replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode()[:MAX_REASON_LENGTH]
