"""A client of the service's API, and the device logins that it provides: of chosen devices, of devices from an earlier run, of
newly registered devices; or those of a file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from app.simulator.options import DeviceLogin, SimulationError, SimulationOptions, SimulatorApiCredentials
from domain.devices.model import FirmwareProfile

RESPONSE_TIMEOUT_S = 40.0
MAX_IN_FLIGHT = 16

TokenIssuer = Callable[[], Awaitable[str]]
PrintLine = Callable[[str], None]


class SimulatorApiClient:
    """Signs in, again when the token expires, and raises each refusal as a SimulationError."""

    def __init__(self, credentials: SimulatorApiCredentials, issue_token: TokenIssuer | None = None) -> None:
        """`issue_token` supplies an access token when `credentials` hold neither a token nor an email address."""
        self._credentials = credentials
        self._issue_token = issue_token
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(base_url=f"{credentials.url}/api/v1", timeout=RESPONSE_TIMEOUT_S, limits=limits)

    async def __aenter__(self) -> Self:
        if self._credentials.token is None:
            await self._sign_in()
        else:
            self._set_token(self._credentials.token)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Any:
        return await self._request_json("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request_json("POST", path, body)

    async def put(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request_json("PUT", path, body)

    async def patch(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request_json("PATCH", path, body)

    async def delete(self, path: str) -> Any:
        return await self._request_json("DELETE", path, None)

    async def _request_json(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        response = await self._send(method, path, body)
        if response.status_code == 401 and self._credentials.token is None and path != "/auth/login":
            await self._sign_in()
            response = await self._send(method, path, body)
        try:
            data = response.json()
        except ValueError:
            raise SimulationError(
                f"{self._credentials.url}{path} does not return JSON ({response.status_code}). Is it Latchboard?"
            ) from None
        if response.is_error:
            raise SimulationError(f"{path}: {data.get('error')}: {data.get('message')}")
        return data

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            return await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise SimulationError(f"{self._credentials.url} does not answer: {error!r}. Is the service running?") from None

    async def _sign_in(self) -> None:
        credentials = self._credentials
        if credentials.email is None and self._issue_token is not None:
            self._set_token(await self._issue_token())
            return
        if credentials.email is None or credentials.password is None:
            raise SimulationError("Set LATCHBOARD_TOKEN, or give --email.")
        signed_in = await self._request_json(
            "POST", "/auth/login", {"email": credentials.email, "password": credentials.password}
        )
        self._set_token(str(signed_in["accessToken"]))

    def _set_token(self, token: str) -> None:
        self._client.headers["Authorization"] = f"Bearer {token}"


@dataclass(frozen=True, slots=True)
class ProvisionedFleet:
    """Device logins, and the ports that the service names. `created_devices`: the simulator may delete these devices."""

    logins: Sequence[DeviceLogin]
    profile: FirmwareProfile
    port: int | None = None
    ws_port: int | None = None
    created_devices: bool = False


def read_logins(path: Path, profile: FirmwareProfile) -> ProvisionedFleet:
    """Read a file with a device id and a password per line. Raises SimulationError."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationError(f"{path} cannot be read: {error}. Name a file of device ids and passwords.") from None
    invalid = next((number for number, words in enumerate(lines, 1) if len(words) != 2), None)
    if invalid is not None or not lines:
        raise SimulationError(f"{path}: line {invalid or 1} is not a device id and its password, separated by a space.")
    return ProvisionedFleet([DeviceLogin(*words) for words in lines], profile)


def write_logins(path: Path, logins: Sequence[DeviceLogin]) -> None:
    """Write the file with mode 0600. Raises SimulationError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise SimulationError(f"{path} cannot be written: {error.strerror}. Name another file.") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.writelines(f"{login.device_id} {login.password}\n" for login in logins)


async def provision(api: SimulatorApiClient, options: SimulationOptions, print_line: PrintLine) -> ProvisionedFleet:
    """Register missing devices and give every device a new password. Raises SimulationError."""
    known, profile = await (_selected_devices(api, options) if options.device_ids else _devices_of_earlier_run(api, options))
    slots = asyncio.Semaphore(MAX_IN_FLIGHT)
    ports: dict[str, int] = {}
    ready = 0

    async def login(number: int) -> DeviceLogin:
        nonlocal ready
        async with slots:
            device_id = known[number] if number < len(known) else await _register_device(api, profile, number)
            created = await api.post(f"/devices/{device_id}/credentials", {"rotate": True})
        ports.update({"port": int(created["mqttPort"]), "ws_port": int(created["wsPort"])})
        ready += 1
        if ready % 500 == 0:
            print_line(f"{ready} of {count} devices have passwords")
        return DeviceLogin(device_id, str(created["mqttPassword"]))

    count = len(known) if options.device_ids else options.device_count
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(login(number)) for number in range(count)]
    return ProvisionedFleet([task.result() for task in tasks], profile, created_devices=not options.device_ids, **ports)


async def _selected_devices(api: SimulatorApiClient, options: SimulationOptions) -> tuple[Sequence[str], FirmwareProfile]:
    profiles = {FirmwareProfile((await api.get(f"/devices/{device_id}"))["profile"]) for device_id in options.device_ids}
    if len(profiles) > 1:
        raise SimulationError("These devices have different profiles; simulate one profile at a time.")
    return options.device_ids, profiles.pop()


async def _devices_of_earlier_run(api: SimulatorApiClient, options: SimulationOptions) -> tuple[Sequence[str], FirmwareProfile]:
    """The devices of an earlier run, by number, up to the first missing one."""
    by_name = {str(device["name"]): str(device["deviceId"]) for device in await api.get("/devices")}
    names = (_device_name(options.profile, number) for number in range(options.device_count))
    found: list[str] = []
    for name in names:
        if name not in by_name:
            break
        found.append(by_name[name])
    return found, options.profile


def _device_name(profile: FirmwareProfile, number: int) -> str:
    return f"Simulated {profile} {number + 1}"


async def _register_device(api: SimulatorApiClient, profile: FirmwareProfile, number: int) -> str:
    body = {"name": _device_name(profile, number), "boardType": "ESP32", "appType": "PUMP", "profile": str(profile)}
    return str((await api.post("/devices/register", body | {"tags": ["simulated"]}))["deviceId"])


async def delete_devices(api: SimulatorApiClient, logins: Sequence[DeviceLogin]) -> None:
    slots = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def delete(device_id: str) -> None:
        async with slots:
            await api.delete(f"/devices/{device_id}")

    async with asyncio.TaskGroup() as group:
        for login in logins:
            group.create_task(delete(login.device_id))
