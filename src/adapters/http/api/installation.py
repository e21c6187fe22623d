"""The installation itself, for whoever operates it: its health, its addresses, and the instances that share the devices.

Health and metrics are outside `/api/v1` and need no caller: who runs the service asks for them, from its own machine or network.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from pydantic import Field
from quart import Blueprint, Response

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.schemas import ResponseModel, Timestamp
from domain.kernel.caller import SessionCaller
from domain.partitions.overview import ClusterOverview

INSTANCE_EXAMPLE = "server-1-5d0c81f2"


def health_blueprint(
    *,
    checks: Callable[[], Awaitable[Mapping[str, str]]],
    device_checks: Callable[[], Mapping[str, str]],
    warnings: Callable[[], Mapping[str, str]],
    metrics: Callable[[], bytes],
    metrics_type: str,
) -> Blueprint:
    """`checks` returns an error per failing part (database, broker, a worker); empty if everything works. `device_checks` returns
    only what keeps devices from connecting or from being confirmed. `warnings` returns what will become an error unless
    somebody acts."""
    bp = Blueprint("health", __name__)

    @bp.get("/healthz")
    async def healthz() -> Response:
        return _json_response({"status": "ok"}, 200)

    @bp.get("/readyz")
    async def readyz() -> Response:
        return _readiness_response(await checks(), warnings())

    @bp.get("/readyz/devices")
    async def readyz_for_devices() -> Response:
        return _readiness_response(device_checks(), {})

    @bp.get("/metrics")
    async def figures() -> Response:
        return Response(metrics(), content_type=metrics_type)

    return bp


def _readiness_response(troubles: Mapping[str, str], warnings: Mapping[str, str]) -> Response:
    detail = {"warnings": dict(warnings)} if warnings else {}
    if troubles:
        return _json_response({"status": "unready", "troubles": dict(troubles), **detail}, 503)
    return _json_response({"status": "ready", **detail}, 200)


def _json_response(value: object, status: int) -> Response:
    return Response(json.dumps(value), status=status, content_type="application/json")


class NetworkProblemResponse(ResponseModel):
    code: str = Field(examples=["MQTT_LOOPBACK_ONLY"])
    message: str
    settings: list[str] = Field(
        description="The lines of settings that solve the problem.", examples=[["LATCHBOARD_MQTT_HOST=0.0.0.0"]]
    )


class NetworkResponse(ResponseModel):
    dashboard_url: str | None = Field(
        description="Where phones and other computers reach the dashboard. Null: only this machine does.",
        examples=["http://192.168.1.10:8080"],
    )
    mqtt_host: str = Field(description="The host that device credentials name.", examples=["192.168.1.10"])
    mqtt_port: int
    mqtt_ws_port: int
    mqtt_tls_port: int | None
    problems: list[NetworkProblemResponse] = Field(
        description="What keeps phones or devices from reaching the service, and whether its clock is doubted."
    )


def network_blueprint(describe: Callable[[], NetworkResponse]) -> ApiBlueprint:
    """`describe` looks anew each time: a machine's address changes."""
    bp = ApiBlueprint("network", "Network")

    @bp.operation("GET /network", AllowedCallers.SESSION, "Get the addresses of this service")
    async def get_network() -> NetworkResponse:
        """Where phones and devices reach the service, and the settings to change where they do not."""
        return describe()

    return bp


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

    @classmethod
    def from_domain(cls, found: ClusterOverview) -> ClusterResponse:
        owned = Counter(row.owner for row in found.partitions)
        return cls(
            enabled=True,
            answered_by=found.instance,
            instances=[
                ClusterInstanceResponse.of(member, is_alive=member.instance in found.live, partitions=owned[member.instance])
                for member in found.members
            ],
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


def cluster_blueprint(describe: Callable[[SessionCaller], Awaitable[ClusterOverview | None]]) -> ApiBlueprint:
    bp = ApiBlueprint("cluster", "Cluster")

    @bp.operation("GET /cluster", AllowedCallers.SESSION, "Get the state of the cluster", errors={403: "ROLE_REQUIRED"})
    async def get_cluster() -> ClusterResponse:
        """Requires the role Admin or Owner. Without LATCHBOARD_CLUSTER, `enabled` is false and the lists are empty."""
        found = await describe(current_session())
        if found is None:
            return ClusterResponse(enabled=False, answered_by=None, instances=[], partitions=[], moves=[])
        return ClusterResponse.from_domain(found)

    return bp
