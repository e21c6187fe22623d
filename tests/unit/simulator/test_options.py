"""The fault option is one line of text, and a typing error is reported."""

from __future__ import annotations

import pytest

from app.simulator.options import FaultInjectionOptions, InvalidFaultError


def test_every_fault_can_be_requested() -> None:
    faults = FaultInjectionOptions.parse("silent=5%, slow=0.1:300ms,duplicate=100%,late=0,reconnect=30s,dirty=2m,storm=1.5h")
    assert faults == FaultInjectionOptions(0.05, 1.0, 0.0, 0.1, 0.3, 30.0, 120.0, 5_400.0)


def test_an_empty_text_injects_no_fault() -> None:
    assert FaultInjectionOptions.parse("") == FaultInjectionOptions()


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_a_wrong_fault_is_refused_with_the_allowed_form(text: str, message: str) -> None:
    with pytest.raises(InvalidFaultError, match="^" + message):
        FaultInjectionOptions.parse(text)
