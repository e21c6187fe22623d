"""The part of a device's slots that its firmware can run by itself: plain ON and OFF at given seconds, without a rule.

The plan is what the profile tells the device: the retained `sched` of our own firmware, Tasmota's timers, Shelly's schedule jobs.
It has a revision, which changes exactly when the plan does; the device answers with the revision it holds, and only while the two
are equal is a slot in step. What a stock firmware can hold is decided by what never changes while the slot stands (its times, and
when it was made), not by the present time: or a slot could come to count as held that nobody has told the device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from domain.devices.model import Device, FirmwareProfile
from domain.schedules.model import PLAIN_OFF, PLAIN_ON, Schedule

MAX_PLAN_BYTES = 200
"""What our firmware reserves for the message."""

PlanRow = tuple[int, int, int, bool]
"""(slot, onTs, offTs, enabled)"""


_MAX_HORIZON_S: dict[FirmwareProfile, int] = {FirmwareProfile.TASMOTA: 6 * 86_400, FirmwareProfile.SHELLY: 300 * 86_400}
"""Tasmota's timers know the day of the week, Shelly's jobs the day of the year: a later edge would come a round too early."""


def fits_firmware(profile: FirmwareProfile, schedule: Schedule) -> bool:
    """Whether the firmware can hold this slot. Tasmota's timers know hours and minutes only."""
    if schedule.rrule is not None or schedule.on_command != PLAIN_ON or schedule.off_command != PLAIN_OFF:
        return False
    if profile is FirmwareProfile.NATIVE:
        return True
    reach_s = _MAX_HORIZON_S.get(profile)
    if reach_s is None or (profile is FirmwareProfile.TASMOTA and (schedule.on_ts % 60 or schedule.off_ts % 60)):
        return False
    return max(schedule.on_ts, schedule.off_ts) <= schedule.created_ms // 1000 + reach_s


def build_plan(device: Device, schedules: Iterable[Schedule]) -> tuple[PlanRow, ...]:
    """The rows by slot; without those that this device's firmware cannot hold, which the service runs alone."""
    held = sorted(
        (schedule for schedule in schedules if fits_firmware(device.profile, schedule)), key=lambda schedule: schedule.slot
    )
    return tuple((held_.slot, held_.on_ts, held_.off_ts, held_.enabled) for held_ in held)


def encode_sched_payload(revision: int, rows: Iterable[PlanRow]) -> bytes:
    """The payload of `sched`."""
    payload = json.dumps({"rev": revision, "s": [list(row) for row in rows]}, separators=(",", ":")).encode()
    if len(payload) >= MAX_PLAN_BYTES:
        raise ValueError(f"a plan of {len(payload)} bytes does not fit the firmware")
    return payload


def is_firmware_synced(device: Device, schedule: Schedule) -> bool:
    """Whether the device itself holds this slot as it is now."""
    return fits_firmware(device.profile, schedule) and device.sched_rev == device.sched_rev_device


def runs_on_device(device: Device, schedule: Schedule) -> bool:
    """Whether the device, out of our reach, runs this slot without us; a second run on its return would be one too many."""
    return not device.is_online and is_firmware_synced(device, schedule)
