"""Faults are written in one line, and a slip of the pen is named instead of ignored."""

from __future__ import annotations

import pytest

from app.simulator.faults import FaultInjectionOptions, InvalidFaultError


def test_every_fault_can_be_asked_for() -> None:
    faults = FaultInjectionOptions.parse("silent=5%, slow=0.1:300ms,duplicate=100%,late=0,reconnect=30s,dirty=2m,storm=1.5h")
    assert faults == FaultInjectionOptions(0.05, 1.0, 0.0, 0.1, 0.3, 30.0, 120.0, 5_400.0)


def test_nothing_goes_wrong_by_itself() -> None:
    assert FaultInjectionOptions.parse("") == FaultInjectionOptions()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("silly=5%", "'silly' is not a fault"),
        ("silent", "silent= is not a share"),
        ("silent=105%", "silent=105% is not a share"),
        ("silent=-1", "silent=-1 is not a share"),
        ("silent=nan", "silent=nan is not a share"),
        ("reconnect=soon", "reconnect=soon is not a time"),
        ("reconnect=0", "reconnect=0 is not a time"),
        ("dirty=1000h", "dirty=1000h is not a time"),
        ("slow=5%:x", "slow=x is not a time"),
        ("late=1%,late=2%", "late is given twice"),
    ],
)
def test_what_is_no_fault_is_refused_with_what_would_be(text: str, said: str) -> None:
    with pytest.raises(InvalidFaultError, match="^" + said):
        FaultInjectionOptions.parse(text)
