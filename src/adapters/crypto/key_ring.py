"""The installation's secret keys, newest first. The newest signs and seals; older ones still verify and open.

A key is `<id>:<base64 of 32 bytes>`; the id is public and appears in tokens and ciphertexts. Each purpose derives its own key
with HKDF, so no two purposes share one. To rotate, add a new key in front and remove the last one when nothing uses it.

A ring in a file may change while the service runs. The file is replaced atomically, so a reader finds the old ring or the new
one. A running service checks the file's version before it signs or seals, and when it sees an unknown key id; so a rotation needs
no restart. The process keeps every key it has read, because it may still hold data sealed with it. A damaged file does not affect
running processes; the next start fails.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_SIZE = 32
_KEY_ID_PATTERN = re.compile(r"[A-Za-z0-9]{4,16}")


@dataclass(frozen=True, slots=True)
class MasterKey:
    key_id: str
    secret: bytes = field(repr=False)

    def derive(self, purpose: str) -> bytes:
        """A 32-byte key for one purpose (HKDF, RFC 5869)."""
        return HKDF(SHA256(), KEY_SIZE, salt=None, info=f"latchboard/{purpose}".encode()).derive(self.secret)


class MasterKeyRing(Protocol):
    """Port: the newest key signs and seals; older keys, found by id, verify and open."""

    @property
    def keys(self) -> tuple[MasterKey, ...]: ...

    @property
    def newest(self) -> MasterKey: ...

    def find(self, key_id: str) -> MasterKey | None: ...


@dataclass(frozen=True, slots=True)
class KeyRing:
    """An immutable ring."""

    keys: tuple[MasterKey, ...]

    @property
    def newest(self) -> MasterKey:
        return self.keys[0]

    def find(self, key_id: str) -> MasterKey | None:
        return next((key for key in self.keys if key.key_id == key_id), None)

    def with_new_key(self) -> KeyRing:
        """A copy with a new key in front."""
        return KeyRing((*KeyRing.generate().keys, *self.keys))

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """Parse keys separated by commas or white space. Raises ValueError, which never quotes a secret."""
        keys = tuple(_parse_key(part) for part in re.split(r"[,\s]+", text.strip()) if part)
        if not keys:
            raise ValueError("the key ring is empty; give at least one key as <id>:<base64 of 32 bytes>")
        if len({key.key_id for key in keys}) != len(keys):
            raise ValueError("two keys of the key ring have the same id; give each its own")
        return cls(keys)

    @classmethod
    def generate(cls) -> KeyRing:
        return cls((MasterKey(f"k{secrets.token_hex(4)}", secrets.token_bytes(KEY_SIZE)),))

    def to_text(self) -> str:
        """The secret text form that `parse` reads."""
        return "\n".join(f"{key.key_id}:{base64.b64encode(key.secret).decode()}" for key in self.keys)


def _parse_key(part: str) -> MasterKey:
    key_id, _, encoded = part.partition(":")
    if _KEY_ID_PATTERN.fullmatch(key_id) is None:
        raise ValueError("a key of the key ring has no id of 4 to 16 letters and digits before its colon")
    try:
        secret = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError(f"the key {key_id} is not base64") from None
    if len(secret) != KEY_SIZE:
        raise ValueError(
            f"the key {key_id} has {len(secret)} bytes, not {KEY_SIZE}; make one with: openssl rand -base64 {KEY_SIZE}"
        )
    return MasterKey(key_id, secret)


_FileVersion = tuple[int, int, int]


class KeyRingRotationInProgressError(Exception):
    """Another process is changing the key ring."""


class KeyRingFile:
    """The ring at `path`; created, readable only by its owner, if the file does not exist.

    Raises ValueError for a damaged file and PermissionError for one that others can read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_created = not path.exists()
        """Whether the file was missing: secrets sealed with an earlier ring cannot be opened."""
        if self.was_created:
            _create(path)
        self._file_version = _read_file_version(path)
        self._ring = _load(path)
        self._keys_by_id = {key.key_id: key for key in self._ring.keys}

    @property
    def keys(self) -> tuple[MasterKey, ...]:
        return self._ring.keys

    @property
    def newest(self) -> MasterKey:
        self._reload_if_changed()
        return self._ring.newest

    @property
    def modified_ms(self) -> int:
        """When the ring last changed, Unix ms, from the file's mtime; a restored file may be older or newer than its keys."""
        return _read_file_version(self.path)[1] // 1_000_000

    def find(self, key_id: str) -> MasterKey | None:
        known = self._keys_by_id.get(key_id)
        if known is None:
            self._reload_if_changed()
            known = self._keys_by_id.get(key_id)
        return known

    def replace(self, ring: KeyRing) -> None:
        """Durable on return; a crash before leaves the old ring."""
        fresh = self.path.with_name(self.path.name + ".new")
        _write(fresh, ring, os.O_TRUNC)
        fresh.replace(self.path)
        _fsync_directory(self.path)
        self._reload_if_changed()

    @contextmanager
    def exclusive_lock(self) -> Iterator[None]:
        """Exclude other processes that change the ring (flock). Raises `KeyRingRotationInProgressError`."""
        descriptor = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise KeyRingRotationInProgressError from None
            self._reload_if_changed()
            yield
        finally:
            os.close(descriptor)

    def _reload_if_changed(self) -> None:
        try:
            stamp = _read_file_version(self.path)
            if stamp == self._file_version:
                return
            self._file_version = stamp
            self._ring = _load(self.path)
        except (OSError, ValueError):
            return  # the previous ring stays in use
        self._keys_by_id |= {key.key_id: key for key in self._ring.keys}


def _create(path: Path) -> None:
    """Two processes that start at once share one ring: the second uses the first one's file."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    _write(fresh, KeyRing.generate(), os.O_EXCL)
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    _fsync_directory(path)


def _write(path: Path, ring: KeyRing, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(ring.to_text() + "\n")
        file.flush()
        os.fsync(file.fileno())


def _fsync_directory(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _load(path: Path) -> KeyRing:
    if path.stat().st_mode & 0o077:
        raise PermissionError(f"{path} can be read by others than its owner; run: chmod 600 {path}")
    return KeyRing.parse(path.read_text())


def _read_file_version(path: Path) -> _FileVersion:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
