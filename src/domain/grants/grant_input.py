"""Validation of a grant before it is stored. All faults are reported at once, each with the JSON name of its field.

A command that is not defined is allowed, because definitions can be added later; the response contains a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from domain.grants.grant_window import GrantWindowEvaluator, WeeklyGrantWindow
from domain.grants.model import ANY_COMMAND, AppliesVia, Grant, Scope
from domain.kernel.checks import is_portable_timezone
from domain.kernel.errors import FieldError, ValidationFailed
from domain.kernel.ids import KeyId, MembershipId

MAX_COMMANDS = 100
MAX_RATE_PER_MINUTE = 1_000
_COMMAND_NAME_PATTERN = re.compile(r"[A-Z0-9_]{1,64}")


@dataclass(frozen=True, slots=True)
class GrantInput:
    """The requested content of a new or an edited grant."""

    commands: tuple[str, ...]
    scope: Scope = Scope.WRITE
    expires_ms: int | None = None
    active_days: tuple[int, ...] = ()
    active_from_minute: int | None = None
    active_to_minute: int | None = None
    timezone: str = "UTC"
    rate_limit_per_minute: int | None = None

    @classmethod
    def from_grant(cls, grant: Grant) -> GrantInput:
        return cls(
            commands=grant.commands,
            scope=grant.scope,
            expires_ms=grant.expires_ms,
            active_days=tuple(sorted(grant.window.active_days)),
            active_from_minute=grant.window.from_minute,
            active_to_minute=grant.window.to_minute,
            timezone=grant.window.timezone,
            rate_limit_per_minute=grant.rate_limit_per_minute,
        )

    def with_changes(self, changes: Mapping[str, Any]) -> GrantInput:
        """A copy with some fields replaced; keys are field names of this class. Raises ValidationFailed for other keys."""
        unknown = changes.keys() - {field.name for field in fields(self)}
        if unknown:
            raise ValidationFailed.for_field(min(unknown), "cannot be changed; delete the grant and create another.")
        return replace(self, **changes)

    def to_window(self) -> WeeklyGrantWindow:
        return WeeklyGrantWindow(
            active_days=frozenset(self.active_days),
            from_minute=self.active_from_minute,
            to_minute=self.active_to_minute,
            timezone=self.timezone,
        )


@dataclass(frozen=True, slots=True)
class NewGrantInput:
    """A requested grant: its content, its subject, and whether it covers the device or the project."""

    input: GrantInput
    key_id: KeyId | None = None
    membership_id: MembershipId | None = None
    applies_via: AppliesVia = AppliesVia.DEVICE


def check_single_subject(draft: NewGrantInput) -> None:
    if draft.key_id is None and draft.membership_id is None:
        message = "give exactly one of apiKeyId and membershipId; both are missing."
    elif draft.key_id is not None and draft.membership_id is not None:
        message = "give exactly one of apiKeyId and membershipId, not both; make two grants for two subjects."
    else:
        return
    details = [FieldError("apiKeyId", message), FieldError("membershipId", message)]
    raise ValidationFailed(f"A grant belongs to one subject: {message}", details=details)


def check_input(grant_input: GrantInput, now_ms: int, windows: GrantWindowEvaluator, *, expiry_kept: bool = False) -> GrantInput:
    """The input without duplicate commands. Raises ValidationFailed for every invalid field.

    `expiry_kept`: an edit that does not change the expiry, which may be in the past."""
    faults = [*_command_faults(grant_input.commands), *_limit_faults(grant_input, now_ms, expiry_kept)]
    try:
        timezone = grant_input.to_window().timezone
    except ValidationFailed as error:
        faults += error.details
    else:
        if not (is_portable_timezone(timezone) and windows.is_known_timezone(timezone)):
            faults.append(FieldError("timezone", f"{timezone!r} is not an IANA time zone such as Europe/Berlin or UTC."))
    if faults:
        raise ValidationFailed("The grant is not valid: " + faults[0].field + ": " + faults[0].message, details=faults)
    return replace(grant_input, commands=tuple(dict.fromkeys(grant_input.commands)))


def _command_faults(commands: Sequence[str]) -> Iterator[FieldError]:
    if not commands:
        yield FieldError("commands", 'name at least one command, or ["*"] for all.')
    if len(commands) > MAX_COMMANDS:
        yield FieldError("commands", f'takes at most {MAX_COMMANDS} names; use ["*"] for all.')
    for index, name in enumerate(commands):
        if name != ANY_COMMAND and _COMMAND_NAME_PATTERN.fullmatch(name) is None:
            message = "a command's name is 1 to 64 of A-Z, 0-9 and _, such as SET_LEVEL; or * for all."
            yield FieldError(f"commands.{index}", message)


def _limit_faults(grant_input: GrantInput, now_ms: int, expiry_kept: bool) -> Iterator[FieldError]:
    if grant_input.expires_ms is not None and grant_input.expires_ms <= now_ms and not expiry_kept:
        yield FieldError("expiresAt", "is in the past; give a later time, or omit it for a grant that does not expire.")
    rate = grant_input.rate_limit_per_minute
    if rate is not None and not 1 <= rate <= MAX_RATE_PER_MINUTE:
        yield FieldError("rateLimitPerMinute", f"must be 1 to {MAX_RATE_PER_MINUTE}, or omitted for no limit.")


def input_warnings(grant_input: GrantInput, kinds: Mapping[str, str]) -> Iterator[FieldError]:
    """Valid input that may be a mistake. `kinds`: the kind of each of the device's commands, by name."""
    for index, name in enumerate(grant_input.commands):
        if name == ANY_COMMAND:
            continue
        if name not in kinds:
            yield FieldError(
                f"commands.{index}", f"this device has no command {name} yet; the grant covers it when it is defined."
            )
        elif grant_input.scope is Scope.READ and kinds[name] != "QUERY":
            message = f"{name} is an ACTION and the scope READ covers QUERY commands only; give the scope WRITE to allow it."
            yield FieldError(f"commands.{index}", message)
