"""Every statement in the table of MQTT conformance names a test that exists, or says how the feature is refused."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "reference" / "mqtt-conformance.md"
ROW = re.compile(r"^\| (MQTT[^|]+|\d[^|]*) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(test_\w+)`")


def test_every_test_that_the_table_names_exists() -> None:
    folders = (ROOT / "tests" / "conformance", ROOT / "tests" / "integration")
    sources = "\n".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("test_*mqtt*.py"))
    sources += "\n".join(path.read_text(encoding="utf-8") for path in folders[1].glob("test_broker_*.py"))
    rows = ROW.findall(TABLE.read_text(encoding="utf-8"))
    assert len(rows) > 50
    for statement, _, held_by in rows:
        tests = TEST.findall(held_by)
        assert tests or held_by.startswith("not offered"), f"{statement} names no test"
        missing = [name for name in tests if f"def {name}(" not in sources]
        assert not missing, f"{statement}: {missing}"


def test_every_conformance_test_stands_in_the_table() -> None:
    table = TABLE.read_text(encoding="utf-8")
    defined = [
        name
        for path in sorted((ROOT / "tests" / "conformance").glob("test_*.py"))
        for name in re.findall(r"^async def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not [name for name in defined if f"`{name}`" not in table]
