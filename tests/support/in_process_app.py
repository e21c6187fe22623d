"""The whole program inside a test, as `app.wiring.compose` makes it: every endpoint, real SQLite in a folder, no port and no
broker.

    async with in_process_app(tmp_path) as program:
        ada = await program.sign_in(await program.account("ada@example.com"))
        answer = await ada.post("/devices/register", {...})

Only the outside is replaced: the clock, the device link, the webhook courier, the mailer, the cost of a password hash, the wait for
the database. Workers do not run; tests call them by hand. For the program as a process, with its broker and its workers, see
`notifications/settings.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from adapters.crypto.passwords import Argon2PasswordHasher
from adapters.storage.sql import SqlDatabase
from app.config.settings import Settings
from app.wiring.compose import compose
from app.wiring.program import ComposedApplication
from domain.ingest.pipeline import assign_metric_numbers
from domain.ingest.results import IngestResult
from domain.kernel.caller import Role
from domain.kernel.ids import DeviceId
from domain.team.operator import CreatedAccountWithOwner
from domain.webhooks.ports import OutboundHttpRequest, OutboundHttpResponse, ResponseCallback
from support.described import assert_described
from support.device_world import FakeLink
from support.empty_database import empty_sqlite
from support.http import PASSWORD, FakeMailer
from support.manual_clock import ManualClock
from support.waiting import TIMEOUT_S

BASE_URL = "http://latchboard.test"
RECEIVER_URL = "http://127.0.0.1:9/hook"


class CountingHasher(Argon2PasswordHasher):
    """Cheap parameters; records every password hash that is verified."""

    def __init__(self) -> None:
        super().__init__(memory_kib=8, passes=1)
        self.verified: list[str] = []

    def _verify(self, password_hash: str, password: str) -> bool:
        self.verified.append(password_hash)
        return super()._verify(password_hash, password)


class FakeCourier:
    """Every receiver responds with 204."""

    def __init__(self, **_: Any) -> None:
        self.requests: list[OutboundHttpRequest] = []
        self._callback: ResponseCallback | None = None

    def on_responses(self, callback: ResponseCallback) -> None:
        self._callback = callback

    def send(self, posts: Sequence[tuple[int, OutboundHttpRequest]]) -> None:
        self.requests += [post for _, post in posts]
        asyncio.get_running_loop().call_soon(
            self._respond, [(ticket, OutboundHttpResponse(204, None, b"", 0)) for ticket, _ in posts]
        )

    def _respond(self, replies: Sequence[tuple[int, OutboundHttpResponse]]) -> None:
        if self._callback is not None:
            self._callback(replies)

    def cancel(self, tickets: Sequence[int]) -> None: ...

    def rejection_reason(self, url: str) -> str | None:
        return None

    async def close(self) -> None: ...


class ApiCaller:
    """One caller of the API with its headers. `Whole.replies` keeps the responses of all callers."""

    def __init__(self, whole: InProcessApp, headers: dict[str, str]) -> None:
        self.app = whole
        self.headers = headers

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        headers = {**self.headers, **more.pop("headers", {})}
        path = path if path.startswith("/api/") else f"/api/v1{path}"
        return await self.app.http.request(method, path, json=body, headers=headers, **more)

    async def send_ok(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON response of a call that must succeed."""
        answer = await self.send(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()


class InProcessApp:
    def __init__(self, program: ComposedApplication, clock: ManualClock, mail: FakeMailer) -> None:
        self.program = program
        self.services = program.services
        self.clock = clock
        self.mail = mail
        self.hasher: Any = program.adapters.hasher
        self.login_hasher: Any = program.adapters.login_hasher
        self.responses: list[httpx.Response] = []
        """All responses to all callers, with their bodies."""
        transport = httpx.ASGITransport(app=program.http_app, raise_app_exceptions=False)  # type: ignore[arg-type]
        self.http = httpx.AsyncClient(
            transport=transport, base_url=BASE_URL, timeout=20, event_hooks={"response": [self._record]}
        )

    async def _record(self, answer: httpx.Response) -> None:
        await answer.aread()
        self.responses.append(answer)
        assert_described(answer)

    def caller(self, **headers: str) -> ApiCaller:
        return ApiCaller(self, {name.replace("_", "-"): value for name, value in headers.items()})

    async def create_account(self, email: str, name: str = "Analytical Engines") -> CreatedAccountWithOwner:
        created = await self.services.operator.create_account(name=name, email=email, password=PASSWORD)
        assert created is not None
        return created

    async def create_member(self, created: CreatedAccountWithOwner, email: str, role: Role) -> str:
        """The id of a new membership; its password is `PASSWORD`."""
        account_id = created.account.account_id
        member = await self.services.operator.add_user(account_id, email=email, password=PASSWORD, role=role)
        return member.membership.membership_id

    async def sign_in(self, email: str) -> ApiCaller:
        tokens = await self.caller().send_ok("POST", "/auth/login", {"email": email, "password": PASSWORD})
        return self.caller(Authorization=f"Bearer {tokens['accessToken']}")

    async def report(self, device_id: str, **values: Any) -> None:
        """Ingest telemetry of a device, as the ingest worker does."""
        parts = self.program.adapters.engine
        async with self.services.uow.read() as tx:
            device = await tx.devices.find(DeviceId(device_id))
        assert device is not None
        batch = parts.make_batch([(device.device_no, self.clock.now_ms(), json.dumps(values).encode())])
        result = parts.engine.ingest(batch)
        if result.unknown_metric_names:
            await assign_metric_numbers(parts.engine, self.services.uow, result.unknown_metric_names)
            result = parts.engine.ingest(batch)
        async with self.services.uow.write() as tx:
            await self.services.ingest.store(tx, IngestResult.of(result))

    def sqlite_path(self) -> Path:
        return self.program.settings.data_dir / "latchboard.db"


@asynccontextmanager
async def in_process_app(folder: Path, **settings: Any) -> AsyncIterator[InProcessApp]:
    chosen = Settings(
        _env_file=None,  # type: ignore[call-arg]
        **{"data_dir": folder / "data", "engine": "reference", "mqtt_public_host": "mqtt.test", **settings},
    )
    if "database_url" not in settings and not (file := chosen.data_dir / "latchboard.db").exists():
        empty_sqlite(file)
    clock, mail = ManualClock(), FakeMailer()
    stand_ins: dict[str, Any] = {
        "JudgedClock": lambda _: clock,
        "Argon2PasswordHasher": CountingHasher,
        "create_courier": lambda *_: FakeCourier(),
        "create_device_link": lambda *_: FakeLink(),
        "create_mailer": lambda *_: mail,
        "SqlDatabase": partial(SqlDatabase, acquire_timeout_s=TIMEOUT_S),
    }
    with patch.multiple("app.wiring.adapters", **stand_ins):
        program = compose(chosen)
    await program.adapters.database.start()
    made = InProcessApp(program, clock, mail)
    try:
        yield made
    finally:
        await made.http.aclose()
        await program.adapters.database.stop()
        program.adapters.hasher.close()
        program.adapters.login_hasher.close()
