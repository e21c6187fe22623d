"""Rotates the secret keys of the installation, also while the service runs, and continues after an interruption.

Every intermediate state is safe: the new key is durable in the key ring file before anything is sealed with it, and an old key is
removed only after nothing has needed it for a day. Secrets that are still sealed with an older key mean that a rotation has not
finished; the next rotation continues it instead of adding another key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapters.clock import SystemClock
from adapters.crypto.key_ring import KeyRing, KeyRingFile, KeyRingRotationInProgressError, MasterKeyRing
from adapters.crypto.vault import AesVault, sealing_key_id
from app.cli.operator import open_database, open_key_ring
from app.config.settings import Settings
from app.runtime.start import StartupError
from domain.kernel.clock import HOUR_MS
from domain.secrets.rekey import RekeyReport, RekeyService

OLD_KEY_RETENTION_MS = 25 * HOUR_MS
"""Access tokens live 15 minutes; the rest allows for clock differences and for an instance that reads the ring late."""

KEYS_IN_ENVIRONMENT_MESSAGE = (
    "The key ring is given in LATCHBOARD_SECRET_KEYS, which this command cannot change. Put a new key in front of it "
    "(<id>:$(openssl rand -base64 32)), restart every instance, then run: latchboard keys rotate --no-new-key"
)

ProgressCallback = Callable[[int, int], None]
"""Arguments: secrets checked, secrets in total."""


@dataclass(frozen=True, slots=True)
class KeyRingRotationResult:
    newest_key_id: str
    created_key: bool
    """False when an earlier rotation was continued, or when no new key was wanted."""

    report: RekeyReport
    older_key_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MasterKeyUsage:
    key_id: str
    is_newest: bool
    sealed_secrets: int


async def rotate_keys(settings: Settings, *, new_key: bool, progress: ProgressCallback) -> KeyRingRotationResult:
    """Seal every secret with the newest key, after adding one if `new_key`. Raises StartupError, and what the database raises."""
    async with _open_keys(settings) as (ring, rekeying):
        file = ring if isinstance(ring, KeyRingFile) else None
        if file is None:
            if new_key:
                raise StartupError(KEYS_IN_ENVIRONMENT_MESSAGE)
            return await _rekey(ring, rekeying, False, progress)
        try:
            with file.exclusive_lock():
                unfinished = _count_outdated(await rekeying.survey(), file)
                create_key = new_key and not unfinished
                if create_key:
                    file.replace(KeyRing(file.keys).with_new_key())
                return await _rekey(ring, rekeying, create_key, progress)
        except KeyRingRotationInProgressError:
            raise StartupError("Another rotation is running. Wait for its end; see: latchboard keys list") from None


async def retire_keys(settings: Settings) -> list[str]:
    """Remove the older keys and return their ids. Raises StartupError while something may still need one of them."""
    async with _open_keys(settings) as (ring, rekeying):
        if not isinstance(ring, KeyRingFile):
            raise StartupError(
                "The key ring is given in LATCHBOARD_SECRET_KEYS: remove the old keys there. `latchboard keys list` shows "
                "which keys are needed."
            )
        try:
            with ring.exclusive_lock():
                older = [key.key_id for key in ring.keys[1:]]
                if older:
                    _require_unneeded(await rekeying.survey(), older, ring)
                    ring.replace(KeyRing(ring.keys[:1]))
                return older
        except KeyRingRotationInProgressError:
            raise StartupError("A rotation is running. Wait for its end.") from None


async def list_key_usage(settings: Settings) -> list[MasterKeyUsage]:
    """Every key of the ring, newest first, then keys that are needed and missing from the ring."""
    async with _open_keys(settings) as (ring, rekeying):
        report = await rekeying.survey()
        known = [key.key_id for key in ring.keys]
        missing = sorted(set(report.by_key) - set(known))
        return [MasterKeyUsage(key_id, key_id == known[0], report.by_key[key_id]) for key_id in (*known, *missing)]


def _require_unneeded(report: RekeyReport, older: list[str], file: KeyRingFile) -> None:
    needed = {key_id: report.by_key[key_id] for key_id in older if report.by_key[key_id]}
    if needed:
        counts = ", ".join(f"{key_id}: {count}" for key_id, count in needed.items())
        raise StartupError(f"Secrets are still sealed with older keys ({counts}). Run: latchboard keys rotate --no-new-key")
    remaining_ms = file.modified_ms + OLD_KEY_RETENTION_MS - SystemClock().now_ms()
    if remaining_ms > 0:
        raise StartupError(
            f"Tokens may need the older keys for {-(-remaining_ms // HOUR_MS)} more hours. "
            "Nothing was changed. Run this command again after that time."
        )


async def _rekey(ring: MasterKeyRing, rekeying: RekeyService, new_key: bool, progress: ProgressCallback) -> KeyRingRotationResult:
    """Rekey twice: the second pass finds what the service sealed with the previous key during the first pass."""
    total = await rekeying.count_secrets()
    report = await rekeying.run(lambda seen: progress(seen, total))
    again = await rekeying.run(lambda seen: None)
    report.rekeyed += again.rekeyed
    report.unreadable = again.unreadable
    return KeyRingRotationResult(ring.newest.key_id, new_key, report, tuple(key.key_id for key in ring.keys[1:]))


def _count_outdated(report: RekeyReport, ring: MasterKeyRing) -> int:
    """Secrets sealed with an older key of the ring. Those that no key opens do not count, or a rotation would never end."""
    return sum(report.by_key[key.key_id] for key in ring.keys[1:])


@asynccontextmanager
async def _open_keys(settings: Settings) -> AsyncIterator[tuple[MasterKeyRing, RekeyService]]:
    ring = open_key_ring(settings)
    async with open_database(settings) as uow:
        yield ring, RekeyService(uow=uow, vault=AesVault(ring=ring), key_of=sealing_key_id)
