"""A fleet to look at: ten simulated devices in the program itself, two rules and a schedule: something happens at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from app.compose import Program
from app.simulation import Login, SimulatedDevice
from domain.devices.model import Device
from domain.devices.service import Registration
from domain.kernel.caller import Role, Session
from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import DomainError
from domain.rules.model import Action, Comparator, Condition
from domain.schedules.service import Terms

NAMES = (
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
WARM = Condition("temperature", Comparator.GREATER, 27.0)
COOL = Condition("temperature", Comparator.LESS, 22.0)
FIRST_REPORT_WITHIN_S = 20.0

log = structlog.get_logger("demo")


class Demo:
    """Register what is missing, then play the devices until cancelled."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def run(self) -> None:
        owner = await self._owner()
        devices = await self._devices(owner)
        logins = [await self._login(owner, device) for device in devices]
        async with asyncio.TaskGroup() as group:
            for seed, login in enumerate(logins):
                group.create_task(SimulatedDevice(login, self._program.outside.clock, seed=seed).run())
            group.create_task(self._automate(owner, devices))

    async def _owner(self) -> Session:
        """The first account's Owner."""
        async with self._program.services.uow.read() as tx:
            for account_id in await tx.accounts.all_ids():
                for member in await tx.memberships.members(account_id):
                    if member.membership.role is Role.OWNER:
                        return Session(account_id, member.user.user_id, member.membership.membership_id, Role.OWNER)
        raise RuntimeError("the demo needs an account with an Owner")

    async def _devices(self, owner: Session) -> Sequence[Device]:
        services = self._program.services
        async with services.uow.read() as tx:
            known = {device.name: device for device in await tx.devices.list(owner.account_id)}
        for name, app_type in NAMES:
            if name not in known:
                known[name] = await services.devices.register(owner, Registration(name, "ESP32", app_type))
        return [known[name] for name, _ in NAMES]

    async def _login(self, owner: Session, device: Device) -> Login:
        """A new password at each start: nobody keeps the old one."""
        made = await self._program.services.credentials.generate(owner, device.device_id, rotate=True)
        settings = self._program.settings
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.mqtt_host, settings.mqtt_host)  # noqa: S104 - compared with
        return Login(host, settings.mqtt_port, device.device_id, made.password)

    async def _automate(self, owner: Session, devices: Sequence[Device]) -> None:
        """A rule needs a metric that was reported, so it comes after the first message."""
        pump, light = devices[0], devices[4]
        try:
            if await self._reports(owner, pump):
                await self._rules(owner, pump)
            await self._schedule(owner, light)
        except DomainError as error:
            log.warning("the demo's rule or schedule was refused", error=error.message)

    async def _reports(self, owner: Session, device: Device) -> bool:
        rules = self._program.services.rules
        for _ in range(int(FIRST_REPORT_WITHIN_S * 4)):
            if "temperature" in (await rules.context(owner, device.device_id)).metrics:
                return True
            await asyncio.sleep(0.25)
        return False

    async def _rules(self, owner: Session, pump: Device) -> None:
        rules = self._program.services.rules
        if await rules.list(owner, pump.device_id):
            return
        for name, condition, command in (("Warm: water", WARM, "ON"), ("Cool: stop", COOL, "OFF")):
            wanted = {"name": name, "conditions": (condition,), "action": Action(command)}
            await rules.create(owner, pump.device_id, wanted)

    async def _schedule(self, owner: Session, light: Device) -> None:
        now_s = self._program.outside.clock.now_ms() // SECOND_MS
        terms = Terms(on_ts=now_s + 20, off_ts=now_s + 40, label="Shortly on, shortly off")
        await self._program.services.schedules.put(owner, light.device_id, 0, terms)
