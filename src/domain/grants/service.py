"""Use cases of grants on a device or its project, and on a group: create, update, delete and list them.

Every change is in the account's log. `on_grants_changed` runs after the commit, so that caches of permissions are refreshed. All
faults of a grant are reported at once, each with the JSON name of its field. A command that is not defined is no fault, because
definitions can be added later; the response contains a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Protocol, TypeVar

from domain.devices.channels import MAX_CHANNEL, on_channel
from domain.devices.lookup import get_device
from domain.devices.model import Device, DeviceGroup
from domain.devices.ports import get_group
from domain.grants.checks import is_wider
from domain.grants.model import ANY_COMMAND, AppliesVia, Grant, GrantEvaluator, GrantSubject, Scope, WeeklyGrantWindow
from domain.grants.ports import GrantsTx
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.checks import check_capacity, is_portable_timezone
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, Json, event_of
from domain.kernel.errors import Conflict, FieldError, NotFound, ValidationFailed
from domain.kernel.ids import (
    AccountId,
    DeviceId,
    GrantId,
    GroupId,
    IdAndSecretGenerator,
    IdPrefix,
    KeyId,
    MembershipId,
    ProjectId,
)
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.service import get_api_key, referenced_api_key
from domain.sign_in.presence import require_fresh_proof

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
    channels: tuple[int, ...] = ()

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
            channels=grant.channels,
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

    def to_terms(self) -> dict[str, Any]:
        """The fields of a `Grant` that people edit."""
        return {
            "commands": self.commands,
            "scope": self.scope,
            "expires_ms": self.expires_ms,
            "window": self.to_window(),
            "rate_limit_per_minute": self.rate_limit_per_minute,
            "channels": self.channels,
        }


@dataclass(frozen=True, slots=True)
class NewGrantInput:
    """A requested grant: its content, its subject, and whether it covers the device or the project."""

    input: GrantInput
    key_id: KeyId | None = None
    membership_id: MembershipId | None = None
    applies_via: AppliesVia = AppliesVia.DEVICE


@dataclass(frozen=True, slots=True)
class GrantWithWarnings:
    """A grant that was stored, and what about it may be a mistake."""

    grant: Grant
    warnings: tuple[FieldError, ...]


OnGrantsChanged = Callable[[AccountId], None]
"""Called after the commit of any change to an account's grants."""
TxT = TypeVar("TxT", bound=GrantsTx)
"""The services are generic because what lists the commands of a device lies above this part, and needs its transaction."""
TxT_contra = TypeVar("TxT_contra", contravariant=True)


class GrantCommandDefinition(Protocol):
    """The fields of a command definition that permission checks need."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def requires_approval(self) -> bool: ...

    @property
    def channels(self) -> tuple[int, ...]:
        """Those that it is for; empty: all."""


class DeviceCommandLister(Protocol[TxT_contra]):
    """Port: the commands of a device. The commands part, a higher layer, implements it."""

    async def effective_definitions(self, tx: TxT_contra, device: Device) -> Sequence[GrantCommandDefinition]: ...


@dataclass(frozen=True, slots=True)
class GrantTarget:
    """What grants are made on and listed for: exactly one of `device` and `group` is set."""

    account_id: AccountId
    project_id: ProjectId
    device: Device | None = None
    group: DeviceGroup | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The places of the grants that are listed here."""
        return self.device.places if self.device is not None else ("" if self.group is None else self.group.group_id,)

    async def list_grants(self, tx: GrantsTx) -> Sequence[Grant]:
        """Oldest first."""
        if self.group is not None:
            return await tx.grants.list_by_group(self.group.group_id)
        return [] if self.device is None else await tx.grants.list_by_device(self.device)


@service
class GrantService(Generic[TxT]):
    """Grants on a device or its project. `GroupGrantService` has the same use cases for a group."""

    uow: UnitOfWork[TxT]
    clock: Clock
    ids: IdAndSecretGenerator
    windows: GrantEvaluator
    commands: DeviceCommandLister[TxT]
    on_grants_changed: OnGrantsChanged

    async def list(self, caller: SessionCaller, on: DeviceId | GroupId) -> Sequence[tuple[Grant, str]]:
        """Each with the name of its subject."""
        require_role(caller, Role.ADMIN)
        async with self.uow.read() as tx:
            grants = await (await self._find_target(tx, caller.account_id, on)).list_grants(tx)
            names = await _subject_names(tx, caller.account_id)
        return [(grant, names.get(grant.subject, "")) for grant in grants]

    async def get(self, caller: SessionCaller, on: DeviceId | GroupId, grant_id: GrantId) -> tuple[Grant, str]:
        """With the name of its subject. Raises NotFound, PermissionDenied below Admin."""
        require_role(caller, Role.ADMIN)
        async with self.uow.read() as tx:
            grant = await _get_grant_for_update(tx, await self._find_target(tx, caller.account_id, on), grant_id)
            names = await _subject_names(tx, caller.account_id)
        return grant, names.get(grant.subject, "")

    async def list_of_key(self, caller: SessionCaller, key_id: str) -> Sequence[tuple[Grant, str]]:
        """The key's grants, each with the name of the device, group or project that it is on. Raises NotFound."""
        async with self.uow.read() as tx:
            key = await get_api_key(tx, caller, key_id)
            grants = await tx.grants.list_by_key(key.account_id, key.key_id)
            names = await _place_names(tx, key.account_id) if grants else {}
        return [(grant, names.get(grant.place, "")) for grant in grants]

    async def create(self, caller: SessionCaller, on: DeviceId | GroupId, draft: NewGrantInput) -> GrantWithWarnings:
        """Raises ValidationFailed for each invalid field, NotFound, PermissionDenied `ROLE_REQUIRED`, `STEP_UP_REQUIRED`."""
        require_role(caller, Role.ADMIN)
        check_single_subject(draft)
        now_ms = self.clock.now_ms()
        grant_input = check_input(draft.input, now_ms, self.windows)
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            place = await self._find_target(tx, caller.account_id, on)
            subject = await _resolve_subject(tx, place.account_id, draft)
            grant = self._build_grant(caller, place, draft, grant_input, subject, now_ms)
            await _check_no_pending_request(tx, caller, grant)
            message = "A device or group has at most {limit} grants, those on the device's project and groups included"
            check_capacity(len(await place.list_grants(tx)), "GRANT_LIMIT", message)
            await tx.grants.add(grant)
            self._emit_change(tx, caller, place, grant, "grant_created", now_ms)
            return GrantWithWarnings(grant, await self._list_warnings(tx, place, grant_input))

    async def update(
        self, caller: SessionCaller, on: DeviceId | GroupId, grant_id: GrantId, changes: Mapping[str, Any]
    ) -> GrantWithWarnings:
        """`changes` are fields of `GrantInput`; subject and place cannot change.

        Raises ValidationFailed, NotFound, PermissionDenied `ROLE_REQUIRED`, `STEP_UP_REQUIRED` for a wider grant."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            place = await self._find_target(tx, caller.account_id, on)
            before = await _get_grant_for_update(tx, place, grant_id)
            grant_input = GrantInput.from_grant(before).with_changes(changes)
            expiry_kept = grant_input.expires_ms == before.expires_ms
            grant_input = check_input(grant_input, now_ms, self.windows, expiry_kept=expiry_kept)
            grant = _apply_input(before, grant_input, caller)
            if is_wider(grant, before):
                await require_fresh_proof(tx, caller, now_ms)
                await _check_no_pending_request(tx, caller, grant)
            await tx.grants.save(grant)
            self._emit_change(tx, caller, place, grant, "grant_updated", now_ms)
            return GrantWithWarnings(grant, await self._list_warnings(tx, place, grant_input))

    async def delete(self, caller: SessionCaller, on: DeviceId | GroupId, grant_id: GrantId) -> None:
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            place = await self._find_target(tx, caller.account_id, on)
            grant = await _get_grant_for_update(tx, place, grant_id)
            await tx.grants.delete(grant_id)
            self._emit_change(tx, caller, place, grant, "grant_revoked", now_ms)

    async def _find_target(self, tx: TxT, account_id: AccountId, on: str) -> GrantTarget:
        """Raises NotFound."""
        device = await get_device(tx, account_id, DeviceId(on))
        return GrantTarget(account_id, device.project_id, device=device)

    def _build_grant(
        self,
        caller: SessionCaller,
        place: GrantTarget,
        draft: NewGrantInput,
        grant_input: GrantInput,
        subject: GrantSubject,
        now_ms: int,
    ) -> Grant:
        device = place.device if draft.applies_via is AppliesVia.DEVICE else None
        return Grant(
            grant_id=GrantId(self.ids.new_id(IdPrefix.GRANT)),
            account_id=place.account_id,
            subject=subject,
            device_id=None if device is None else device.device_id,
            project_id=None if device is not None else place.project_id,
            group_id=None if place.group is None else place.group.group_id,
            created_ms=now_ms,
            created_by=caller.label,
            **grant_input.to_terms(),
        )

    async def _list_warnings(self, tx: TxT, place: GrantTarget, grant_input: GrantInput) -> tuple[FieldError, ...]:
        """None for a group, whose members may have different commands."""
        if place.device is None:
            return ()
        definitions = await self.commands.effective_definitions(tx, place.device)
        kinds = {definition.name: str(definition.kind) for definition in definitions}
        known = {each.channel for each in place.device.all_channels}
        return (*input_warnings(grant_input, kinds), *_channel_warnings(grant_input, known))

    def _emit_change(
        self, tx: TxT, caller: SessionCaller, place: GrantTarget, grant: Grant, kind: EventKind, now_ms: int
    ) -> None:
        subject_id = grant.subject.key_id or grant.subject.membership_id or ""
        reach = _REACHES[grant.applies_via] if place.group is None else f"group {place.group.name}"
        reach = on_channel(reach, *grant.channels)
        description = f"{kind.replace('_', ' ').capitalize()}: {', '.join(grant.commands)} for {subject_id} on {reach}"
        tx.emit(event_of(caller, kind, description, now_ms, place.device, **_event_data(grant)))
        tx.after_commit(lambda: self.on_grants_changed(place.account_id))


class GroupGrantService(GrantService[TxT]):
    """Grants on a group: they cover every device while it is a member."""

    async def _find_target(self, tx: TxT, account_id: AccountId, on: str) -> GrantTarget:
        group = await get_group(tx, account_id, GroupId(on), for_update=True)
        return GrantTarget(account_id, group.project_id, group=group)


_REACHES = {AppliesVia.DEVICE: "this device", AppliesVia.PROJECT: "its project", AppliesVia.GROUP: "a group of it"}


def _event_data(grant: Grant) -> dict[str, Json]:
    return {
        "grantId": grant.grant_id,
        "apiKeyId": grant.subject.key_id,
        "membershipId": grant.subject.membership_id,
        "appliesVia": grant.applies_via.value,
        "groupId": grant.group_id,
        "commands": list(grant.commands),
        "scope": grant.scope.value,
        "expiresAtMs": grant.expires_ms,
        "rateLimitPerMinute": grant.rate_limit_per_minute,
        "channels": list(grant.channels),
    }


def _apply_input(grant: Grant, grant_input: GrantInput, caller: SessionCaller) -> Grant:
    known = caller.label in (grant.created_by, *grant.changed_by)
    return replace(grant, changed_by=grant.changed_by if known else (*grant.changed_by, caller.label), **grant_input.to_terms())


async def _check_no_pending_request(tx: GrantsTx, caller: SessionCaller, grant: Grant) -> None:
    """While a request of a key waits for approval, an Admin does not give the key more on that device; an Owner may.

    Raises Conflict `REQUEST_PENDING`."""
    key_id = grant.subject.key_id
    if key_id is None or caller.role is Role.OWNER:
        return
    waiting = await tx.devices.list_by_ids(await tx.approvals.list_pending_devices(grant.account_id, key_id))
    if any(grant.applies_to(device) for device in waiting):
        raise Conflict(
            "A request of this API key waits for approval on a device that the grant covers. Have the request decided first, or "
            "ask an Owner.",
            code="REQUEST_PENDING",
        )


async def _resolve_subject(tx: GrantsTx, account_id: AccountId, draft: NewGrantInput) -> GrantSubject:
    """Raises ValidationFailed for the field when the account has no such key or member."""
    if draft.key_id is not None:
        await referenced_api_key(tx, account_id, draft.key_id, "apiKeyId")
        return GrantSubject(key_id=draft.key_id)
    assert draft.membership_id is not None  # noqa: S101 - check_single_subject guarantees it
    membership = await tx.memberships.get(draft.membership_id)
    if membership is None or membership.account_id != account_id:
        message = f"there is no member {draft.membership_id!r} in this account. Check the membershipId."
        raise ValidationFailed.for_field("membershipId", message)
    return GrantSubject(membership_id=draft.membership_id)


async def _get_grant_for_update(tx: GrantsTx, place: GrantTarget, grant_id: GrantId) -> Grant:
    grant = await tx.grants.get_for_update(place.account_id, grant_id)
    if grant is None or grant.place not in place.ids:
        raise NotFound.for_resource("grant", grant_id)
    return grant


async def _place_names(tx: GrantsTx, account_id: AccountId) -> dict[str, str]:
    names: dict[str, str] = {device.device_id: device.name for device in await tx.devices.list(account_id)}
    names |= {project.project_id: project.name for project, _ in await tx.projects.list_with_device_counts(account_id)}
    return names | {group.group_id: group.name for group in await tx.groups.list(account_id)}


async def _subject_names(tx: GrantsTx, account_id: AccountId) -> dict[GrantSubject, str]:
    names = {GrantSubject(key_id=key.key_id): key.name for key in await tx.api_keys.list_by_account(account_id)}
    for member in await tx.memberships.list_members(account_id):
        names[GrantSubject(membership_id=member.membership.membership_id)] = member.user.name
    return names


def check_single_subject(draft: NewGrantInput) -> None:
    if draft.key_id is None and draft.membership_id is None:
        message = "give exactly one of apiKeyId and membershipId; both are missing."
    elif draft.key_id is not None and draft.membership_id is not None:
        message = "give exactly one of apiKeyId and membershipId, not both; make two grants for two subjects."
    else:
        return
    details = [FieldError("apiKeyId", message), FieldError("membershipId", message)]
    raise ValidationFailed(f"A grant belongs to one subject: {message}", details=details)


def check_input(grant_input: GrantInput, now_ms: int, windows: GrantEvaluator, *, expiry_kept: bool = False) -> GrantInput:
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
    channels = tuple(sorted(set(grant_input.channels)))
    return replace(grant_input, commands=tuple(dict.fromkeys(grant_input.commands)), channels=channels)


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
    for index, channel in enumerate(grant_input.channels):
        if not 1 <= channel <= MAX_CHANNEL:
            yield FieldError(f"channels.{index}", f"a channel is 1 to {MAX_CHANNEL}.")
    if grant_input.expires_ms is not None and grant_input.expires_ms <= now_ms and not expiry_kept:
        yield FieldError("expiresAt", "is in the past; give a later time, or omit it for a grant that does not expire.")
    rate = grant_input.rate_limit_per_minute
    if rate is not None and not 1 <= rate <= MAX_RATE_PER_MINUTE:
        yield FieldError("rateLimitPerMinute", f"must be 1 to {MAX_RATE_PER_MINUTE}, or omitted for no limit.")


def _channel_warnings(grant_input: GrantInput, known: Collection[int]) -> Iterator[FieldError]:
    for index, channel in enumerate(grant_input.channels):
        if channel not in known:
            yield FieldError(f"channels.{index}", f"this device has no channel {channel} yet; the grant covers it when it has.")


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
