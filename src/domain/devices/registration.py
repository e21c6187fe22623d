"""How a device comes to be: the checks and the new row, shared by all ways to register one; and the registration of many.

Many devices are registered with one request, some in each transaction, so that others write in between. A request that is
repeated after a crash or a lost answer finds the devices that it has made by their `externalId`, and changes nothing about them.
What the database alone knows is decided row by row, so that one wrong row does not undo the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from domain.devices.catalog import infer_profile
from domain.devices.credential_sync import CredentialSyncService
from domain.devices.credentials import CredentialIssuer, RevealedCredentials
from domain.devices.model import Device, DeviceMetadata, DeviceStatus, FirmwareProfile
from domain.devices.ports import DevicesTx
from domain.kernel.caller import Caller, Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, DomainError, NotFound, ValidationFailed
from domain.kernel.idempotency import IdempotentReplayRollbackError
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, IdAndSecretGenerator, IdPrefix, ProjectId
from domain.kernel.unit_of_work import OBJECTS_PER_TRANSACTION, UnitOfWork, in_steps
from domain.sign_in.presence import require_fresh_proof

MAX_DEVICES_PER_ACCOUNT = 100_000


@dataclass(frozen=True, slots=True)
class DeviceRegistrationInput:
    name: str
    board_type: str
    app_type: str
    app_type_other: str | None = None
    project_id: ProjectId | None = None
    device_type_id: DeviceTypeId | None = None
    profile: FirmwareProfile | None = None
    about: DeviceMetadata = field(default_factory=DeviceMetadata)
    external_id: str | None = None


def check_device_capacity(count: int) -> None:
    """Raises Conflict `TOO_MANY_DEVICES` when an account with `count` devices can have no more."""
    if count >= MAX_DEVICES_PER_ACCOUNT:
        raise Conflict("This account has reached the maximum number of devices. Delete one first.", code="TOO_MANY_DEVICES")


async def check_references(
    tx: DevicesTx, account_id: AccountId, project_id: ProjectId | None, device_type_id: DeviceTypeId | None
) -> None:
    """Raises NotFound for a project or device type that the account does not have."""
    if project_id is not None and await tx.projects.get(account_id, project_id) is None:
        raise NotFound.for_resource("project", project_id)
    if device_type_id is not None and await tx.device_types.get(account_id, device_type_id) is None:
        raise NotFound.for_resource("device type", device_type_id)


async def add_device(
    tx: DevicesTx, caller: Caller, device_id: DeviceId, registration: DeviceRegistrationInput, now_ms: int
) -> Device:
    """A PENDING device. Its references are checked before. Raises Conflict `EXTERNAL_ID_TAKEN`."""
    project_id = registration.project_id or (await tx.projects.get_default(caller.account_id)).project_id
    device = await tx.devices.add(_new_device(caller.account_id, device_id, project_id, registration, now_ms))
    _emit_registered(tx, caller, device, now_ms)
    return device


def _new_device(
    account_id: AccountId, device_id: DeviceId, project_id: ProjectId, registration: DeviceRegistrationInput, now_ms: int
) -> Device:
    return Device(
        device_id=device_id,
        device_no=0,
        account_id=account_id,
        project_id=project_id,
        name=registration.name,
        board_type=registration.board_type,
        app_type=registration.app_type,
        app_type_other=registration.app_type_other,
        status=DeviceStatus.PENDING,
        profile=registration.profile or infer_profile(registration.board_type, registration.app_type),
        device_type_id=registration.device_type_id,
        about=registration.about,
        created_ms=now_ms,
        external_id=registration.external_id,
    )


def _emit_registered(tx: DevicesTx, caller: Caller, device: Device, now_ms: int) -> None:
    tx.emit(event_of(caller, "device_registered", f"Device registered: {device.name}", now_ms, device))


MAX_DEVICES_PER_REQUEST = 200


class BulkCredentials(StrEnum):
    """`NEW`: for devices that have none yet. `UNUSED`: also in place of those that no device has connected with, whose answer may
    have been lost."""

    NONE = "NONE"
    NEW = "NEW"
    UNUSED = "UNUSED"

    def are_due(self, device: Device) -> bool:
        """Whether the device gets new ones."""
        is_new = device.status is DeviceStatus.PENDING
        return (is_new and self is not BulkCredentials.NONE) or (device.has_unused_credentials and self is BulkCredentials.UNUSED)


class BulkOutcome(StrEnum):
    CREATED = "CREATED"
    EXISTS = "EXISTS"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class BulkRegistrationRowResult:
    """Of one row. `device` is None, and `error` set, exactly for FAILED."""

    outcome: BulkOutcome
    device: Device | None = None
    credentials: RevealedCredentials | None = None
    error: DomainError | None = None


@service
class BulkRegistrationService:
    uow: UnitOfWork[DevicesTx]
    clock: Clock
    ids: IdAndSecretGenerator
    issuer: CredentialIssuer
    credential_sync: CredentialSyncService

    async def register_many(
        self, caller: SessionCaller, rows: Sequence[DeviceRegistrationInput], credentials: BulkCredentials
    ) -> Sequence[BulkRegistrationRowResult]:
        """One result per row, in their order. What ends a transaction after the first one is the result of all that are left.

        Raises PermissionDenied; ValidationFailed for two rows with one `externalId`."""
        _check_distinct(rows)
        results: list[BulkRegistrationRowResult] = []
        for some in in_steps(rows, OBJECTS_PER_TRANSACTION) if rows else [rows]:
            try:
                async with self.uow.write(caller, Role.MEMBER, locks_account=True, background=True) as tx:
                    if not results and credentials is BulkCredentials.UNUSED:
                        await self._check_may_replace(tx, caller, rows)
                    made = await self._register(tx, caller, some, credentials)
                results += made
            except IdempotentReplayRollbackError:
                results += made
                continue
            except DomainError as error:
                if not results or caller.is_replay:
                    raise
                return [*results, *(BulkRegistrationRowResult(BulkOutcome.FAILED, error=error) for _ in rows[len(results) :])]
            for result in made:
                if result.credentials is not None:
                    await self.credential_sync.sync(DeviceId(result.credentials.device_id))
        if caller.is_replay:
            raise IdempotentReplayRollbackError
        return results

    async def _check_may_replace(self, tx: DevicesTx, caller: SessionCaller, rows: Sequence[DeviceRegistrationInput]) -> None:
        """Before the first row is done. Raises PermissionDenied `STEP_UP_REQUIRED`."""
        found = await tx.devices.list_by_external_ids(caller.account_id, {row.external_id for row in rows if row.external_id})
        if any(device.status is not DeviceStatus.PENDING and device.has_unused_credentials for device in found):
            await require_fresh_proof(tx, caller, self.clock.now_ms())

    async def _register(
        self, tx: DevicesTx, caller: SessionCaller, rows: Sequence[DeviceRegistrationInput], credentials: BulkCredentials
    ) -> Sequence[BulkRegistrationRowResult]:
        now_ms = self.clock.now_ms()
        wanted = {row.external_id for row in rows if row.external_id is not None}
        found = await tx.devices.list_by_external_ids(caller.account_id, wanted)
        existing = {device.external_id: device for device in found}
        count = await tx.devices.count(caller.account_id)
        places = _RegistrationPlaces(tx=tx, account_id=caller.account_id)
        planned: list[BulkRegistrationRowResult] = []
        for row in rows:
            planned.append(await self._plan(caller, row, existing, places, count, now_ms))
            count += planned[-1].outcome is BulkOutcome.CREATED
        return [
            await self._with_credentials(tx, caller, result, credentials, now_ms)
            for result in await self._add(tx, caller, planned, now_ms)
        ]

    async def _plan(
        self,
        caller: SessionCaller,
        row: DeviceRegistrationInput,
        existing: Mapping[str | None, Device],
        places: _RegistrationPlaces,
        count: int,
        now_ms: int,
    ) -> BulkRegistrationRowResult:
        """The result of the row; a CREATED device has no number yet."""
        if row.external_id is not None and row.external_id in existing:
            return BulkRegistrationRowResult(BulkOutcome.EXISTS, existing[row.external_id])
        try:
            check_device_capacity(count)
            project_id = await places.project_of(row)
        except (Conflict, NotFound) as error:
            return BulkRegistrationRowResult(BulkOutcome.FAILED, error=error)
        device_id = DeviceId(self.ids.new_id(IdPrefix.DEVICE))
        return BulkRegistrationRowResult(BulkOutcome.CREATED, _new_device(caller.account_id, device_id, project_id, row, now_ms))

    async def _add(
        self, tx: DevicesTx, caller: SessionCaller, planned: Sequence[BulkRegistrationRowResult], now_ms: int
    ) -> Sequence[BulkRegistrationRowResult]:
        """With the devices as they are stored: all that are new in one step."""
        new = [each.device for each in planned if each.outcome is BulkOutcome.CREATED and each.device is not None]
        added = {device.device_id: device for device in await tx.devices.add_many(new)}
        for device in added.values():
            _emit_registered(tx, caller, device, now_ms)
        return [
            each if each.device is None else replace(each, device=added.get(each.device.device_id, each.device))
            for each in planned
        ]

    async def _with_credentials(
        self, tx: DevicesTx, caller: SessionCaller, result: BulkRegistrationRowResult, wanted: BulkCredentials, now_ms: int
    ) -> BulkRegistrationRowResult:
        device = result.device
        if device is None or not wanted.are_due(device):
            return result
        is_new = device.status is DeviceStatus.PENDING
        issued = await self.issuer.issue(tx, caller, device, now_ms, rotated=not is_new)
        return BulkRegistrationRowResult(result.outcome, device, issued)


@service
class _RegistrationPlaces:
    """The projects and device types of many rows, each read once in their transaction."""

    tx: DevicesTx
    account_id: AccountId
    _checked: dict[tuple[ProjectId | None, DeviceTypeId | None], NotFound | None] = field(default_factory=dict, init=False)
    _default: ProjectId | None = field(default=None, init=False)

    async def project_of(self, row: DeviceRegistrationInput) -> ProjectId:
        """Raises NotFound for a project or device type that the account does not have."""
        place = (row.project_id, row.device_type_id)
        if place not in self._checked:
            try:
                await check_references(self.tx, self.account_id, *place)
                self._checked[place] = None
            except NotFound as error:
                self._checked[place] = error
        refused = self._checked[place]
        if refused is not None:
            raise refused
        if row.project_id is not None:
            return row.project_id
        if self._default is None:
            self._default = (await self.tx.projects.get_default(self.account_id)).project_id
        return self._default


def _check_distinct(rows: Sequence[DeviceRegistrationInput]) -> None:
    first: dict[str, int] = {}
    for index, row in enumerate(rows):
        if row.external_id is None:
            continue
        if row.external_id in first:
            raise ValidationFailed.for_field(
                f"devices.{index}.externalId", f"is also that of devices.{first[row.external_id]}. Give each device its own."
            )
        first[row.external_id] = index
