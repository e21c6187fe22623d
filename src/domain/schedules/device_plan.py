"""The device plan: the slots that a device's firmware can run without the service (plain ON and OFF, no recurrence rule).

The codec encodes the plan as the retained `sched` message of our firmware, Tasmota's timers, or Shelly's schedule jobs. Its
revision changes exactly when the plan changes; the device reports the revision it stores, and a slot is synced only while both
are equal. Whether a stock firmware can store a slot depends only on fields that never change (its times and creation time), not
on the current time: otherwise a slot could become "stored" without ever having been sent to the device."""

from __future__ import annotations

import json
from collections.abc import Iterable

from domain.devices.messages import PlanRow
from domain.devices.model import Device, FirmwareProfile
from domain.schedules.model import PLAIN_OFF, PLAIN_ON, Schedule

MAX_PLAN_BYTES = 200
"""The buffer size of our firmware for this message."""


_MAX_HORIZON_S: dict[FirmwareProfile, int] = {FirmwareProfile.TASMOTA: 6 * 86_400, FirmwareProfile.SHELLY: 300 * 86_400}
"""Tasmota's timers have a day of the week, Shelly's jobs a day of the year: a later edge would run one cycle too early."""


def fits_firmware(profile: FirmwareProfile, schedule: Schedule) -> bool:
    """Whether the firmware can store this slot. Tasmota's timers have no seconds."""
    if schedule.rrule is not None or schedule.on_command != PLAIN_ON or schedule.off_command != PLAIN_OFF:
        return False
    if profile is FirmwareProfile.NATIVE:
        return True
    horizon_s = _MAX_HORIZON_S.get(profile)
    if horizon_s is None or (profile is FirmwareProfile.TASMOTA and (schedule.on_ts % 60 or schedule.off_ts % 60)):
        return False
    return max(schedule.on_ts, schedule.off_ts) <= schedule.created_ms // 1000 + horizon_s


def build_plan(device: Device, schedules: Iterable[Schedule]) -> tuple[PlanRow, ...]:
    """The rows by slot, without the slots that the firmware cannot store; the service runs those."""
    fitting = sorted(
        (schedule for schedule in schedules if fits_firmware(device.profile, schedule)), key=lambda schedule: schedule.slot
    )
    return tuple((row.slot, row.on_ts, row.off_ts, row.enabled) for row in fitting)


def encode_sched_payload(revision: int, rows: Iterable[PlanRow]) -> bytes:
    payload = json.dumps({"rev": revision, "s": [list(row) for row in rows]}, separators=(",", ":")).encode()
    if len(payload) >= MAX_PLAN_BYTES:
        raise ValueError(f"a plan of {len(payload)} bytes exceeds the {MAX_PLAN_BYTES} bytes of the firmware")
    return payload


def is_firmware_synced(device: Device, schedule: Schedule) -> bool:
    """Whether the device stores this slot in its current version."""
    return fits_firmware(device.profile, schedule) and device.sched_rev == device.sched_rev_device


def runs_on_device(device: Device, schedule: Schedule) -> bool:
    """Whether the offline device runs this slot itself; the service must then not queue the command again."""
    return not device.is_online and is_firmware_synced(device, schedule)
