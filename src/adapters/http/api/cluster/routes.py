"""The instances that share the devices, for whoever operates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from adapters.http.api.cluster.schemas import ClusterResponse, cluster_response
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.kernel.caller import SessionCaller
from domain.partitions.overview import ClusterOverview


def cluster_blueprint(describe: Callable[[SessionCaller], Awaitable[ClusterOverview | None]]) -> ApiBlueprint:
    bp = ApiBlueprint("cluster", "Cluster")

    @bp.operation("GET /cluster", AllowedCallers.SESSION, "Get the state of the cluster", errors={403: "ROLE_REQUIRED"})
    async def get_cluster() -> ClusterResponse:
        """Requires the role Admin or Owner. Without LATCHBOARD_CLUSTER, `enabled` is false and the lists are empty."""
        return cluster_response(await describe(current_session()))

    return bp
