"""Rotating the installation's secret keys, also while the service runs, and after being killed half way.

The order makes every moment safe: the new key is durable in the ring's file before anything is sealed with it, and an old one is
taken away only after nothing has needed it for a day. What is still sealed with an older key says that a rotation has not ended,
and the next one goes on with it instead of adding one more key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapters.clock import SystemClock
from adapters.crypto.keyfile import KeyFile, RotationUnderWay
from adapters.crypto.keyring import KeyRing, Ring
from adapters.crypto.vault import AesVault, key_of
from adapters.feed import InProcessFeed
from adapters.ids import SystemIds
from adapters.storage.sql import SqlDatabase
from app.outside import key_ring, prepare_data_dir
from app.refused import StartRefused
from app.settings import Settings
from domain.events.service import EventRecorder
from domain.kernel.clock import HOUR_MS, Clock
from domain.webhooks.resealing import ResealingService, Tally

NEEDED_MS = 25 * HOUR_MS
"""Remembered answers live 24 hours, access tokens 15 minutes; the rest is for clocks."""

IN_ENVIRONMENT = (
    "The key ring is given in LATCHBOARD_SECRET_KEYS, which this command cannot change. Put a new key in front of it "
    "(<id>:$(openssl rand -base64 32)), restart every instance, then run: latchboard keys rotate --no-new-key"
)

Progress = Callable[[int, int], None]
"""(seen, of how many)"""


@dataclass(frozen=True, slots=True)
class Rotated:
    newest: str
    new_key: bool
    """False: an earlier rotation was gone on with, or none was wanted."""

    tally: Tally
    older: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyUse:
    key_id: str
    is_newest: bool
    secrets: int


@dataclass(frozen=True, slots=True)
class _Keys:
    ring: Ring
    resealing: ResealingService
    clock: Clock


async def rotate(settings: Settings, *, new_key: bool, progress: Progress) -> Rotated:
    """Raises StartRefused where it cannot be done, and what the database raises."""
    async with _opened(settings) as keys:
        file = keys.ring if isinstance(keys.ring, KeyFile) else None
        if file is None:
            if new_key:
                raise StartRefused(IN_ENVIRONMENT)
            return await _reseal(keys, False, progress)
        try:
            with file.alone():
                unfinished = _outdated(await keys.resealing.survey(), file)
                make_one = new_key and not unfinished
                if make_one:
                    file.replace(KeyRing(file.keys).with_new())
                return await _reseal(keys, make_one, progress)
        except RotationUnderWay:
            raise StartRefused("Another rotation is under way. Wait until it has ended; see: latchboard keys list") from None


async def retire(settings: Settings) -> list[str]:
    """Take away every older key that nothing needs any more; their ids. Raises StartRefused that says what needs them."""
    async with _opened(settings) as keys:
        file = keys.ring
        if not isinstance(file, KeyFile):
            raise StartRefused(
                "The key ring is given in LATCHBOARD_SECRET_KEYS: take the old keys out of it there. `latchboard keys list` says "
                "which ones are needed."
            )
        try:
            with file.alone():
                older = [key.key_id for key in file.keys[1:]]
                if older:
                    _check_unneeded(await keys.resealing.survey(), older, file, keys.clock)
                    file.replace(KeyRing(file.keys[:1]))
                return older
        except RotationUnderWay:
            raise StartRefused("A rotation is under way. Wait until it has ended.") from None


async def uses(settings: Settings) -> list[KeyUse]:
    """Every key of the ring, newest first, and then those that are missing from it and still needed."""
    async with _opened(settings) as keys:
        tally = await keys.resealing.survey()
        known = [key.key_id for key in keys.ring.keys]
        missing = sorted(set(tally.by_key) - set(known))
        return [KeyUse(key_id, key_id == known[0], tally.by_key[key_id]) for key_id in (*known, *missing)]


def _check_unneeded(tally: Tally, older: list[str], file: KeyFile, clock: Clock) -> None:
    needed = {key_id: tally.by_key[key_id] for key_id in older if tally.by_key[key_id]}
    if needed:
        said = ", ".join(f"{key_id}: {count}" for key_id, count in needed.items())
        raise StartRefused(f"Secrets are still sealed with older keys ({said}). Run: latchboard keys rotate --no-new-key")
    left_ms = file.changed_ms + NEEDED_MS - clock.now_ms()
    if left_ms > 0:
        raise StartRefused(
            f"Tokens and remembered answers may need the older keys for {-(-left_ms // HOUR_MS)} more hours. "
            "Nothing was changed; run this again then."
        )


async def _reseal(keys: _Keys, new_key: bool, progress: Progress) -> Rotated:
    """Twice: what the service sealed with the key before while the first round passed is found by the second."""
    total = await keys.resealing.total()
    tally = await keys.resealing.run(lambda seen: progress(seen, total))
    again = await keys.resealing.run(lambda seen: None)
    tally.resealed += again.resealed
    tally.unreadable = again.unreadable
    ring = keys.ring
    return Rotated(ring.newest.key_id, new_key, tally, tuple(key.key_id for key in ring.keys[1:]))


def _outdated(tally: Tally, ring: Ring) -> int:
    """Secrets under an older key of the ring; what no key opens cannot hold a rotation up for ever."""
    return sum(tally.by_key[key.key_id] for key in ring.keys[1:])


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[_Keys]:
    prepare_data_dir(settings.data_dir)
    if settings.secret_keys is None and not (settings.data_dir / "secret_keys").exists():
        raise StartRefused(f"There is no key ring in {settings.data_dir}. Set LATCHBOARD_DATA_DIR to where the service keeps it.")
    ring = key_ring(settings)
    database = SqlDatabase(settings.database, pool_size=1)
    uow = database.unit_of_work(EventRecorder(ids=SystemIds(), observers=[], feed=InProcessFeed()))
    try:
        await database.start()
        yield _Keys(ring, ResealingService(uow=uow, vault=AesVault(ring), key_of=key_of), SystemClock())
    finally:
        await database.stop()
