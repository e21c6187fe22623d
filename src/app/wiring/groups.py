"""Constructs what acts on groups of devices, and its routes."""

from __future__ import annotations

from typing import Any

from quart import Blueprint

from adapters.http.api.groups.grant_routes import group_grants_blueprint
from adapters.http.api.groups.routes import groups_blueprint
from app.runtime.timeout_lock import LockWithTimeout
from app.wiring.adapters import ServiceAdapters
from app.wiring.services import Services
from domain.grants.grant_service import GroupGrantService
from domain.groups.bulk_actions import GroupBulkActionService
from domain.groups.service import DeviceGroupService


def group_blueprints(services: Services, adapters: ServiceAdapters) -> list[Blueprint]:
    shared: dict[str, Any] = {"uow": services.uow, "clock": adapters.clock}
    mark_stale = adapters.feed.mark_access_stale
    groups = DeviceGroupService(**shared, ids=adapters.ids, authorizer=services.authorizer, on_access_changed=mark_stale)
    grants: GroupGrantService[Any] = GroupGrantService(
        **shared,
        ids=adapters.ids,
        windows=adapters.engine.grant_evaluator,
        commands=services.commands,
        on_grants_changed=mark_stale,
    )
    actions = GroupBulkActionService(
        **shared,
        groups=groups,
        commands=services.commands,
        schedules=services.schedules,
        rules=services.rules,
        engine_commit_lock=LockWithTimeout(services.engine_commit_lock),
    )
    return [groups_blueprint(groups, actions), group_grants_blueprint(grants)]
