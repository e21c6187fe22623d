"""The table of measures in the README is about true of this tree; `python tests/house/measure.py --write` renews it."""

from __future__ import annotations

import re

from house.measure import ROOT, flows, measure, rows, written_rows

ROOM = 0.1
"""A figure may be so far off: the table is renewed when the house has changed, not with every commit."""


def number(text: str) -> float:
    return float(re.sub(r"[^\d.]", "", text))


def is_about(here: str, written: str) -> bool:
    return abs(number(here) - number(written)) <= max(1, ROOM * number(written))


def test_the_written_figures_are_about_those_of_the_tree() -> None:
    written, here = written_rows(), rows(measure())
    assert written.keys() == here.keys()
    assert {name: (written[name], here[name]) for name in here if not is_about(here[name], written[name])} == {}


def test_a_flow_names_files_that_exist() -> None:
    named = flows()
    assert len(named) >= 3
    assert [name for files in named.values() for name in files if not (ROOT / name).exists()] == []
