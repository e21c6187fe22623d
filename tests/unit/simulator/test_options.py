"""Faults and channels are one line of text each, and a typing error is reported."""

from __future__ import annotations

import pytest

from app.simulator.options import FaultInjectionOptions, InvalidChannelsError, InvalidFaultError, parse_channels
from domain.devices.channels import ChannelKind


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


def test_channels_have_kinds_and_may_have_names() -> None:
    found = parse_channels("RELAY:Pump, LEVEL:Light: yard,COVER,INPUT")
    assert found == (
        (ChannelKind.RELAY, "Pump"),
        (ChannelKind.LEVEL, "Light: yard"),
        (ChannelKind.COVER, ""),
        (ChannelKind.INPUT, ""),
    )
    assert parse_channels("") == ()


@pytest.mark.parametrize("text", ["relay", "RELAY:" + "x" * 65, "RELAY;LEVEL", ":Pump", ",".join(["RELAY"] * 65)])
def test_a_wrong_channel_is_refused(text: str) -> None:
    with pytest.raises(InvalidChannelsError, match=r"is not a channel; write one of RELAY|at most 64"):
        parse_channels(text)
