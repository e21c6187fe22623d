"""Operational endpoints outside `/api/v1`: liveness, readiness and metrics."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from quart import Blueprint, Response

ReadinessChecks = Callable[[], Awaitable[Mapping[str, str]]]
ReadinessWarnings = Callable[[], Mapping[str, str]]


def health_blueprint(
    *,
    checks: ReadinessChecks,
    device_checks: Callable[[], Mapping[str, str]],
    warnings: ReadinessWarnings,
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
