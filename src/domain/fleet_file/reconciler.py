"""One kind of objects: how they are stored, made, changed and deleted. `reconcile` compares a section of a file with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar

from domain.devices.registration import BulkCredentials
from domain.fleet_file.after_apply_work import FleetAfterApplyWork
from domain.fleet_file.model import (
    CreatedFleetObject,
    DesiredFleetObject,
    Fields,
    FleetAction,
    FleetKind,
    FleetObjectOutcome,
    Key,
    PlannedFieldChange,
    StoredFleetObject,
    display_name,
    with_place,
)
from domain.fleet_file.name_references import FleetNameIndex
from domain.fleet_file.ports import FleetFileTx
from domain.fleet_file.write_services import FleetFileWriteServices
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.errors import DomainError, ValidationFailed
from domain.team.service_sessions import check_operation


@dataclass(frozen=True, slots=True)
class FleetFileReadContext:
    """One look at an account, in one transaction. `project`: the only one that it is about."""

    tx: FleetFileTx
    caller: SessionCaller
    names: FleetNameIndex
    now_ms: int
    project: str | None = None


@dataclass(frozen=True, slots=True)
class FleetFileWriteContext(FleetFileReadContext):
    """A run that changes the account."""

    writers: FleetFileWriteServices = field(kw_only=True)
    postponed: FleetAfterApplyWork = field(kw_only=True)
    prune: bool = False
    credentials: BulkCredentials = BulkCredentials.NONE


class FleetFileKindReconciler(ABC):
    """`tag`: the group of operations that act on these objects; `reader` and `writer`: the lowest roles that may
    read them all, and change one."""

    kind: ClassVar[FleetKind]
    tag: ClassVar[str]
    reader: ClassVar[Role] = Role.VIEWER
    writer: ClassVar[Role] = Role.ADMIN
    defaults: ClassVar[Fields] = MappingProxyType({})
    """What an export leaves out."""
    is_scoped: ClassVar[bool] = True
    """Whether its objects belong to projects."""
    may_repeat: ClassVar[bool] = False
    """Whether several objects may have one key; then they are matched in their order."""

    def __init__(self, owner: str | None = None) -> None:
        self.owner = owner

    def check_readable(self, caller: SessionCaller) -> None:
        """Raises PermissionDenied."""
        require_role(caller, self.reader)
        check_operation(caller, self.tag, is_read=True)

    def check_writable(self, caller: SessionCaller) -> None:
        """Raises PermissionDenied."""
        require_role(caller, self.writer)
        check_operation(caller, self.tag, is_read=False)

    @abstractmethod
    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        """Those that `wanted` may match; None: all of them."""

    async def resolve(self, run: FleetFileReadContext, wanted: DesiredFleetObject) -> DesiredFleetObject:
        """With its references in the form that `stored` has them. Raises ValidationFailed."""
        return wanted

    @abstractmethod
    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject: ...

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        """`changes`: only fields that differ."""
        raise NotImplementedError

    @abstractmethod
    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None: ...


def defaults_of(model: type[Any], **more: Any) -> Fields:
    """The default values of a dataclass, by field."""
    return {one.name: one.default for one in fields(model) if one.default is not MISSING} | more


async def reconcile(
    reconciler: FleetFileKindReconciler, run: FleetFileWriteContext, wanted: Sequence[DesiredFleetObject]
) -> list[FleetObjectOutcome]:
    """Make and change what the file wants. What it does not name is in the result of `surplus`."""
    _check_distinct(reconciler, wanted)
    found = list(await reconciler.stored(run, wanted))
    outcomes: list[FleetObjectOutcome] = []
    for each in wanted:
        try:
            resolved = await reconciler.resolve(run, each)
            stored = _pop_match(found, resolved.key)
            outcomes.append(await _reconcile_one(reconciler, run, resolved, stored))
        except DomainError as error:
            raise with_place(error, each.path) from None
    return outcomes


async def prune(
    reconciler: FleetFileKindReconciler, run: FleetFileWriteContext, keep: Sequence[str], path: str
) -> list[FleetObjectOutcome]:
    """Delete the stored objects whose ids are not in `keep`."""
    outcomes: list[FleetObjectOutcome] = []
    for stored in reversed(await reconciler.stored(run, None)):
        if stored.id in keep:
            continue
        try:
            check_operation(run.caller, reconciler.tag, is_read=False)
            await reconciler.delete(run, stored)
        except DomainError as error:
            raise with_place(error, f"{path} (delete {stored.name})") from None
        outcomes.append(FleetObjectOutcome(reconciler.kind, FleetAction.DELETE, path, stored.name, stored.id, reconciler.owner))
    return outcomes


async def _reconcile_one(
    reconciler: FleetFileKindReconciler, run: FleetFileWriteContext, wanted: DesiredFleetObject, stored: StoredFleetObject | None
) -> FleetObjectOutcome:
    outcome = FleetObjectOutcome(reconciler.kind, FleetAction.NONE, wanted.path, display_name(wanted.key), "", reconciler.owner)
    if stored is None:
        check_operation(run.caller, reconciler.tag, is_read=False)
        made = await reconciler.create(run, wanted)
        return replace(outcome, action=FleetAction.CREATE, id=made.id, secret=made.secret)
    changes = _find_changes(wanted, stored)
    if not changes:
        return replace(outcome, id=stored.id)
    check_operation(run.caller, reconciler.tag, is_read=False)
    await reconciler.change(run, stored, {change.name: change.after for change in changes})
    return replace(outcome, action=FleetAction.CHANGE, id=stored.id, changes=changes)


def _find_changes(wanted: DesiredFleetObject, stored: StoredFleetObject) -> tuple[PlannedFieldChange, ...]:
    return tuple(
        PlannedFieldChange(name, stored.fields.get(name), value)
        for name, value in wanted.fields.items()
        if name in wanted.given and stored.fields.get(name) != value
    )


def _pop_match(found: list[StoredFleetObject], key: Key) -> StoredFleetObject | None:
    """The first with this key, which then matches nothing else."""
    for index, stored in enumerate(found):
        if key in stored.keys:
            return found.pop(index)
    return None


def _check_distinct(reconciler: FleetFileKindReconciler, wanted: Sequence[DesiredFleetObject]) -> None:
    first: dict[Key, str] = {}
    for each in wanted:
        if each.key in first and not reconciler.may_repeat:
            message = f"{display_name(each.key)!r} is in the file twice: also at {first[each.key]}. Give each its own name."
            raise ValidationFailed.for_field(each.path, message)
        first.setdefault(each.key, each.path)
