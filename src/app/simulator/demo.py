"""The demo: ten simulated devices inside the service's process, in an account that shows what is special: keys with grants, a
request that waits, two projects, a Viewer. Two rules and a schedule act within a minute, and the charts begin with a day of
readings, sent by MQTT before the live ones.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import aiomqtt
import structlog

from app.simulator.api_client import ProvisionedFleet, SimulatorApiClient
from app.simulator.options import DeviceLogin, SimulationError, SimulationOptions, SimulatorApiCredentials
from app.simulator.run import start_fleet
from app.wiring.program import ComposedApplication
from domain.devices.channels import ChannelKind
from domain.devices.model import Device, FirmwareProfile
from domain.devices.registration import DeviceRegistrationInput
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError
from domain.rules.model import Comparator, RuleAction, RuleCondition
from domain.schedules.service import ScheduleInput
from domain.sign_in.sessions import SessionTokenIssuer

BOARD = "Greenhouse board"
DEMO_DEVICES = (
    ("Greenhouse pump", "PUMP"),
    (BOARD, "IRRIGATION"),
    ("Cold room", "COOLING"),
    ("Boiler", "HEATING"),
    ("Yard light", "LIGHT"),
    ("Hall light", "LIGHT"),
    ("Fountain", "PUMP"),
    ("Gate", "GATE"),
    ("Workshop outlet", "SOCKET"),
    ("Server room fan", "FAN"),
)
OPTIONS = SimulationOptions(device_count=len(DEMO_DEVICES) - 1)
BOARD_OPTIONS = SimulationOptions(
    device_count=1,
    channels=(
        (ChannelKind.RELAY, "Pump"),
        (ChannelKind.LEVEL, "Light"),
        (ChannelKind.COVER, "Vent"),
        (ChannelKind.INPUT, "Door button"),
    ),
    press_every_s=20.0,
    messages_per_second=0.5,
)
LIGHT_CHANNEL, BUTTON_METRIC = 2, "input4"
WARM = RuleCondition("temperature", Comparator.GREATER, 27.0)
COOL = RuleCondition("temperature", Comparator.LESS, 22.0)
PRESSED = RuleCondition(BUTTON_METRIC, Comparator.EQUAL, "SINGLE")
FIRST_REPORT_TIMEOUT_S = 60.0
_OWN_HOST_BY_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
VIEWER_EMAIL = "viewer@latchboard.local"
GREENHOUSE = "Greenhouse"
HIGHLIGHTS = (
    "Approvals: the delivery robot asks to open the gate. Approve or deny it",
    "API keys: what the irrigation bot and the delivery robot may do, when and how often",
    "Greenhouse pump: a day of telemetry in Charts; two rules that fire within a minute; a watering every day in Calendar",
    "Greenhouse board: pump, light, vent and a button, by which a rule switches the light; one key may use the light only",
    "Devices: two projects; a grant can cover a whole project",
    f"Sign in as {VIEWER_EMAIL} with the same password: a Viewer sees all and switches nothing",
)
HISTORY_MINUTES = 24 * 60
STEP_MINUTES = 10
CONNECT_TIMEOUT_S = 10.0
UNITS = {"temperature": "celsius", "humidity": "percent"}

log = structlog.get_logger("demo")


@service
class DemoFleet:
    """Registers the missing devices and runs all of them until cancelled."""

    program: ComposedApplication
    url: str
    """Where this machine reaches the service."""
    password: str | None
    """Of the Owner, and then of the Viewer too; None when the account is older than this start."""

    async def run(self) -> None:
        owner = await self._find_owner()
        devices = await self._register_missing_devices(owner)
        logins = [await self._create_login(owner, device) for device in devices]
        settings = self.program.settings
        host = _OWN_HOST_BY_WILDCARD.get(settings.mqtt_host, settings.mqtt_host)
        if all(device.last_seen_ms is None for device in devices):
            await send_history(logins, host, settings.mqtt_port, self.program.adapters.clock.now_ms())
        of_board = {device.device_id for device in devices if device.name == BOARD}
        fleets = [
            start_fleet(
                options,
                ProvisionedFleet(
                    [login for login in logins if (login.device_id in of_board) is is_board], FirmwareProfile.NATIVE
                ),
                host,
                settings.mqtt_port,
            )
            for options, is_board in ((OPTIONS, False), (BOARD_OPTIONS, True))
        ]
        try:
            await self._furnish_account(devices)
            await self._create_automations(owner, devices)
            await asyncio.Event().wait()  # the fleet runs on its own threads
        finally:
            for fleet in fleets:
                await asyncio.to_thread(fleet.stop)

    async def _furnish_account(self, devices: Sequence[Device]) -> None:
        """By the API, as a person would do it."""
        if self.password is None:
            return
        services, adapters = self.program.services, self.program.adapters
        issuer = SessionTokenIssuer(ids=adapters.ids, tokens=adapters.tokens, digest=adapters.digest)
        credentials = SimulatorApiCredentials(self.url, token=await services.operator.issue_owner_token(issuer))
        by_name = {device.name: str(device.device_id) for device in devices}
        try:
            async with SimulatorApiClient(credentials) as api:
                await furnish_account(api, self.url, by_name, self.password, adapters.clock.now_ms())
        except SimulationError as error:
            log.warning("the demo could not furnish its account", error=str(error))

    async def _find_owner(self) -> SessionCaller:
        """The first account's Owner."""
        async with self.program.services.uow.read() as tx:
            for account_id in await tx.accounts.list_ids():
                for member in await tx.memberships.list_members(account_id):
                    if member.membership.role is Role.OWNER:
                        return SessionCaller(account_id, member.user.user_id, member.membership.membership_id, Role.OWNER)
        raise RuntimeError("the demo needs an account with an Owner")

    async def _register_missing_devices(self, owner: SessionCaller) -> Sequence[Device]:
        services = self.program.services
        async with services.uow.read() as tx:
            known = {device.name: device for device in await tx.devices.list(owner.account_id)}
        for name, app_type in DEMO_DEVICES:
            if name not in known:
                known[name] = await services.devices.register(owner, DeviceRegistrationInput(name, "ESP32", app_type))
        return [known[name] for name, _ in DEMO_DEVICES]

    async def _create_login(self, owner: SessionCaller, device: Device) -> DeviceLogin:
        """Each start sets a new password, because the old one is not stored in plain text."""
        created = await self.program.services.credentials.generate(owner, device.device_id, rotate=True)
        return DeviceLogin(device.device_id, created.password)

    async def _create_automations(self, owner: SessionCaller, devices: Sequence[Device]) -> None:
        """A rule needs a metric that the device has reported, so rules follow the first message, or press."""
        by_name = {device.name: device for device in devices}
        pump, light, board = by_name["Greenhouse pump"], by_name["Yard light"], by_name[BOARD]
        try:
            if await self._wait_for_first_report(owner, pump, "temperature"):
                await self._create_rules(
                    owner, pump, ("Warm: water", WARM, RuleAction("ON")), ("Cool: stop", COOL, RuleAction("OFF"))
                )
            await self._create_schedule(owner, light)
            if await self._wait_for_first_report(owner, board, BUTTON_METRIC):
                toggle = RuleAction("TOGGLE", channel=LIGHT_CHANNEL)
                await self._create_rules(owner, board, ("Door button: light", PRESSED, toggle))
        except DomainError as error:
            log.warning("the demo could not create its rules or its schedule", error=error.message)

    async def _wait_for_first_report(self, owner: SessionCaller, device: Device, metric: str) -> bool:
        rules = self.program.services.rules
        for _ in range(int(FIRST_REPORT_TIMEOUT_S * 4)):
            if metric in (await rules.get_context(owner, device.device_id)).metrics:
                return True
            await asyncio.sleep(0.25)
        return False

    async def _create_rules(self, owner: SessionCaller, device: Device, *new: tuple[str, RuleCondition, RuleAction]) -> None:
        rules = self.program.services.rules
        if await rules.list(owner, device.device_id):
            return
        for name, condition, action in new:
            await rules.create(owner, device.device_id, {"name": name, "conditions": (condition,), "action": action})

    async def _create_schedule(self, owner: SessionCaller, light: Device) -> None:
        now_s = self.program.adapters.clock.now_ms() // SECOND_MS
        wanted = ScheduleInput(on_ts=now_s + 20, off_ts=now_s + 40, label="Shortly on, shortly off")
        await self.program.services.schedules.put(owner, light.device_id, 0, wanted)


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
    await _allow_light(api, devices[BOARD])
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


async def _allow_light(api: SimulatorApiClient, board: str) -> None:
    """The light of the board, not its pump or vent."""
    key = await api.post("/keys", {"name": "Evening light"})
    grant = {"apiKeyId": key["keyId"], "commands": ["ON", "OFF", "SET_LEVEL"], "channels": [LIGHT_CHANNEL]}
    await api.post(f"/devices/{board}/grants", grant)


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


async def send_history(logins: Sequence[DeviceLogin], host: str, port: int, now_ms: int) -> None:
    """Raises aiomqtt.MqttError or TimeoutError."""
    async with asyncio.TaskGroup() as group:
        for number, login in enumerate(logins):
            group.create_task(_send(login, host, port, day_of_readings(number, now_ms)))


def day_of_readings(number: int, now_ms: int) -> str:
    """The payload of one `telemetry` message: warm in the afternoon, moist at night; `number` makes each device another one."""
    readings = []
    for minutes_ago in range(HISTORY_MINUTES, 0, -STEP_MINUTES):
        at_ms = now_ms - minutes_ago * MINUTE_MS
        hour = at_ms / (60 * MINUTE_MS) % 24
        warmth = math.sin((hour - 9 + number / 3) / 24 * 2 * math.pi) + 0.15 * math.sin(minutes_ago / 7 + number)
        values = {"temperature": round(21 + 5 * warmth, 1), "humidity": round(60 - 14 * warmth, 1)}
        readings.append({"ts": at_ms, "m": values, "u": UNITS})
    return json.dumps(readings, separators=(",", ":"))


async def _send(login: DeviceLogin, host: str, port: int, payload: str) -> None:
    async with (
        asyncio.timeout(CONNECT_TIMEOUT_S),
        aiomqtt.Client(host, port, username=login.device_id, password=login.password, identifier=login.device_id) as device,
    ):
        await device.publish(f"devices/{login.device_id}/telemetry", payload, qos=1)
