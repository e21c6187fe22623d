"""Use cases of grants: create, update, delete and list them.

Every change is in the account's log. `on_grants_changed` runs after the commit, so that caches of permissions are refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.grants.grant_input import GrantDraft, GrantInput, check_input, check_single_subject, input_warnings
from domain.grants.model import AppliesVia, Grant, GrantSubject
from domain.grants.policy import is_wider
from domain.grants.ports import GrantTx
from domain.grants.window import WindowEvaluator
from domain.kernel.bounds import check_capacity
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.domain_events import DomainEvent, EventKind, Json
from domain.kernel.errors import Conflict, FieldFault, NotFound, ValidationFailed
from domain.kernel.ids import AccountId, DeviceId, GrantId, IdGenerator, IdPrefix
from domain.kernel.unit_of_work import UnitOfWork

OnGrantsChanged = Callable[[AccountId], None]
"""Called after the commit of any change to an account's grants."""

TxT = TypeVar("TxT", bound=GrantTx)
TxT_contra = TypeVar("TxT_contra", contravariant=True)


class GrantableCommand(Protocol):
    """The fields of a command definition that permission checks need."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def requires_approval(self) -> bool: ...


class GrantableCommandSource(Protocol[TxT_contra]):
    """Port: the commands of a device. The commands part, a higher layer, implements it."""

    async def effective_definitions(self, tx: TxT_contra, device: Device) -> Sequence[GrantableCommand]: ...


@dataclass(frozen=True, slots=True)
class GrantListItem:
    """A grant with the name of its subject, as lists show it."""

    grant: Grant
    subject_name: str


@dataclass(frozen=True, slots=True)
class GrantWithWarnings:
    grant: Grant
    warnings: tuple[FieldFault, ...]


class GrantService(Generic[TxT]):
    def __init__(
        self,
        *,
        uow: UnitOfWork[TxT],
        clock: Clock,
        ids: IdGenerator,
        windows: WindowEvaluator,
        commands: GrantableCommandSource[TxT],
        on_grants_changed: OnGrantsChanged,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._windows = windows
        self._commands = commands
        self._on_grants_changed = on_grants_changed

    async def list(self, caller: Session, device_id: DeviceId) -> Sequence[GrantListItem]:
        require_role(caller, Role.ADMIN)
        async with self._uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            grants = await tx.grants.list_by_device(device)
            names = await _subject_names(tx, caller.account_id)
        return [GrantListItem(grant, names.get(grant.subject, "")) for grant in grants]

    async def create(self, caller: Session, device_id: DeviceId, draft: GrantDraft) -> GrantWithWarnings:
        """Raises ValidationFailed for each invalid field, NotFound, PermissionDenied `ROLE_REQUIRED`."""
        require_role(caller, Role.ADMIN)
        check_single_subject(draft)
        now_ms = self._clock.now_ms()
        grant_input = check_input(draft.input, now_ms, self._windows)
        async with self._uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            grant = self._build_grant(caller, device, draft, grant_input, await _resolve_subject(tx, device, draft), now_ms)
            await _check_no_request_waits(tx, caller, grant)
            existing = await tx.grants.list_by_device(device)
            check_capacity(len(existing), "GRANT_LIMIT", "A device has at most {limit} grants, those on its project included")
            await tx.grants.add(grant)
            await self._emit_change(tx, caller, device, grant, "grant_created", now_ms)
            return GrantWithWarnings(grant, input_warnings(grant_input, await self._command_kinds(tx, device)))

    async def update(
        self, caller: Session, device_id: DeviceId, grant_id: GrantId, changes: Mapping[str, Any]
    ) -> GrantWithWarnings:
        """`changes` are fields of `GrantInput`; subject and device or project cannot change.

        Raises ValidationFailed, NotFound, PermissionDenied `ROLE_REQUIRED`."""
        now_ms = self._clock.now_ms()
        async with self._uow.write(caller, Role.ADMIN) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            before = await _get_grant_for_update(tx, device, grant_id)
            grant_input = GrantInput.from_grant(before).with_changes(changes)
            expiry_kept = grant_input.expires_ms == before.expires_ms
            grant_input = check_input(grant_input, now_ms, self._windows, expiry_kept=expiry_kept)
            grant = _apply_input(before, grant_input, caller)
            if is_wider(grant, before):
                await _check_no_request_waits(tx, caller, grant)
            await tx.grants.save(grant)
            await self._emit_change(tx, caller, device, grant, "grant_updated", now_ms)
            return GrantWithWarnings(grant, input_warnings(grant_input, await self._command_kinds(tx, device)))

    async def delete(self, caller: Session, device_id: DeviceId, grant_id: GrantId) -> None:
        now_ms = self._clock.now_ms()
        async with self._uow.write(caller, Role.ADMIN) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            grant = await _get_grant_for_update(tx, device, grant_id)
            await tx.grants.delete(grant_id)
            await self._emit_change(tx, caller, device, grant, "grant_revoked", now_ms)

    def _build_grant(
        self, caller: Session, device: Device, draft: GrantDraft, grant_input: GrantInput, subject: GrantSubject, now_ms: int
    ) -> Grant:
        over_device = draft.applies_via is AppliesVia.DEVICE
        return Grant(
            grant_id=GrantId(self._ids.new_id(IdPrefix.GRANT)),
            account_id=device.account_id,
            subject=subject,
            device_id=device.device_id if over_device else None,
            project_id=None if over_device else device.project_id,
            commands=grant_input.commands,
            scope=grant_input.scope,
            expires_ms=grant_input.expires_ms,
            window=grant_input.to_window(),
            rate_limit_per_minute=grant_input.rate_limit_per_minute,
            created_ms=now_ms,
            created_by=caller.label,
        )

    async def _command_kinds(self, tx: TxT, device: Device) -> dict[str, str]:
        return {definition.name: str(definition.kind) for definition in await self._commands.effective_definitions(tx, device)}

    async def _emit_change(self, tx: TxT, caller: Session, device: Device, grant: Grant, kind: EventKind, now_ms: int) -> None:
        subject_id = grant.subject.key_id or grant.subject.membership_id or ""
        reach = "this device" if grant.applies_via is AppliesVia.DEVICE else "its project"
        description = f"{kind.replace('_', ' ').capitalize()}: {', '.join(grant.commands)} for {subject_id} on {reach}"
        await tx.emit(
            DomainEvent.from_caller(caller, kind, description, now_ms, device_id=device.device_id, data=_event_data(grant))
        )
        account_id = device.account_id
        tx.after_commit(lambda: self._on_grants_changed(account_id))


def _event_data(grant: Grant) -> dict[str, Json]:
    return {
        "grantId": grant.grant_id,
        "apiKeyId": grant.subject.key_id,
        "membershipId": grant.subject.membership_id,
        "appliesVia": grant.applies_via.value,
        "commands": list(grant.commands),
        "scope": grant.scope.value,
        "expiresAtMs": grant.expires_ms,
        "rateLimitPerMinute": grant.rate_limit_per_minute,
    }


def _apply_input(grant: Grant, grant_input: GrantInput, caller: Session) -> Grant:
    known = caller.label in (grant.created_by, *grant.changed_by)
    return replace(
        grant,
        changed_by=grant.changed_by if known else (*grant.changed_by, caller.label),
        commands=grant_input.commands,
        scope=grant_input.scope,
        expires_ms=grant_input.expires_ms,
        window=grant_input.to_window(),
        rate_limit_per_minute=grant_input.rate_limit_per_minute,
    )


async def _check_no_request_waits(tx: GrantTx, caller: Session, grant: Grant) -> None:
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


async def _resolve_subject(tx: GrantTx, device: Device, draft: GrantDraft) -> GrantSubject:
    """Raises ValidationFailed for the field when the account has no such key or member."""
    if draft.key_id is not None:
        if await tx.api_keys.get(device.account_id, draft.key_id) is None:
            raise ValidationFailed.for_field(
                "apiKeyId", f"there is no API key {draft.key_id!r} in this account. Check the keyId."
            )
        return GrantSubject(key_id=draft.key_id)
    assert draft.membership_id is not None  # noqa: S101 - check_single_subject guarantees it
    membership = await tx.memberships.get(draft.membership_id)
    if membership is None or membership.account_id != device.account_id:
        message = f"there is no member {draft.membership_id!r} in this account. Check the membershipId."
        raise ValidationFailed.for_field("membershipId", message)
    return GrantSubject(membership_id=draft.membership_id)


async def _get_grant_for_update(tx: GrantTx, device: Device, grant_id: GrantId) -> Grant:
    grant = await tx.grants.get_for_update(device.account_id, grant_id)
    if grant is None or (grant.device_id != device.device_id and grant.project_id != device.project_id):
        raise NotFound.for_resource("grant", grant_id)
    return grant


async def _subject_names(tx: GrantTx, account_id: AccountId) -> dict[GrantSubject, str]:
    names = {GrantSubject(key_id=key.key_id): key.name for key in await tx.api_keys.list_by_account(account_id)}
    for member in await tx.memberships.list_members(account_id):
        names[GrantSubject(membership_id=member.membership.membership_id)] = member.user.name
    return names
