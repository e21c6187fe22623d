"""Constructs what describes the cluster to an operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.wiring.composed_application import ComposedApplication
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.partitions.overview import ClusterOverview, ClusterOverviewService


def create_cluster_overview(program: ComposedApplication) -> Callable[[SessionCaller], Awaitable[ClusterOverview | None]]:
    cluster, workers = program.adapters.cluster, program.workers.cluster
    if cluster is None or workers is None:
        return _without_cluster
    return ClusterOverviewService(
        uow=program.services.uow,
        instance=cluster.instance,
        state=workers.partitions,
        log=cluster.inbound_log,
        problems=workers.stopped_partitions,
    ).describe


async def _without_cluster(caller: SessionCaller) -> None:
    """Raises PermissionDenied `ROLE_REQUIRED`."""
    require_role(caller, Role.ADMIN)
