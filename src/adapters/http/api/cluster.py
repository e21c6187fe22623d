"""The instances that share the devices, for whoever operates them.

Response models of a cluster: instances, partitions and moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.schemas import ResponseModel, Timestamp
from domain.kernel.caller import SessionCaller
from domain.partitions.overview import ClusterOverview

INSTANCE_EXAMPLE = "server-1-5d0c81f2"


class ClusterInstanceResponse(ResponseModel):
    instance: str = Field(
        description="The name of one run of an instance; it has another name after a restart.", examples=[INSTANCE_EXAMPLE]
    )
    is_alive: bool
    partitions: int = Field(description="Number of partitions that the instance owns.", examples=[21])


class ClusterPartitionResponse(ResponseModel):
    partition: int = Field(examples=[0])
    owner: str | None = Field(description="Null while the partition moves to another instance.", examples=[INSTANCE_EXAMPLE])
    epoch: int = Field(description="The number of the owner since the first; it grows with every change.", examples=[4])
    stored_entries: int = Field(description="Position up to which its log is stored.", examples=[81277])
    waiting_entries: int | None = Field(
        description="Entries that are not stored yet. Null: its log does not answer.", examples=[2]
    )
    problem: str | None = Field(description="Why it stands still, if the instance that answers knows that it does.")


class ClusterMoveResponse(ResponseModel):
    partition: int = Field(examples=[0])
    previous_owner: str | None = Field(examples=[INSTANCE_EXAMPLE])
    owner: str = Field(examples=["server-2-91aa03be"])
    at: Timestamp = Field(description="When the instance that answers saw it.")


class ClusterResponse(ResponseModel):
    enabled: bool
    answered_by: str | None = Field(description="The instance that answers.", examples=[INSTANCE_EXAMPLE])
    instances: list[ClusterInstanceResponse]
    partitions: list[ClusterPartitionResponse]
    moves: list[ClusterMoveResponse] = Field(description="The latest 100 that the instance that answers has seen, newest first.")


def cluster_response(found: ClusterOverview | None) -> ClusterResponse:
    if found is None:
        return ClusterResponse(enabled=False, answered_by=None, instances=[], partitions=[], moves=[])
    return ClusterResponse(
        enabled=True,
        answered_by=found.instance,
        instances=_instances(found),
        partitions=[
            ClusterPartitionResponse.of(
                row,
                owner=row.owner or None,
                stored_entries=row.position,
                waiting_entries=found.waiting(row),
                problem=found.problems.get(row.partition),
            )
            for row in found.partitions
        ],
        moves=[ClusterMoveResponse.of(move, previous_owner=move.previous or None) for move in found.moves],
    )


def _instances(found: ClusterOverview) -> list[ClusterInstanceResponse]:
    owned = Counter(row.owner for row in found.partitions)
    return [
        ClusterInstanceResponse(
            instance=member.instance, is_alive=member.instance in found.live, partitions=owned[member.instance]
        )
        for member in found.members
    ]


def cluster_blueprint(describe: Callable[[SessionCaller], Awaitable[ClusterOverview | None]]) -> ApiBlueprint:
    bp = ApiBlueprint("cluster", "Cluster")

    @bp.operation("GET /cluster", AllowedCallers.SESSION, "Get the state of the cluster", errors={403: "ROLE_REQUIRED"})
    async def get_cluster() -> ClusterResponse:
        """Requires the role Admin or Owner. Without LATCHBOARD_CLUSTER, `enabled` is false and the lists are empty."""
        return cluster_response(await describe(current_session()))

    return bp
