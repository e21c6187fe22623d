"""What devices may publish at an external broker."""

from __future__ import annotations

import pytest

from domain.devices.broker_auth import may_publish


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        ("telemetry", True),
        ("status", True),
        ("stat/POWER", True),
        ("switch/relay/state", True),
        ("sched/rev", True),
        ("cmd", False),
        ("sched", False),
        ("cmnd/POWER", False),
        ("switch/relay/command", False),
        ("telemetry/x", False),
        ("#", False),
        ("+", False),
        ("stat/#", False),
        ("", False),
    ],
)
def test_a_device_may_publish_what_firmware_publishes(below: str, expected: bool) -> None:
    assert may_publish(below) is expected
