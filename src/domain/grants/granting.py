"""Use cases of grants: give, change and take back permission, and tell who has it.

Every change is in the account's log, and whoever keeps an index of who may see what is told after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from domain.devices.lookup import device_of
from domain.devices.model import Device
from domain.grants.draft import Draft, Terms, check_subject, checked, warnings
from domain.grants.model import AppliesVia, Grant, Subject
from domain.grants.ports import GrantsTx
from domain.grants.window import WindowEvaluator
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import FieldFault, Invalid, NotFound
from domain.kernel.facts import EventKind, Fact, Json
from domain.kernel.ids import AccountId, DeviceId, GrantId, IdSource, Prefix
from domain.kernel.unit_of_work import UnitOfWork

GrantsChanged = Callable[[AccountId], None]
"""Called after the commit of any change to an account's grants."""

TxT = TypeVar("TxT", bound=GrantsTx)
TxT_contra = TypeVar("TxT_contra", bound=GrantsTx, contravariant=True)


class KnownCommand(Protocol):
    """As much of a command's definition as permission needs."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def requires_approval(self) -> bool: ...


class CommandBook(Protocol[TxT_contra]):
    """What commands a device knows. Implemented by the commands part, which stands above this one."""

    async def definitions(self, tx: TxT_contra, device: Device) -> Sequence[KnownCommand]: ...


@dataclass(frozen=True, slots=True)
class NamedGrant:
    """A grant with the name of its subject, as lists show it."""

    grant: Grant
    subject_name: str


@dataclass(frozen=True, slots=True)
class Granted:
    grant: Grant
    warnings: tuple[FieldFault, ...]


class GrantService(Generic[TxT]):
    def __init__(
        self,
        *,
        uow: UnitOfWork[TxT],
        clock: Clock,
        ids: IdSource,
        windows: WindowEvaluator,
        commands: CommandBook[TxT],
        on_grants_changed: GrantsChanged,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._windows = windows
        self._commands = commands
        self._on_grants_changed = on_grants_changed

    async def list(self, caller: Session, device_id: DeviceId) -> Sequence[NamedGrant]:
        require_role(caller, Role.ADMIN)
        async with self._uow.read() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            grants = await tx.grants.on_device(device)
            names = await _subject_names(tx, caller.account_id)
        return [NamedGrant(grant, names.get(grant.subject, "")) for grant in grants]

    async def create(self, caller: Session, device_id: DeviceId, draft: Draft) -> Granted:
        """Raises Invalid naming each field at fault, NotFound, Refused `ROLE_REQUIRED`."""
        require_role(caller, Role.ADMIN)
        check_subject(draft)
        now_ms = self._clock.now_ms()
        terms = checked(draft.terms, now_ms, self._windows)
        async with self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            grant = self._granted(caller, device, draft, terms, await _subject(tx, device, draft), now_ms)
            await tx.grants.add(grant)
            await self._changed(tx, caller, device, grant, "grant_created", now_ms)
            return Granted(grant, warnings(terms, await self._kinds(tx, device)))

    async def edit(
        self, caller: Session, device_id: DeviceId, grant_id: GrantId, changes: Mapping[str, Any]
    ) -> Granted:
        """`changes` are fields of `Terms`. Subject and reach stay; raises Invalid, NotFound, Refused `ROLE_REQUIRED`."""
        require_role(caller, Role.ADMIN)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            before = await _grant_on(tx, device, grant_id)
            terms = Terms.of(before).changed(changes)
            kept = terms.expires_ms == before.expires_ms
            terms = checked(terms, now_ms, self._windows, expiry_kept=kept)
            grant = _with_terms(before, terms)
            await tx.grants.save(grant)
            await self._changed(tx, caller, device, grant, "grant_updated", now_ms)
            return Granted(grant, warnings(terms, await self._kinds(tx, device)))

    async def delete(self, caller: Session, device_id: DeviceId, grant_id: GrantId) -> None:
        require_role(caller, Role.ADMIN)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            grant = await _grant_on(tx, device, grant_id)
            await tx.grants.delete(grant_id)
            await self._changed(tx, caller, device, grant, "grant_revoked", now_ms)

    def _granted(
        self, caller: Session, device: Device, draft: Draft, terms: Terms, subject: Subject, now_ms: int
    ) -> Grant:
        over_device = draft.applies_via is AppliesVia.DEVICE
        return Grant(
            grant_id=GrantId(self._ids.new(Prefix.GRANT)),
            account_id=device.account_id,
            subject=subject,
            device_id=device.device_id if over_device else None,
            project_id=None if over_device else device.project_id,
            commands=terms.commands,
            scope=terms.scope,
            expires_ms=terms.expires_ms,
            window=terms.window(),
            rate_limit_per_minute=terms.rate_limit_per_minute,
            created_ms=now_ms,
            created_by=caller.label,
        )

    async def _kinds(self, tx: TxT, device: Device) -> dict[str, str]:
        return {known.name: str(known.kind) for known in await self._commands.definitions(tx, device)}

    async def _changed(
        self, tx: TxT, caller: Session, device: Device, grant: Grant, kind: EventKind, now_ms: int
    ) -> None:
        holder = grant.subject.key_id or grant.subject.membership_id or ""
        reach = "this device" if grant.applies_via is AppliesVia.DEVICE else "its project"
        fact = Fact(
            account_id=device.account_id,
            kind=kind,
            description=f"{kind.replace('_', ' ').capitalize()}: {', '.join(grant.commands)} for {holder} on {reach}",
            at_ms=now_ms,
            source=caller.label,
            device_id=device.device_id,
            data=_audited(grant),
            address=caller.address,
        )
        await tx.record(fact)
        account_id = device.account_id
        tx.after_commit(lambda: self._on_grants_changed(account_id))


def _audited(grant: Grant) -> dict[str, Json]:
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


def _with_terms(grant: Grant, terms: Terms) -> Grant:
    return replace(
        grant,
        commands=terms.commands,
        scope=terms.scope,
        expires_ms=terms.expires_ms,
        window=terms.window(),
        rate_limit_per_minute=terms.rate_limit_per_minute,
    )


async def _subject(tx: GrantsTx, device: Device, draft: Draft) -> Subject:
    """Raises Invalid naming the field when the account has no such key or member."""
    if draft.key_id is not None:
        if await tx.keys.get(device.account_id, draft.key_id) is None:
            raise Invalid.field("apiKeyId", f"there is no API key {draft.key_id!r} in this account. Check the keyId.")
        return Subject(key_id=draft.key_id)
    assert draft.membership_id is not None  # noqa: S101 - check_subject has seen to it
    membership = await tx.memberships.get(draft.membership_id)
    if membership is None or membership.account_id != device.account_id:
        message = f"there is no member {draft.membership_id!r} in this account. Check the membershipId."
        raise Invalid.field("membershipId", message)
    return Subject(membership_id=draft.membership_id)


async def _grant_on(tx: GrantsTx, device: Device, grant_id: GrantId) -> Grant:
    grant = await tx.grants.held(device.account_id, grant_id)
    if grant is None or (grant.device_id != device.device_id and grant.project_id != device.project_id):
        raise NotFound.of("grant", grant_id)
    return grant


async def _subject_names(tx: GrantsTx, account_id: AccountId) -> dict[Subject, str]:
    names = {Subject(key_id=key.key_id): key.name for key in await tx.keys.list(account_id)}
    for member in await tx.memberships.members(account_id):
        names[Subject(membership_id=member.membership.membership_id)] = member.user.name
    return names
