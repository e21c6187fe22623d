"""The tests have rooms too: a unit test is in the room of its part or adapter, and what only a thorough run does, such a run finds."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SOURCES = ROOT / "src"
OTHERS = {"adapters", "clients"}
"""Rooms of unit tests: of the adapters without a folder, and of the client libraries."""


def test_a_room_of_unit_tests_is_a_part_or_an_adapter_or_a_room_of_the_program() -> None:
    rooms = {path.name for path in (TESTS / "unit").iterdir() if any(path.glob("test_*.py"))}
    parts = {path.parent.name for layer in ("domain", "adapters", "app") for path in (SOURCES / layer).glob("*/__init__.py")}
    assert sorted(rooms - parts - OTHERS) == []


def test_what_only_a_thorough_run_does_is_marked() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    only = [path for path in files if re.search(r"\bthorough_run_only\b", path.read_text(encoding="utf-8"))]
    assert only
    assert [path.name for path in only if "pytest.mark.thorough" not in path.read_text(encoding="utf-8")] == []


def test_continuous_integration_names_no_test_file() -> None:
    assert re.findall(r"test_\w+", (ROOT / ".ci" / "run").read_text(encoding="utf-8")) == []
