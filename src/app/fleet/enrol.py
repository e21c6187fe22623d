"""Where the logins of a fleet come from: devices of the service, those that an earlier run has made, new ones, or a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.fleet.api import Api
from app.fleet.order import Login, Order, Profile, SimulationRefused

AT_ONCE = 16

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Roll:
    """Who plays, and where the service says that devices connect. `made`: whether they are ours to remove."""

    logins: Sequence[Login]
    profile: Profile
    port: int | None = None
    ws_port: int | None = None
    made: bool = False


def read(path: Path, profile: Profile) -> Roll:
    """Lines of a device id and its password. Raises SimulationRefused."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationRefused(f"{path} cannot be read: {error}. Name a file of device ids and passwords.") from None
    wrong = next((number for number, words in enumerate(lines, 1) if len(words) != 2), None)
    if wrong is not None or not lines:
        raise SimulationRefused(f"{path}: line {wrong or 1} is not a device id and its password, with a space between.")
    return Roll([Login(*words) for words in lines], profile)


def write(path: Path, logins: Sequence[Login]) -> None:
    """For nobody else to read. Raises SimulationRefused."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise SimulationRefused(f"{path} cannot be written: {error.strerror}. Name another file.") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.writelines(f"{login.device_id} {login.password}\n" for login in logins)


async def enrol(api: Api, order: Order, say: Say) -> Roll:
    """Each device gets a new password. Raises SimulationRefused."""
    known, profile = await (_chosen(api, order) if order.devices else _earlier(api, order))
    wanted = asyncio.Semaphore(AT_ONCE)
    ports: dict[str, int] = {}
    ready = 0

    async def login(number: int) -> Login:
        nonlocal ready
        async with wanted:
            device_id = known[number] if number < len(known) else await _register(api, profile, number)
            made = await api.post(f"/devices/{device_id}/credentials", {"rotate": True})
        ports.update({"port": int(made["mqttPort"]), "ws_port": int(made["wsPort"])})
        ready += 1
        if ready % 500 == 0:
            say(f"{ready} of {count} devices have their passwords")
        return Login(device_id, str(made["mqttPassword"]))

    count = len(known) if order.devices else order.count
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(login(number)) for number in range(count)]
    return Roll([task.result() for task in tasks], profile, made=not order.devices, **ports)


async def _chosen(api: Api, order: Order) -> tuple[Sequence[str], Profile]:
    profiles = {Profile((await api.get(f"/devices/{device_id}"))["profile"]) for device_id in order.devices}
    if len(profiles) > 1:
        raise SimulationRefused("These devices have different profiles; play those of one profile at a time.")
    return order.devices, profiles.pop()


async def _earlier(api: Api, order: Order) -> tuple[Sequence[str], Profile]:
    """Those of an earlier run, in the order of their numbers."""
    by_name = {str(device["name"]): str(device["deviceId"]) for device in await api.get("/devices")}
    names = (_name(order.profile, number) for number in range(order.count))
    found: list[str] = []
    for name in names:
        if name not in by_name:
            break
        found.append(by_name[name])
    return found, order.profile


def _name(profile: Profile, number: int) -> str:
    return f"Simulated {profile} {number + 1}"


async def _register(api: Api, profile: Profile, number: int) -> str:
    body = {"name": _name(profile, number), "boardType": "ESP32", "appType": "PUMP", "profile": str(profile)}
    return str((await api.post("/devices/register", body | {"tags": ["simulated"]}))["deviceId"])


async def remove(api: Api, logins: Sequence[Login]) -> None:
    wanted = asyncio.Semaphore(AT_ONCE)

    async def delete(device_id: str) -> None:
        async with wanted:
            await api.delete(f"/devices/{device_id}")

    async with asyncio.TaskGroup() as group:
        for login in logins:
            group.create_task(delete(login.device_id))
