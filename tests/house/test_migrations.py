"""The migrations are one chain, and the program knows its end."""

from __future__ import annotations

import re
from pathlib import Path

from adapters.storage.sql.migrations import HEAD

VERSIONS = Path(__file__).resolve().parents[2] / "src" / "adapters" / "storage" / "sql" / "migrations" / "versions"


def test_each_migration_has_its_own_number_and_follows_the_one_before() -> None:
    found = []
    for path in sorted(VERSIONS.glob("v*.py")):
        text = path.read_text(encoding="utf-8")
        [revision] = re.findall(r'^revision = "(v\d{4})"', text, re.MULTILINE)
        [before] = re.findall(r"^down_revision(?:: .*)? = (.+)$", text, re.MULTILINE)
        assert path.name.startswith(f"{revision}_"), path.name
        found.append((before.strip('"'), revision))
    revisions = [revision for _, revision in found]
    assert revisions == [f"v{number:04d}" for number in range(1, len(found) + 1)]
    assert [before for before, _ in found] == ["None", *revisions[:-1]]
    assert revisions[-1] == HEAD
