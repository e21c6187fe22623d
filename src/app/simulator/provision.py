"""Where the logins of a fleet come from: devices of the service, those that an earlier run has made, new ones, or a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.simulator.api_client import ApiClient
from app.simulator.options import DeviceLogin, SimulationError, SimulationOptions
from domain.devices.model import FirmwareProfile

MAX_IN_FLIGHT = 16

PrintLine = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProvisionedFleet:
    """Who plays, and where the service says that devices connect. `made`: whether they are ours to remove."""

    logins: Sequence[DeviceLogin]
    profile: FirmwareProfile
    port: int | None = None
    ws_port: int | None = None
    created_devices: bool = False


def read_logins(path: Path, profile: FirmwareProfile) -> ProvisionedFleet:
    """Lines of a device id and its password. Raises SimulationRefused."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationError(f"{path} cannot be read: {error}. Name a file of device ids and passwords.") from None
    wrong = next((number for number, words in enumerate(lines, 1) if len(words) != 2), None)
    if wrong is not None or not lines:
        raise SimulationError(f"{path}: line {wrong or 1} is not a device id and its password, with a space between.")
    return ProvisionedFleet([DeviceLogin(*words) for words in lines], profile)


def write_logins(path: Path, logins: Sequence[DeviceLogin]) -> None:
    """For nobody else to read. Raises SimulationRefused."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise SimulationError(f"{path} cannot be written: {error.strerror}. Name another file.") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.writelines(f"{login.device_id} {login.password}\n" for login in logins)


async def provision(api: ApiClient, order: SimulationOptions, say: PrintLine) -> ProvisionedFleet:
    """Each device gets a new password. Raises SimulationRefused."""
    known, profile = await (_selected_devices(api, order) if order.device_ids else _devices_of_earlier_run(api, order))
    wanted = asyncio.Semaphore(MAX_IN_FLIGHT)
    ports: dict[str, int] = {}
    ready = 0

    async def login(number: int) -> DeviceLogin:
        nonlocal ready
        async with wanted:
            device_id = known[number] if number < len(known) else await _register_device(api, profile, number)
            made = await api.post(f"/devices/{device_id}/credentials", {"rotate": True})
        ports.update({"port": int(made["mqttPort"]), "ws_port": int(made["wsPort"])})
        ready += 1
        if ready % 500 == 0:
            say(f"{ready} of {count} devices have their passwords")
        return DeviceLogin(device_id, str(made["mqttPassword"]))

    count = len(known) if order.device_ids else order.device_count
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(login(number)) for number in range(count)]
    return ProvisionedFleet([task.result() for task in tasks], profile, created_devices=not order.device_ids, **ports)


async def _selected_devices(api: ApiClient, order: SimulationOptions) -> tuple[Sequence[str], FirmwareProfile]:
    profiles = {FirmwareProfile((await api.get(f"/devices/{device_id}"))["profile"]) for device_id in order.device_ids}
    if len(profiles) > 1:
        raise SimulationError("These devices have different profiles; play those of one profile at a time.")
    return order.device_ids, profiles.pop()


async def _devices_of_earlier_run(api: ApiClient, order: SimulationOptions) -> tuple[Sequence[str], FirmwareProfile]:
    """Those of an earlier run, in the order of their numbers."""
    by_name = {str(device["name"]): str(device["deviceId"]) for device in await api.get("/devices")}
    names = (_device_name(order.profile, number) for number in range(order.device_count))
    found: list[str] = []
    for name in names:
        if name not in by_name:
            break
        found.append(by_name[name])
    return found, order.profile


def _device_name(profile: FirmwareProfile, number: int) -> str:
    return f"Simulated {profile} {number + 1}"


async def _register_device(api: ApiClient, profile: FirmwareProfile, number: int) -> str:
    body = {"name": _device_name(profile, number), "boardType": "ESP32", "appType": "PUMP", "profile": str(profile)}
    return str((await api.post("/devices/register", body | {"tags": ["simulated"]}))["deviceId"])


async def delete_devices(api: ApiClient, logins: Sequence[DeviceLogin]) -> None:
    wanted = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def delete(device_id: str) -> None:
        async with wanted:
            await api.delete(f"/devices/{device_id}")

    async with asyncio.TaskGroup() as group:
        for login in logins:
            group.create_task(delete(login.device_id))
