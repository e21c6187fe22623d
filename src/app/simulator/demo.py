"""The demo: ten simulated devices inside the service's process, in an account that shows what is special. Two rules and a
schedule act within a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from app.simulator.api_client import SimulatorApiClient
from app.simulator.demo_history import send_history
from app.simulator.demo_projects_keys_and_schedule import furnish_account
from app.simulator.device_login_provisioning import ProvisionedFleet
from app.simulator.options import DeviceLogin, SimulationError, SimulationOptions, SimulatorApiCredentials
from app.simulator.run import start_fleet
from app.wiring.program import ComposedApplication
from domain.devices.model import Device, FirmwareProfile
from domain.devices.registration import DeviceRegistrationInput
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import DomainError
from domain.rules.model import Comparator, RuleAction, RuleCondition
from domain.schedules.service import ScheduleInput
from domain.sign_in.sessions import SessionTokenIssuer

DEMO_DEVICES = (
    ("Greenhouse pump", "PUMP"),
    ("Greenhouse fan", "FAN"),
    ("Cold room", "COOLING"),
    ("Boiler", "HEATING"),
    ("Yard light", "LIGHT"),
    ("Hall light", "LIGHT"),
    ("Fountain", "PUMP"),
    ("Gate", "GATE"),
    ("Workshop outlet", "SOCKET"),
    ("Server room fan", "FAN"),
)
OPTIONS = SimulationOptions(device_count=len(DEMO_DEVICES))
WARM = RuleCondition("temperature", Comparator.GREATER, 27.0)
COOL = RuleCondition("temperature", Comparator.LESS, 22.0)
FIRST_REPORT_TIMEOUT_S = 20.0
_OWN_HOST_BY_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound

log = structlog.get_logger("demo")


class DemoFleet:
    """Registers the missing devices and runs all of them until cancelled."""

    def __init__(self, program: ComposedApplication, url: str, password: str | None) -> None:
        """`url`: where this machine reaches the service. `password`: of the Owner, and then of the Viewer too; None when the
        account is older than this start."""
        self._program = program
        self._url = url
        self._password = password

    async def run(self) -> None:
        owner = await self._find_owner()
        devices = await self._register_missing_devices(owner)
        logins = [await self._create_login(owner, device) for device in devices]
        settings = self._program.settings
        host = _OWN_HOST_BY_WILDCARD.get(settings.mqtt_host, settings.mqtt_host)
        if all(device.last_seen_ms is None for device in devices):
            await send_history(logins, host, settings.mqtt_port, self._program.adapters.clock.now_ms())
        fleet = start_fleet(OPTIONS, ProvisionedFleet(logins, FirmwareProfile.NATIVE), host, settings.mqtt_port)
        try:
            await self._furnish_account(devices)
            await self._create_automations(owner, devices)
            await asyncio.Event().wait()  # the fleet runs on its own threads
        finally:
            await asyncio.to_thread(fleet.stop)

    async def _furnish_account(self, devices: Sequence[Device]) -> None:
        """By the API, as a person would do it."""
        if self._password is None:
            return
        services, adapters = self._program.services, self._program.adapters
        issuer = SessionTokenIssuer(ids=adapters.ids, tokens=adapters.tokens, digest=adapters.digest)
        credentials = SimulatorApiCredentials(self._url, token=await services.operator.issue_owner_token(issuer))
        by_name = {device.name: str(device.device_id) for device in devices}
        try:
            async with SimulatorApiClient(credentials) as api:
                await furnish_account(api, self._url, by_name, self._password, adapters.clock.now_ms())
        except SimulationError as error:
            log.warning("the demo could not furnish its account", error=str(error))

    async def _find_owner(self) -> SessionCaller:
        """The first account's Owner."""
        async with self._program.services.uow.read() as tx:
            for account_id in await tx.accounts.list_ids():
                for member in await tx.memberships.list_members(account_id):
                    if member.membership.role is Role.OWNER:
                        return SessionCaller(account_id, member.user.user_id, member.membership.membership_id, Role.OWNER)
        raise RuntimeError("the demo needs an account with an Owner")

    async def _register_missing_devices(self, owner: SessionCaller) -> Sequence[Device]:
        services = self._program.services
        async with services.uow.read() as tx:
            known = {device.name: device for device in await tx.devices.list(owner.account_id)}
        for name, app_type in DEMO_DEVICES:
            if name not in known:
                known[name] = await services.devices.register(owner, DeviceRegistrationInput(name, "ESP32", app_type))
        return [known[name] for name, _ in DEMO_DEVICES]

    async def _create_login(self, owner: SessionCaller, device: Device) -> DeviceLogin:
        """Each start sets a new password, because the old one is not stored in plain text."""
        created = await self._program.services.credentials.generate(owner, device.device_id, rotate=True)
        return DeviceLogin(device.device_id, created.password)

    async def _create_automations(self, owner: SessionCaller, devices: Sequence[Device]) -> None:
        """A rule needs a metric that the device has reported, so rules follow the first message."""
        pump, light = devices[0], devices[4]
        try:
            if await self._wait_for_first_report(owner, pump):
                await self._create_rules(owner, pump)
            await self._create_schedule(owner, light)
        except DomainError as error:
            log.warning("the demo could not create its rules or its schedule", error=error.message)

    async def _wait_for_first_report(self, owner: SessionCaller, device: Device) -> bool:
        rules = self._program.services.rules
        for _ in range(int(FIRST_REPORT_TIMEOUT_S * 4)):
            if "temperature" in (await rules.get_context(owner, device.device_id)).metrics:
                return True
            await asyncio.sleep(0.25)
        return False

    async def _create_rules(self, owner: SessionCaller, pump: Device) -> None:
        rules = self._program.services.rules
        if await rules.list(owner, pump.device_id):
            return
        for name, condition, command in (("Warm: water", WARM, "ON"), ("Cool: stop", COOL, "OFF")):
            wanted = {"name": name, "conditions": (condition,), "action": RuleAction(command)}
            await rules.create(owner, pump.device_id, wanted)

    async def _create_schedule(self, owner: SessionCaller, light: Device) -> None:
        now_s = self._program.adapters.clock.now_ms() // SECOND_MS
        wanted = ScheduleInput(on_ts=now_s + 20, off_ts=now_s + 40, label="Shortly on, shortly off")
        await self._program.services.schedules.put(owner, light.device_id, 0, wanted)
