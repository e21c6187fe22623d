"""The part of a device's slots that its firmware can run by itself: plain ON and OFF at given seconds, without a rule.

The plan is what the profile tells the device: the retained `sched` of our own firmware, Tasmota's timers, Shelly's schedule jobs.
It has a revision, which changes exactly when the plan does; the device answers with the revision it holds, and only while the two
are equal is a slot in step. What a stock firmware can hold is decided by what never changes while the slot stands (its times, and
when it was made), not by the present time: or a slot could come to count as held that nobody has told the device.
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


_REACH_S: dict[Profile, int] = {Profile.TASMOTA: 6 * 86_400, Profile.SHELLY: 300 * 86_400}
"""Tasmota's timers know the day of the week, Shelly's jobs the day of the year: a later edge would come a round too early."""


def fits(profile: Profile, schedule: Schedule) -> bool:
    """Whether the firmware can hold this slot. Tasmota's timers know hours and minutes only."""
    if schedule.rrule is not None or schedule.on_command != PLAIN_ON or schedule.off_command != PLAIN_OFF:
        return False
    if profile is Profile.NATIVE:
        return True
    reach_s = _REACH_S.get(profile)
    if reach_s is None or (profile is Profile.TASMOTA and (schedule.on_ts % 60 or schedule.off_ts % 60)):
        return False
    return max(schedule.on_ts, schedule.off_ts) <= schedule.created_ms // 1000 + reach_s


def plan(device: Device, schedules: Iterable[Schedule]) -> tuple[Row, ...]:
    """The rows by slot; without those that this device's firmware cannot hold, which the service runs alone."""
    held = sorted((schedule for schedule in schedules if fits(device.profile, schedule)), key=lambda schedule: schedule.slot)
    return tuple((held_.slot, held_.on_ts, held_.off_ts, held_.enabled) for held_ in held)


def message(revision: int, rows: Iterable[Row]) -> bytes:
    """The payload of `sched`."""
    payload = json.dumps({"rev": revision, "s": [list(row) for row in rows]}, separators=(",", ":")).encode()
    if len(payload) >= MAX_BYTES:
        raise ValueError(f"a plan of {len(payload)} bytes does not fit the firmware")
    return payload


def in_step(device: Device, schedule: Schedule) -> bool:
    """Whether the device itself holds this slot as it is now."""
    return fits(device.profile, schedule) and device.sched_rev == device.sched_rev_device


def runs_itself(device: Device, schedule: Schedule) -> bool:
    """Whether the device, out of our reach, runs this slot without us; a second run on its return would be one too many."""
    return not device.is_online and in_step(device, schedule)
