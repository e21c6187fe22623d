"""How each firmware answers a command: what may be sent again, what ends without an answer, and what a relay report can mean."""

from __future__ import annotations

from domain.commands.model import Execution, ExecutionStatus
from domain.devices.model import Device, FirmwareProfile
from domain.kernel.clock import MINUTE_MS

CAUSE_WINDOW_MS = MINUTE_MS
"""How long after its deadline an execution may still count as the cause of a relay change."""


def target_relay_state(cmd: str) -> bool | None:
    """The relay state that the command sets; None when the command alone does not decide it."""
    return {"ON": True, "OFF": False}.get(cmd)


def can_resend(profile: FirmwareProfile, cmd: str) -> bool:
    """Our firmware recognises a repeated id. Stock firmware would run the command again, so only idempotent commands may be
    resent to it."""
    return profile is FirmwareProfile.NATIVE or target_relay_state(cmd) is not None or cmd in ("STATUS", "GET_SCHEDULES")


def is_done_when_sent(device: Device, cmd: str) -> bool:
    """ESPHome answers only with a change of state: a command for the state it already has gets no answer."""
    target = target_relay_state(cmd)
    return device.profile is FirmwareProfile.ESPHOME and target is not None and target == device.relay


def is_confirmed_by_state(profile: FirmwareProfile, execution: Execution, relay: bool) -> bool:
    """Whether this command can explain a relay report that names no execution."""
    if profile is FirmwareProfile.NATIVE or execution.status is not ExecutionStatus.SENT:
        return False
    return execution.cmd == "TOGGLE" or target_relay_state(execution.cmd) == relay


def can_have_caused(execution: Execution, device: Device, at_ms: int) -> bool:
    return execution.device_id == device.device_id and at_ms <= execution.expires_ms + CAUSE_WINDOW_MS
