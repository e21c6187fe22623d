"""Whether the extension was built from the Rust sources that lie beside it.

A changed source with an old extension is the error that costs an afternoon; so the service refuses to start on it. The digest
is SHA-256 over every `.rs` and `Cargo.toml` below `rust/` and the workspace's `Cargo.toml` and `Cargo.lock`: for each file, in
order of its path, the path, a zero byte, the content, a zero byte. An installed wheel has no sources to compare with.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from domain.kernel.errors import Unavailable


class EngineMissingError(Unavailable):
    """The extension is not there."""

    def __init__(self) -> None:
        super().__init__(
            "The native engine is not built. Run `make setup`, or set engine = reference (LATCHBOARD_ENGINE=reference) to do "
            "without it, slowly."
        )


class EngineStaleError(Unavailable):
    """The extension is older, or newer, than the sources."""

    def __init__(self) -> None:
        super().__init__("The native engine was built from other Rust sources than these. Run `make setup` to build it anew.")


def check_extension(source_root: Path) -> None:
    """Raises EngineMissing or EngineStale. `source_root`: the checkout, which holds `rust/`."""
    try:
        from adapters.engine import _native
    except ImportError as missing:
        raise EngineMissingError from missing
    sources = source_digest(source_root)
    if sources is not None and sources != _native.source_digest():
        raise EngineStaleError


def source_digest(source_root: Path) -> str | None:
    """None where there are no sources."""
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
        beneath = Path(folder).relative_to(source_root)
        found += [(beneath / name).as_posix() for name in files if name.endswith(".rs") or name == "Cargo.toml"]
    return found
