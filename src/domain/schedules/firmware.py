"""The part of a device's slots that its firmware can run by itself: plain ON and OFF at given seconds, without a rule.

The plan is what the retained `sched` message carries. It has a revision, which changes exactly when the plan does; the device
answers with the revision it holds, and only while the two are equal is a slot in step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from domain.devices.model import Device, Profile
from domain.schedules.model import PLAIN_OFF, PLAIN_ON, Schedule

MAX_BYTES = 200
"""What our firmware reserves for the message."""

Row = tuple[int, int, int, bool]
"""(slot, onTs, offTs, enabled)"""


def fits(schedule: Schedule) -> bool:
    """Whether the firmware can hold this slot."""
    return schedule.rrule is None and schedule.on_command == PLAIN_ON and schedule.off_command == PLAIN_OFF


def plan(device: Device, schedules: Iterable[Schedule]) -> tuple[Row, ...]:
    """The rows by slot. Stock firmware has no such plan: its slots are run by the service alone."""
    if device.profile is not Profile.NATIVE:
        return ()
    held = sorted((schedule for schedule in schedules if fits(schedule)), key=lambda schedule: schedule.slot)
    return tuple((held_.slot, held_.on_ts, held_.off_ts, held_.enabled) for held_ in held)


def message(revision: int, rows: Iterable[Row]) -> bytes:
    """The payload of `sched`."""
    payload = json.dumps({"rev": revision, "s": [list(row) for row in rows]}, separators=(",", ":")).encode()
    if len(payload) >= MAX_BYTES:
        raise ValueError(f"a plan of {len(payload)} bytes does not fit the firmware")
    return payload


def in_step(device: Device, schedule: Schedule) -> bool:
    """Whether the device itself holds this slot as it is now."""
    return (
        device.profile is Profile.NATIVE and fits(schedule) and device.sched_rev == device.sched_rev_device
    )


def runs_itself(device: Device, schedule: Schedule) -> bool:
    """Whether the device, out of our reach, runs this slot without us; a second run on its return would be one too many."""
    return not device.is_online and in_step(device, schedule)
