"""What is special, to be looked at in the demo: keys with grants, a request that waits, a schedule, two projects, a Viewer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.simulator.api_client import SimulatorApiClient
from app.simulator.options import SimulatorApiCredentials
from domain.kernel.clock import HOUR_MS, SECOND_MS

VIEWER_EMAIL = "viewer@latchboard.local"
GREENHOUSE = "Greenhouse"
HIGHLIGHTS = (
    "Approvals: the delivery robot asks to open the gate. Approve or deny it",
    "API keys: what the irrigation bot and the delivery robot may do, when and how often",
    "Greenhouse pump: a day of telemetry in Charts; two rules that fire within a minute; a watering every day in Calendar",
    "Devices: two projects; a grant can cover a whole project",
    f"Sign in as {VIEWER_EMAIL} with the same password: a Viewer sees all and switches nothing",
)


async def furnish_account(api: SimulatorApiClient, url: str, devices: Mapping[str, str], password: str, now_ms: int) -> None:
    """`devices`: name → id. Nothing changes in an account that was furnished before. Raises SimulationError."""
    projects = await api.get("/projects")
    if any(project["name"] == GREENHOUSE for project in projects):
        return
    await api.patch(f"/projects/{projects[0]['projectId']}", {"name": "House"})
    greenhouse = (await api.post("/projects", {"name": GREENHOUSE}))["projectId"]
    for name, device_id in devices.items():
        if name.startswith(GREENHOUSE):
            await api.put(f"/devices/{device_id}", {"projectId": greenhouse, "location": "Greenhouse 2"})
    await _allow_irrigation(api, devices["Greenhouse pump"])
    await _request_gate(api, url, devices["Gate"])
    await _plan_watering(api, devices["Greenhouse pump"], now_ms)
    viewer = {"email": VIEWER_EMAIL, "name": "Vera Viewer", "role": "Viewer", "password": password}
    await api.post("/members", viewer)


async def _allow_irrigation(api: SimulatorApiClient, pump: str) -> None:
    """On weekdays in the daytime, at most five times a minute, anything in the greenhouse."""
    key = await api.post("/keys", {"name": "Irrigation bot"})
    limits = {"activeDays": [1, 2, 3, 4, 5], "activeFromMinute": 6 * 60, "activeToMinute": 20 * 60, "rateLimitPerMinute": 5}
    grant = {"apiKeyId": key["keyId"], "commands": ["ON", "OFF"], "appliesVia": "project", **limits}
    await api.post(f"/devices/{pump}/grants", grant)


async def _request_gate(api: SimulatorApiClient, url: str, gate: str) -> None:
    """The robot's request waits for a person."""
    seconds: dict[str, Any] = {"type": "object", "properties": {"seconds": {"type": "integer", "minimum": 1, "maximum": 300}}}
    definition = {"name": "OPEN", "label": "Open", "requiresApproval": True, "paramsSchema": seconds}
    await api.post(f"/devices/{gate}/commands", definition)
    key = await api.post("/keys", {"name": "Delivery robot"})
    await api.post(f"/devices/{gate}/grants", {"apiKeyId": key["keyId"], "commands": ["OPEN"]})
    request = {"cmd": "OPEN", "params": {"seconds": 60}, "reason": "A parcel at the gate; the driver waits"}
    async with SimulatorApiClient(SimulatorApiCredentials(url, token=key["key"])) as robot:
        await robot.post(f"/devices/{gate}/command", request)


async def _plan_watering(api: SimulatorApiClient, pump: str, now_ms: int) -> None:
    """From the next full hour but one, 20 minutes, each day."""
    on_ts = (now_ms // HOUR_MS + 2) * HOUR_MS // SECOND_MS
    slot = {"slot": 0, "onTs": on_ts, "offTs": on_ts + 20 * 60, "rrule": "FREQ=DAILY", "label": "Watering"}
    await api.post(f"/devices/{pump}/schedules", slot)
