"""An extension that was built from other sources than those beside it is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.engine import extension_check
from domain.kernel.errors import Unavailable


def checkout(root: Path) -> Path:
    (root / "rust" / "engine" / "src").mkdir(parents=True)
    for name in ("Cargo.toml", "Cargo.lock", "rust/engine/Cargo.toml", "rust/engine/src/lib.rs"):
        (root / name).write_text(name)
    return root


def test_an_installation_without_sources_is_accepted(tmp_path: Path) -> None:
    extension_check.check_extension(tmp_path)


def test_other_sources_are_rejected_with_the_command_to_run(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="make setup"):
        extension_check.check_extension(checkout(tmp_path))


def test_the_digest_covers_sources_and_manifests_but_no_build_results(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    before = extension_check.source_digest(root)
    (root / "rust" / "target").mkdir()
    (root / "rust" / "target" / "made.rs").write_text("made")
    (root / "rust" / "engine" / "notes.md").write_text("notes")
    assert extension_check.source_digest(root) == before
    (root / "rust" / "engine" / "src" / "lib.rs").write_text("changed")
    assert extension_check.source_digest(root) != before
