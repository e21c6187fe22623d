"""Checks that the extension was built from the Rust sources beside it. It stands apart, because it imports the extension only to
ask.

An old extension beside changed sources causes errors that are hard to find, so the service refuses to start with it. The digest
is SHA-256 over every `.rs` and `Cargo.toml` below `rust/` and the workspace's `Cargo.toml` and `Cargo.lock`: for each file,
ordered by path, the path, a zero byte, the content, a zero byte. An installed wheel has no sources, so nothing is compared there.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from domain.kernel.errors import Unavailable


def check_extension(source_root: Path) -> None:
    """`source_root` is the checkout that contains `rust/`. Raises Unavailable."""
    try:
        from adapters.engine import _native
    except ImportError as missing:
        raise Unavailable(
            "The native engine is not built. Run `make setup`, or set engine = reference (LATCHBOARD_ENGINE=reference) to run "
            "the slower Python engine."
        ) from missing
    sources = source_digest(source_root)
    if sources is not None and sources != _native.source_digest():
        raise Unavailable("The native engine was built from other Rust sources than these. Run `make setup` to rebuild it.")


def source_digest(source_root: Path) -> str | None:
    """The digest as hexadecimal; None where there are no sources."""
    if not (source_root / "rust" / "engine").is_dir() or not (source_root / "Cargo.lock").is_file():
        return None
    digest = hashlib.sha256()
    for name in sorted(["Cargo.toml", "Cargo.lock", *_source_paths(source_root)]):
        digest.update(name.encode() + b"\0" + (source_root / name).read_bytes() + b"\0")
    return digest.hexdigest()


def _source_paths(source_root: Path) -> list[str]:
    found = []
    for folder, folders, files in os.walk(source_root / "rust"):
        folders[:] = [name for name in folders if name != "target" and not name.startswith(".")]
        relative = Path(folder).relative_to(source_root)
        found += [(relative / name).as_posix() for name in files if name.endswith(".rs") or name == "Cargo.toml"]
    return found
