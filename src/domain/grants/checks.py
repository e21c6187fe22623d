"""Whether a grant allows a call, decided without I/O.

A grant has six checks in a fixed order: command, channel, scope, expiry, window, rate. It allows the call when none fails. The
rate check uses up a count, so it comes last and is not made here. When all grants fail, the error names the closest denial: the
grant that got furthest along this order, because it needs the smallest change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from domain.devices.channels import RELAY_CHANNEL, covers_channels
from domain.devices.model import Device, FirmwareProfile
from domain.grants.model import RATE_WINDOW_S, Grant, GrantEvaluator, Scope, WeeklyGrantWindow
from domain.kernel.clock import SECOND_MS, to_iso
from domain.kernel.errors import PermissionDenied, RateLimited


class GrantCheckStep(IntEnum):
    """In the order of the checks; a higher value is a closer denial."""

    COMMAND = 0
    CHANNEL = 1
    SCOPE = 2
    EXPIRY = 3
    WINDOW = 4
    RATE = 5


DENIAL_CODES: dict[GrantCheckStep, str] = {
    GrantCheckStep.COMMAND: "COMMAND_NOT_GRANTED",
    GrantCheckStep.CHANNEL: "CHANNEL_NOT_GRANTED",
    GrantCheckStep.SCOPE: "SCOPE_TOO_NARROW",
    GrantCheckStep.EXPIRY: "GRANT_EXPIRED",
    GrantCheckStep.WINDOW: "OUTSIDE_GRANT_WINDOW",
    GrantCheckStep.RATE: "RATE_LIMITED",
}
GRANT_MISSING = "GRANT_MISSING"


@dataclass(frozen=True, slots=True)
class GrantCheckInput:
    """`command` None is a read. `runs_later`: the command will run at another time, so its window is checked when it runs."""

    command: str | None
    is_query: bool = False
    runs_later: bool = False
    effects: tuple[str, ...] = ()
    """The commands that it stands for (`effects_of`); the grant must cover them too."""
    channels: tuple[int, ...] | None = (RELAY_CHANNEL,)
    """The channels that it may switch (`channels_of`); the grant must cover them all."""

    @classmethod
    def for_device(
        cls, device: Device, command: str, channel: int, *, is_query: bool, runs_later: bool = False
    ) -> GrantCheckInput:
        """A command is judged by its effect: what may switch is no query, whatever its definition says."""
        effects = effects_of(device.profile, command)
        is_query = is_query and not effects
        channels = () if is_query and channel == RELAY_CHANNEL else channels_of(device.profile, command, channel)
        return cls(command, is_query, runs_later, effects, channels)

    def missing_command(self, grant: Grant) -> str | None:
        """The first command that the grant does not cover: this one, or one that it stands for."""
        return next((name for name in (self.command or "", *self.effects) if not grant.covers_command(name)), None)


SWITCHING = ("ON", "OFF")
_STOCK_SWITCHING: Mapping[FirmwareProfile, re.Pattern[str]] = {
    FirmwareProfile.TASMOTA: re.compile(
        r"(POWER|POWERONSTATE|PULSETIME|BACKLOG|RULE|EVENT|SCRIPT|BR|TIMER|TIMERS|PUBLISH|WEBSEND|WEBQUERY|DEVGROUPSEND"
        r"|TUYASEND|SERIALSEND|DIMMER|CHANNEL|COLOR|HSBCOLOR|WHITE|CT|SCHEME|FANSPEED|SHUTTER[A-Z]*|SWITCHMODE|SETOPTION"
        r"|TEMPLATE|MODULE|GPIO)\d*"
    )
}
"""Commands of stock firmware, sent under their own names, that switch a relay, at once or later."""


_EFFECTS: Mapping[str, tuple[str, ...]] = {
    "TOGGLE": SWITCHING,
    "SET_LEVEL": SWITCHING,
    "SET_COLOR": SWITCHING,
    "SET_POSITION": ("OPEN", "CLOSE"),
}
_STOCK_CHANNEL = re.compile(r"POWER([1-9]\d?)?")


def channels_of(profile: FirmwareProfile, command: str, channel: int) -> tuple[int, ...] | None:
    """The channels that a command for this channel may switch. None: any of the device, because stock firmware takes it under its
    own name, whatever channel is meant."""
    if command in _EFFECTS or not effects_of(profile, command):
        return (channel,)
    named = _STOCK_CHANNEL.fullmatch(command)
    return None if named is None else (int(named[1] or RELAY_CHANNEL),)


def effects_of(profile: FirmwareProfile, command: str) -> tuple[str, ...]:
    """The built-in commands that this one stands for, whichever it would do: it needs the permission and the approval that they
    need. Empty for a command that switches nothing."""
    if command in _EFFECTS:
        return _EFFECTS[command]
    stock = _STOCK_SWITCHING.get(profile)
    return SWITCHING if stock is not None and stock.fullmatch(command) else ()


READ_REQUEST = GrantCheckInput(None)


@dataclass(frozen=True, slots=True)
class FailedGrantCheck:
    """A grant, the first check it fails, and when it would pass if nothing else changed (None: waiting does not help)."""

    grant: Grant
    check: GrantCheckStep
    passes_from_ms: int | None = None

    @property
    def code(self) -> str:
        return DENIAL_CODES[self.check]


def first_failed_check(grant: Grant, request: GrantCheckInput, now_ms: int, evaluator: GrantEvaluator) -> FailedGrantCheck | None:
    """The first failed check, except the rate; None when the grant allows the call."""
    if request.command is not None:
        if request.missing_command(grant) is not None:
            return FailedGrantCheck(grant, GrantCheckStep.COMMAND)
        if not covers_channels(grant.channels, request.channels):
            return FailedGrantCheck(grant, GrantCheckStep.CHANNEL)
        if grant.scope is Scope.READ and not request.is_query:
            return FailedGrantCheck(grant, GrantCheckStep.SCOPE)
    if grant.is_expired(now_ms):
        return FailedGrantCheck(grant, GrantCheckStep.EXPIRY)
    if request.command is None or request.runs_later or grant.window.is_always_open or evaluator.is_open(grant.window, now_ms):
        return None
    opens_ms = evaluator.next_open_ms(grant.window, now_ms)
    if opens_ms is not None and grant.is_expired(opens_ms):
        opens_ms = None
    return FailedGrantCheck(grant, GrantCheckStep.WINDOW, opens_ms)


def filter_applicable(
    grants: Iterable[Grant], request: GrantCheckInput, now_ms: int, evaluator: GrantEvaluator
) -> tuple[list[Grant], list[FailedGrantCheck]]:
    """The grants that allow the call apart from their rate, and the denials of the others; both in the given order."""
    checked = [(grant, first_failed_check(grant, request, now_ms, evaluator)) for grant in grants]
    return [grant for grant, denial in checked if denial is None], [denial for _, denial in checked if denial is not None]


def closest_denial(denials: Sequence[FailedGrantCheck]) -> FailedGrantCheck:
    """The denial furthest along the order of checks; of equals, the one that passes soonest or expired last; then the oldest."""
    return max(denials, key=_closeness)


def _closeness(denial: FailedGrantCheck) -> tuple[int, float]:
    if denial.check is GrantCheckStep.EXPIRY:
        return denial.check, denial.grant.expires_ms or 0
    return denial.check, float("-inf") if denial.passes_from_ms is None else -denial.passes_from_ms


def denial_error(denial: FailedGrantCheck, request: GrantCheckInput, now_ms: int) -> PermissionDenied | RateLimited:
    message = explain_denial(denial, request)
    if denial.check is not GrantCheckStep.RATE:
        return PermissionDenied(message, code=denial.code)
    wait_ms = (denial.passes_from_ms or now_ms) - now_ms
    return RateLimited(
        message, retry_after=max(1, -(-wait_ms // SECOND_MS)), limit=denial.grant.rate_limit_per_minute, window_s=RATE_WINDOW_S
    )


def explain_denial(denial: FailedGrantCheck, request: GrantCheckInput) -> str:
    """What is wrong and what to do about it, in one or two sentences."""
    grant = denial.grant
    name = f"Grant {grant.grant_id}"
    match denial.check:
        case GrantCheckStep.COMMAND:
            missing = request.missing_command(grant)
            if missing == request.command:
                return (
                    f"{name} covers {', '.join(grant.commands)}, not {request.command}. "
                    f"An Owner or Admin can add {request.command} to its commands."
                )
            return (
                f"{name} covers {', '.join(grant.commands)}, not {missing}, which {request.command} may do. "
                f"An Owner or Admin can add {missing} to its commands."
            )
        case GrantCheckStep.CHANNEL:
            covered = ", ".join(map(str, grant.channels))
            if request.channels is None:
                return (
                    f"{name} covers channel {covered} only, and {request.command} may switch any channel. "
                    "An Owner or Admin can give it all channels."
                )
            wanted = ", ".join(map(str, request.channels))
            return (
                f"{name} covers channel {covered} only, not channel {wanted}. An Owner or Admin can add channel {wanted} to it."
            )
        case GrantCheckStep.SCOPE:
            return (
                f"{name} has the scope READ, which covers reads and QUERY commands; {request.command} is an ACTION. "
                "An Owner or Admin can give it the scope WRITE."
            )
        case GrantCheckStep.EXPIRY:
            expired = to_iso(grant.expires_ms or 0)
            return f"{name} expired at {expired}. An Owner or Admin can set a later expiresAt, or null for none."
        case GrantCheckStep.WINDOW:
            return f"{name} is open {describe_window(grant.window)}. {_next_opening_advice(denial)}"
        case GrantCheckStep.RATE:
            when = "" if denial.passes_from_ms is None else f" The next one is free at {to_iso(denial.passes_from_ms)}."
            return f"{name} allows {grant.rate_limit_per_minute} commands in any 60 seconds; all are used.{when}"


def _next_opening_advice(denial: FailedGrantCheck) -> str:
    if denial.passes_from_ms is not None:
        return f"Try again at {to_iso(denial.passes_from_ms)}, or ask an Owner or Admin to widen its window."
    if denial.grant.expires_ms is not None:
        return "It does not open again before it expires; ask an Owner or Admin to change its window or expiresAt."
    return "It does not open within a year; ask an Owner or Admin to change its window."


def describe_window(window: WeeklyGrantWindow) -> str:
    """`Mon Tue 08:00-17:30 Europe/Berlin`."""
    days = "every day" if len(window.days) == len(_DAYS) else " ".join(_DAYS[day] for day in sorted(window.days))
    if window.from_minute is None or window.to_minute is None:
        return f"{days} ({window.timezone})"
    return f"{days} {_format_minute(window.from_minute)}-{_format_minute(window.to_minute)} ({window.timezone})"


_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


def _format_minute(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def missing_grant_error(subject_name: str, device_id: str, request: GrantCheckInput) -> PermissionDenied:
    action = "read it" if request.command is None else f"run {request.command} on it"
    return PermissionDenied(
        f"{subject_name} has no grant on device {device_id} and may not {action}. "
        "An Owner or Admin can create one under the device's grants.",
        code=GRANT_MISSING,
    )


def is_wider(after: Grant, before: Grant) -> bool:
    """Whether `after` may allow something that `before` does not. Another window counts as wider, unless it was always open."""
    scopes = list(Scope)
    return (
        any(not before.covers_command(command) for command in after.commands)
        or not covers_channels(before.channels, after.channels or None)
        or scopes.index(after.scope) > scopes.index(before.scope)
        or _is_above(after.expires_ms, before.expires_ms)
        or _is_above(after.rate_limit_per_minute, before.rate_limit_per_minute)
        or (after.window != before.window and not before.window.is_always_open)
    )


def _is_above(limit: int | None, other: int | None) -> bool:
    """None is no limit."""
    return other is not None and (limit is None or limit > other)
