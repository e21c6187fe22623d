"""Projects group devices; a grant can cover a whole project. Every account has a default project that cannot be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.accounts.model import Project
from domain.accounts.policy import check_name
from domain.accounts.ports import AccountsTx
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.checks import check_capacity
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, NotFound
from domain.kernel.folding import fold
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, ProjectId, has_id_format
from domain.kernel.unit_of_work import UnitOfWork


@service
class ProjectService:
    uow: UnitOfWork[AccountsTx]
    clock: Clock
    ids: IdAndSecretGenerator

    async def list(self, caller: SessionCaller) -> Sequence[tuple[Project, int]]:
        """The projects with their device counts, oldest first."""
        async with self.uow.read() as tx:
            return await tx.projects.list_with_device_counts(caller.account_id)

    async def get(self, caller: SessionCaller, project_id: str) -> tuple[Project, int]:
        """With its device count. Raises NotFound."""
        async with self.uow.read() as tx:
            return await _get_project(tx, caller, project_id)

    async def create(self, caller: SessionCaller, name: str) -> Project:
        """Raises Conflict `PROJECT_EXISTS`, `PROJECT_LIMIT`."""
        require_role(caller, Role.ADMIN)
        project_id = ProjectId(self.ids.new_id(IdPrefix.PROJECT))
        project = Project(project_id, caller.account_id, check_name(name), False, self.clock.now_ms())
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            existing = await tx.projects.list_with_device_counts(caller.account_id)
            _check_name_is_free(project, existing)
            check_capacity(len(existing), "PROJECT_LIMIT", "An account has at most {limit} projects")
            await tx.projects.add(project)
            tx.emit(event_of(caller, "project_created", f"Project {project.name} was created", self.clock.now_ms()))
        return project

    async def rename(self, caller: SessionCaller, project_id: str, name: str) -> tuple[Project, int]:
        """Raises Conflict `PROJECT_EXISTS`."""
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            project, devices = await _get_project(tx, caller, project_id)
            renamed = replace(project, name=check_name(name))
            _check_name_is_free(renamed, await tx.projects.list_with_device_counts(caller.account_id))
            await tx.projects.save(renamed)
            text = f"Project {project.name} is now called {renamed.name}"
            tx.emit(event_of(caller, "project_changed", text, self.clock.now_ms()))
        return renamed, devices

    async def delete(self, caller: SessionCaller, project_id: str) -> None:
        """Raises Conflict `DEFAULT_PROJECT` or `PROJECT_NOT_EMPTY`."""
        async with self.uow.write(caller, Role.ADMIN) as tx:
            project, devices = await _get_project(tx, caller, project_id)
            if project.is_default:
                raise Conflict("The default project cannot be deleted. Rename it instead.", code="DEFAULT_PROJECT")
            if devices:
                raise Conflict(
                    f"The project has {devices} devices. Move them to another project or delete them first.",
                    code="PROJECT_NOT_EMPTY",
                )
            await tx.projects.delete(project.project_id)
            tx.emit(event_of(caller, "project_deleted", f"Project {project.name} was deleted", self.clock.now_ms()))


def _check_name_is_free(wanted: Project, existing: Sequence[tuple[Project, int]]) -> None:
    """Call it in a transaction that locks the account. Names that differ only in case look like one."""
    for project, _ in existing:
        if project.project_id != wanted.project_id and fold(project.name) == fold(wanted.name):
            raise Conflict(f"The account has a project {project.name!r} already. Choose another name.", code="PROJECT_EXISTS")


async def _get_project(tx: AccountsTx, caller: SessionCaller, project_id: str) -> tuple[Project, int]:
    if has_id_format(IdPrefix.PROJECT, project_id):
        for project, devices in await tx.projects.list_with_device_counts(caller.account_id):
            if project.project_id == project_id:
                return project, devices
    raise NotFound.for_resource("project", project_id)
