"""`latchboard simulate`: devices of a running service, registered through its API and played from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from adapters.clock import SystemClock
from app.simulation import Login, SimulatedDevice

AT_ONCE = 16
ANSWER_WITHIN_S = 30.0
LOOK_EVERY_S = 0.2


class SimulationRefused(Exception):
    """What the service said, or why it could not be asked."""


@dataclass(frozen=True, slots=True)
class Order:
    """`rate`: messages a second of all devices together. `fleet`: the extension plays them, for load."""

    url: str
    token: str | None = field(repr=False)
    email: str | None
    password: str | None = field(repr=False)
    devices: tuple[str, ...]
    count: int
    rate: float
    seconds: float | None
    fleet: bool


async def play(order: Order, say: Callable[[str], None]) -> Sequence[str]:
    """Returns what there is to say at the end. Raises SimulationRefused."""
    try:
        async with httpx.AsyncClient(base_url=f"{order.url}/api/v1", timeout=ANSWER_WITHIN_S) as client:
            client.headers["Authorization"] = f"Bearer {order.token or await _sign_in(client, order)}"
            logins = await _logins(client, order)
    except httpx.HTTPError as error:
        raise SimulationRefused(f"{order.url} does not answer: {error!r}. Is the service running?") from None
    say(f"playing {len(logins)} device{'s' if len(logins) != 1 else ''} at {logins[0].host}:{logins[0].port}")
    return await (_native(logins, order) if order.fleet else _by_python(logins, order))


async def _sign_in(client: httpx.AsyncClient, order: Order) -> str:
    if order.email is None or order.password is None:
        raise SimulationRefused("Give --token, or --email and --password.")
    signed_in = await _ask(client, "/auth/login", {"email": order.email, "password": order.password})
    return str(signed_in["accessToken"])


async def _logins(client: httpx.AsyncClient, order: Order) -> list[Login]:
    wanted = asyncio.Semaphore(AT_ONCE)

    async def login(number: int, device_id: str | None) -> Login:
        async with wanted:
            if device_id is None:
                body = {"name": f"Simulated {number + 1}", "boardType": "ESP32", "appType": "PUMP"}
                device_id = str((await _ask(client, "/devices/register", body))["deviceId"])
            made = await _ask(client, f"/devices/{device_id}/credentials", {"rotate": True})
        # The public name need not be known here; the service itself is reached by the address we were given.
        return Login(httpx.URL(order.url).host, int(made["mqttPort"]), device_id, str(made["mqttPassword"]))

    chosen: Sequence[str | None] = order.devices or [None] * order.count
    return list(await asyncio.gather(*(login(number, device_id) for number, device_id in enumerate(chosen))))


async def _ask(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    said: dict[str, Any] = answer.json()
    if answer.is_error:
        raise SimulationRefused(f"{path}: {said.get('error')}: {said.get('message')}")
    return said


async def _by_python(logins: Sequence[Login], order: Order) -> Sequence[str]:
    clock = SystemClock()
    every_s = len(logins) / order.rate
    devices = [SimulatedDevice(login, clock, every_s=every_s, seed=seed) for seed, login in enumerate(logins)]
    try:
        async with asyncio.timeout(order.seconds), asyncio.TaskGroup() as group:
            for device in devices:
                group.create_task(device.run())
    except TimeoutError:
        pass
    return [f"obeyed {sum(device.obeyed for device in devices)} commands"]


async def _native(logins: Sequence[Login], order: Order) -> Sequence[str]:
    from adapters.engine import _native as extension  # noqa: TID251 - the fleet is the extension's own, beside broker and engine

    fleet = extension.Simulation(
        logins[0].host,
        logins[0].port,
        [(login.device_id, login.password) for login in logins],
        rate=order.rate,
        seconds=order.seconds,
    )
    try:
        while fleet.running():  # noqa: ASYNC110 - it runs on threads of its own and rings no bell
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        fleet.stop()
    return [f"{name:24} {value}" for name, value in fleet.stats().items()]
