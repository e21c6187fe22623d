"""The fleet as a file: export an account, compare a file with it, and make the account what the file says.

An apply is one transaction of all the services that change single objects. So it is done as a whole or not at all, an apply after
one that was interrupted begins where that one began, and each change needs the role, and the operation of a service session, that
its single call needs. A plan is an apply that is rolled back: what it answers is what the apply does, and what it refuses is what
the apply refuses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from domain.accounts.projects import ProjectService
from domain.commands.device_types import DeviceTypeAdminService
from domain.devices.registration import BulkCredentials
from domain.devices.service import DeviceCredentialSyncPort, DeviceEraserPort
from domain.fleet_file.account_objects import (
    ApiKeyReconciler,
    DeviceTypeReconciler,
    GrantReconciler,
    GroupReconciler,
    ProjectReconciler,
    WebhookReconciler,
)
from domain.fleet_file.device_objects import PARTS, DeviceReconciler, known_metrics, with_credentials, with_metrics
from domain.fleet_file.model import (
    MAX_OBJECTS,
    DesiredFleetObject,
    Fields,
    FleetAfterApplyWork,
    FleetDocument,
    FleetKind,
    FleetObjectOutcome,
    MakeWriters,
    StoredFleetObject,
)
from domain.fleet_file.reconciler import (
    FleetDiffersError,
    FleetFileReadContext,
    FleetFileWriteContext,
    FleetNameIndex,
    KindReconciler,
    prune,
    reconcile,
)
from domain.groups.service import GroupsTx
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import JsonObject
from domain.kernel.errors import Conflict, PermissionDenied, ValidationFailed
from domain.kernel.idempotency import IdempotentReplayRollbackError
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import GIVE_WAY_EVERY, EngineCommitLock, JoinedUnitOfWork, NeedsWriterError, UnitOfWork, give_way
from domain.webhooks.service import WebhookService

AnyReconciler: TypeAlias = KindReconciler | type[KindReconciler]


@dataclass(frozen=True, slots=True)
class FleetFileInput:
    """`prune`: also delete what the sections of the document do not name. `credentials`: of the devices that it names."""

    document: FleetDocument
    prune: bool = False
    credentials: BulkCredentials = BulkCredentials.NONE


@dataclass(frozen=True, slots=True)
class ExportedFleet:
    """`left_out`: the sections that the caller may not read."""

    sections: Mapping[FleetKind, Sequence[StoredFleetObject]]
    left_out: tuple[FleetKind, ...]


@service
class FleetFileService:
    uow: UnitOfWork[GroupsTx]
    clock: Clock
    make_writers: MakeWriters
    webhooks: WebhookService
    projects: ProjectService
    device_types: DeviceTypeAdminService
    credential_sync: DeviceCredentialSyncPort
    erasure: DeviceEraserPort
    engine_commit_lock: EngineCommitLock

    @cached_property
    def reconcilers(self) -> Mapping[FleetKind, KindReconciler]:
        account: tuple[KindReconciler, ...] = (
            ProjectReconciler(),
            DeviceTypeReconciler(),
            DeviceReconciler(),
            GroupReconciler(),
            ApiKeyReconciler(),
            GrantReconciler(),
            WebhookReconciler(webhooks=self.webhooks),
        )
        return {reconciler.kind: reconciler for reconciler in account}

    @property
    def defaults(self) -> Mapping[FleetKind, Fields]:
        """What an export leaves out, by section."""
        account = {kind: reconciler.defaults for kind, reconciler in self.reconcilers.items()}
        return account | {kind: part.defaults for kind, part in PARTS.items()}

    async def export(self, caller: SessionCaller, project: str | None = None) -> ExportedFleet:
        """What a file about the account says; with `project`, its devices and groups, and the grants on them.

        Raises ValidationFailed for an unknown project, Conflict `FLEET_TOO_LARGE`."""
        async with self.uow.read() as tx:
            run = FleetFileReadContext(tx, caller, FleetNameIndex(account_id=caller.account_id), self.clock.now_ms(), project)
            await run.names.load(tx, project)
            chosen = {kind: each for kind, each in self.reconcilers.items() if each.is_scoped or project is None}
            sections: Mapping[FleetKind, AnyReconciler] = {**chosen, **PARTS}
            readable = {kind for kind, each in sections.items() if _may_read(each, caller)}
            found = {kind: await each.stored(run, None) for kind, each in chosen.items() if kind in readable}
            _check_size(sum(map(len, found.values())))
            if FleetKind.DEVICES in found:
                devices = [await _load_with_parts(run, each, readable) for each in found[FleetKind.DEVICES]]
                _check_size(sum(map(len, found.values())) + sum(len(part) for each in devices for part in each.children.values()))
                found[FleetKind.DEVICES] = devices
        hidden = [kind for kind in FleetKind if kind in sections and kind not in readable]
        return ExportedFleet(found, tuple(hidden))

    async def plan(self, caller: SessionCaller, request: FleetFileInput) -> Sequence[FleetObjectOutcome]:
        """What an apply would do. Raises what it would raise. Nothing is changed.

        Most plans of a fleet that is kept as a file find no difference: they only read, beside everybody who writes."""
        with suppress(FleetDiffersError):
            async with self.uow.read() as tx:
                return await self._reconcile(await self._begin(tx, caller, request, only_compares=True), request)
        await self.device_types.compile_schemas(_schemas(request.document))
        with suppress(NeedsWriterError):
            async with self.uow.rehearse(caller, Role.VIEWER) as tx:
                return await self._reconcile(await self._begin(tx, caller, request), request)
        outcomes: Sequence[FleetObjectOutcome] = ()
        with suppress(IdempotentReplayRollbackError):
            async with self._open_write_context(replace(caller, is_replay=True), request) as run:
                outcomes = await self._reconcile(run, request)
        return outcomes

    async def apply(self, caller: SessionCaller, request: FleetFileInput) -> Sequence[FleetObjectOutcome]:
        """Raises ValidationFailed, PermissionDenied, Conflict, each with the place in the document. Then nothing is changed.

        Who asks for the answer of an apply again, and so for its secrets, must be allowed to change all that the document names:
        it changes nothing any more, so that nothing else would ask."""
        if caller.is_replay:
            for reconciler in self._named_reconcilers(request):
                reconciler.check_writable(caller)
        async with self._open_write_context(caller, request) as run:
            outcomes = await self._reconcile(run, request)
        await self._finish_after_commit(replace(caller, claim=None), run.postponed)
        return outcomes

    @asynccontextmanager
    async def _open_write_context(self, caller: SessionCaller, request: FleetFileInput) -> AsyncIterator[FleetFileWriteContext]:
        """The transaction of an apply; for a replay, it is rolled back at the end, and the services inside take the caller for a
        first one. Rules change only under the engine's lock, which comes before the database's."""
        await self.device_types.compile_schemas(_schemas(request.document))
        lock = self.engine_commit_lock if FleetKind.RULES in request.document.kinds() else nullcontext()
        async with lock, self.uow.write(caller, Role.VIEWER, locks_account=True, background=True) as tx:
            yield await self._begin(tx, caller, request)

    async def _begin(
        self, tx: GroupsTx, caller: SessionCaller, request: FleetFileInput, *, only_compares: bool = False
    ) -> FleetFileWriteContext:
        document = request.document
        if document.count() > MAX_OBJECTS:
            message = f"names {document.count()} objects; an apply takes at most {MAX_OBJECTS}. Divide the file, as by project."
            raise ValidationFailed.for_field("document", message)
        postponed, names = FleetAfterApplyWork(), FleetNameIndex(account_id=caller.account_id)
        await names.load(tx, None)
        return FleetFileWriteContext(
            tx,
            replace(caller, is_replay=False),
            names,
            self.clock.now_ms(),
            document.project,
            writers=self.make_writers(JoinedUnitOfWork(tx), postponed),
            only_compares=only_compares,
            postponed=postponed,
            prune=request.prune,
            credentials=request.credentials,
        )

    async def _reconcile(self, run: FleetFileWriteContext, request: FleetFileInput) -> Sequence[FleetObjectOutcome]:
        sections = request.document.sections
        for reconciler in self._named_reconcilers(request):
            reconciler.check_readable(run.caller)
        kept: list[FleetObjectOutcome] = []
        gone: list[FleetObjectOutcome] = []
        later: list[tuple[KindReconciler, set[str], str]] = []
        for kind, reconciler in self.reconcilers.items():
            if kind is FleetKind.DEVICE_TYPES and run.project is not None:
                run.names.project_id(run.project)  # it exists now at the latest
                run.names.default_project = run.project  # of all devices and groups that name none
            if kind not in sections:
                continue
            outcomes = await reconcile(reconciler, run, sections[kind])
            later.append((reconciler, {each.id for each in outcomes}, kind))
            if kind is FleetKind.DEVICES:
                outcomes = await self._reconcile_devices(run, sections[kind], outcomes, later)
            kept += outcomes
        if run.prune:
            for reconciler, ids, path in reversed(later):
                if reconciler.is_scoped or run.project is None:
                    gone += await prune(reconciler, run, ids, path)
        return [*kept, *gone]

    def _named_reconcilers(self, request: FleetFileInput) -> list[AnyReconciler]:
        """Of the sections that the document names; of parts of devices the class."""
        sections: Mapping[FleetKind, AnyReconciler] = {**self.reconcilers, **PARTS}
        kinds = request.document.kinds()
        return [reconciler for kind, reconciler in sections.items() if kind in kinds]

    async def _reconcile_devices(
        self,
        run: FleetFileWriteContext,
        wanted: Sequence[DesiredFleetObject],
        devices: Sequence[FleetObjectOutcome],
        later: list[tuple[KindReconciler, set[str], str]],
    ) -> list[FleetObjectOutcome]:
        """With their metrics, which rules may name, their parts and, if wanted, their credentials."""
        outcomes: list[FleetObjectOutcome] = []
        for index, (each, reconciled) in enumerate(zip(wanted, devices, strict=True)):
            if index % GIVE_WAY_EVERY == 0:
                await give_way()
            outcome = await with_metrics(run, each, reconciled)
            outcomes.append(await with_credentials(run, outcome))
            for kind, part in PARTS.items():
                if kind in each.children:
                    reconciler = part(device_id=DeviceId(outcome.id), owner=outcome.name)
                    found = await reconcile(reconciler, run, each.children[kind])
                    later.append((reconciler, {one.id for one in found}, f"{each.path}.{kind}"))
                    outcomes += found
        return outcomes

    async def _finish_after_commit(self, caller: SessionCaller, postponed: FleetAfterApplyWork) -> None:
        """After the commit. What a crash leaves undone here, the start of the service does, or the next apply."""
        for device_id in dict.fromkeys(postponed.synced):
            await self.credential_sync.sync(device_id)
        for device in postponed.erased:
            await self.erasure.erase(device)
        for device_type_id in postponed.deleted_types:
            await self.device_types.delete(caller, device_type_id)
        for project_id in postponed.deleted_projects:
            await self.projects.delete(caller, project_id)


def _schemas(document: FleetDocument) -> Iterator[JsonObject | None]:
    for device_type in document.sections.get(FleetKind.DEVICE_TYPES, ()):
        yield from (command.params_schema for command in device_type.fields["commands"])
    for device in document.sections.get(FleetKind.DEVICES, ()):
        yield from (command.fields["params_schema"] for command in device.children.get(FleetKind.COMMANDS, ()))


def _may_read(reconciler: AnyReconciler, caller: SessionCaller) -> bool:
    try:
        reconciler.check_readable(caller)
    except PermissionDenied:
        return False
    return True


async def _load_with_parts(run: FleetFileReadContext, device: StoredFleetObject, readable: set[FleetKind]) -> StoredFleetObject:
    parts = {kind: part(device_id=DeviceId(device.id), owner=device.name) for kind, part in PARTS.items() if kind in readable}
    metrics = await known_metrics(run, device.source)
    fields = {**device.fields, "metrics": metrics} if metrics else device.fields
    return replace(device, fields=fields, children={kind: await part.stored(run, None) for kind, part in parts.items()})


def _check_size(count: int) -> None:
    if count > MAX_OBJECTS:
        message = f"The account has {count} objects, and a file names at most {MAX_OBJECTS}. Export one project at a time."
        raise Conflict(message, code="FLEET_TOO_LARGE")
