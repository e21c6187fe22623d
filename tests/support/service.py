"""The real program as a subprocess with its own ports, data directory and environment.

    with Service(folder) as service, …:
        async with service.api() as owner:
            await owner.post("/devices/register", {...}, expect=201)

`kill` is SIGKILL, so after `start` a test finds only what was durable. `RUNNING` lets a failed test show the log.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from support.described import assert_described
from support.empty_database import empty_sqlite
from support.fork_server import ForkedProcess, fork_server
from support.ports import free_ports
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S, until

EMAIL = "owner@example.com"
PASSWORD = "correct horse battery"
SOURCES = Path(__file__).resolve().parents[2] / "src"
PORT_SETTINGS = ("LATCHBOARD_HTTP_PORT", "LATCHBOARD_MQTT_PORT", "LATCHBOARD_MQTT_WS_PORT")

RUNNING_SERVICES: list[Service] = []


def program_command() -> list[str]:
    """The installed command if there is one, else the sources."""
    script = Path(sys.executable).parent / "latchboard"
    return [str(script)] if script.exists() else [sys.executable, "-c", "from app.cli.main import main; main()"]


def environment(*before: Path, **settings: Any) -> dict[str, str]:
    """This process's environment without LATCHBOARD_ variables, plus `settings`. `before`: a folder before the sources in PYTHONPATH."""
    ours = ("LATCHBOARD_", "PYTHONDONTWRITEBYTECODE")  # without bytecode each start compiles everything anew
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([*map(str, before), str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept | {"PYTHONPATH": path} | {name: str(value) for name, value in settings.items()}


class Service:
    starts_on_nothing = False
    """Whether its first start makes the database; else that start finds the tables."""

    def __init__(self, folder: Path, *before: Path, **settings: Any) -> None:
        """`settings`: by variable name, in addition to what every test needs. `before`: a folder before the sources in PYTHONPATH."""
        self.folder = folder
        self.data_dir = folder / "data"
        self.settings: dict[str, Any] = {
            **dict(zip(PORT_SETTINGS, free_ports(len(PORT_SETTINGS)), strict=True)),
            "LATCHBOARD_DATA_DIR": self.data_dir,
            "LATCHBOARD_MQTT_PUBLIC_HOST": "127.0.0.1",
            "LATCHBOARD_OWNER_EMAIL": EMAIL,
            "LATCHBOARD_OWNER_PASSWORD": PASSWORD,
            "LATCHBOARD_WEBHOOK_ALLOW_PRIVATE": "true",
            "LATCHBOARD_LOG_FORMAT": "json",
            **settings,
        }
        self.log_file = folder / "service.log"
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._path_prefix = before
        self._token: str | None = None

    @property
    def port(self) -> int:
        return int(self.settings["LATCHBOARD_HTTP_PORT"])

    @property
    def mqtt_port(self) -> int:
        return int(self.settings["LATCHBOARD_MQTT_PORT"])

    @property
    def ws_port(self) -> int:
        return int(self.settings["LATCHBOARD_MQTT_WS_PORT"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self, last: int = 20_000) -> str:
        return self.log_file.read_text(errors="replace")[-last:] if self.log_file.exists() else ""

    async def wait_for_log(self, text: str) -> None:
        """Lines are written a moment after what they tell, by a thread of their own."""

        async def log() -> str:
            return self.log()

        await until(log, lambda written: text in written)

    def error_lines(self) -> list[str]:
        """The log lines with the level error."""
        lines = self.log_file.read_text(errors="replace").splitlines()
        wrong = ("Traceback", '"level": "error"', '"level": "critical"')
        return [line for line in lines if any(word in line for word in wrong)]

    def launch(self, *arguments: str) -> subprocess.Popen[bytes] | ForkedProcess:
        """Start it by the fork server, unless `before` is set: those modules must be imported anew."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            if not self._path_prefix and (home := fork_server()):
                return home.start([*arguments], folder=self.folder, env=environment(**self.settings), out=log.fileno())
            return subprocess.Popen(
                [*program_command(), *arguments],
                cwd=self.folder,
                env=environment(*self._path_prefix, **self.settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start(self) -> None:
        """Start the service and wait until `/readyz` answers 200."""
        assert not self.is_running
        self.process = self.launch("serve")
        deadline = time.monotonic() + TIMEOUT_S
        while not self._ready():
            assert self.process.poll() is None, f"ended with {self.process.returncode} before it was ready:\n{self.log(3_000)}"
            assert time.monotonic() < deadline, f"not ready after {TIMEOUT_S} s:\n{self.log(3_000)}"
            time.sleep(0.03)

    def expect_start_failure(self) -> tuple[int, str]:
        """Start the service, which must fail; returns its exit code and output."""
        process = self.launch("serve")
        try:
            return process.wait(TIMEOUT_S), self.log()
        finally:
            _kill(process)

    def stop(self) -> float:
        """Send SIGTERM; returns the seconds until it exited with 0."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(TIMEOUT_S)
        assert code == 0, f"exit code {code}:\n{self.log(3_000)}"
        return time.monotonic() - began

    def kill(self) -> None:
        """Send SIGKILL and wait for the end of the process."""
        assert self.process is not None
        _kill(self.process)

    def restart(self) -> None:
        self.stop()
        self.start()

    async def kill_and_restart(self) -> None:
        """Kill the service and start it again. The test's clients continue meanwhile."""
        self.kill()
        await asyncio.to_thread(self.start)

    def _create_database(self) -> None:
        file = Path(self.settings["LATCHBOARD_DATA_DIR"]) / "latchboard.db"
        if not (self.starts_on_nothing or file.exists() or "LATCHBOARD_DATABASE_URL" in self.settings):
            empty_sqlite(file)

    def _ready(self) -> bool:
        line = HTTPConnection(
            "127.0.0.1", self.port, timeout=OPERATION_TIMEOUT_S
        )  # httpx would cost 40 ms of processor each time
        try:
            line.request("GET", "/readyz")
            return line.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            line.close()

    def __enter__(self) -> Service:
        RUNNING_SERVICES.append(self)
        try:
            self._create_database()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        RUNNING_SERVICES.remove(self)
        if self.process is not None:
            _kill(self.process)

    @asynccontextmanager
    async def api(self, **headers: str) -> AsyncIterator[ApiClient]:
        """An API client with these headers; without any, as the Owner."""
        async with httpx.AsyncClient(base_url=f"{self.url}/api/v1", timeout=TIMEOUT_S, verify=False) as raw:
            api = ApiClient(raw, headers)
            if not headers:
                api.headers = {"Authorization": f"Bearer {await self.token(api)}"}
            yield api

    async def token(self, api: ApiClient) -> str:
        """The Owner's access token; one sign-in for the whole run."""
        if self._token is None:
            self._token = (await api.post("/auth/login", {"email": EMAIL, "password": PASSWORD}))["accessToken"]
        return self._token

    async def sign_in_again(self, api: ApiClient) -> None:
        """Sign in again after the Owner's session has ended or the clock has changed."""
        self._token = None
        api.headers = {"Authorization": f"Bearer {await self.token(ApiClient(api.raw, {}))}"}

    @asynccontextmanager
    async def feed(self, api: ApiClient, query: str = "") -> AsyncIterator[FeedClient]:
        """The live feed with the credentials of `api`, after its first message."""
        address = f"ws://127.0.0.1:{self.port}/api/v1/ws{query}"
        async with connect(address, additional_headers=api.headers, open_timeout=TIMEOUT_S, close_timeout=1) as socket:
            feed = FeedClient(socket)
            feed.state = await feed.wait_for("initial_state")
            yield feed

    @asynccontextmanager
    async def resumed_feed(self, api: ApiClient, cursor: str) -> AsyncIterator[FeedClient]:
        """The live feed from this cursor on; nothing of it has been read."""
        address = f"ws://127.0.0.1:{self.port}/api/v1/ws?cursor={cursor}"
        async with connect(address, additional_headers=api.headers, open_timeout=TIMEOUT_S, close_timeout=1) as socket:
            yield FeedClient(socket)


class ApiClient:
    """An API client. Each call names the status that it expects and returns the JSON of the response."""

    def __init__(self, raw: httpx.AsyncClient, headers: dict[str, str]) -> None:
        self.raw = raw
        self.headers = headers

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        headers = {**self.headers, **more.pop("headers", {})}
        answer = await self.raw.request(method, path, json=body, headers=headers, **more)
        assert_described(answer)
        return answer

    async def call(self, method: str, path: str, body: Any, expect: int, **more: Any) -> Any:
        answer = await self.send(method, path, body, **more)
        assert answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def get(self, path: str, *, expect: int = 200, **more: Any) -> Any:
        return await self.call("GET", path, None, expect, **more)

    async def post(self, path: str, body: Any = None, *, expect: int = 200, **more: Any) -> Any:
        return await self.call("POST", path, body, expect, **more)

    async def patch(self, path: str, body: Any = None, *, expect: int = 200) -> Any:
        return await self.call("PATCH", path, body, expect)

    async def delete(self, path: str, *, expect: int = 200) -> Any:
        return await self.call("DELETE", path, None, expect)

    async def wait_until(self, path: str, wanted: Any, *, within_s: float = TIMEOUT_S) -> Any:
        """Read until `wanted(answer)` is true; returns that response."""
        return await until(lambda: self.get(path), wanted, within_s=within_s)


class FeedClient:
    """A connection to the live feed. `received`: all messages, in order."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.state: dict[str, Any] = {}
        self.received: list[dict[str, Any]] = []

    async def wait_for(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of this type with these fields; others before it are skipped."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                message: dict[str, Any] = json.loads(await self.socket.recv())
                self.received.append(message)
                if message["type"] == kind and fields.items() <= message.items():
                    return message


def _kill(process: subprocess.Popen[bytes] | ForkedProcess) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(TIMEOUT_S)
