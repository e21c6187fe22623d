"""The cost of permission checks: a grant, a token, and an authorised request compared with a bare Quart route.

The requests go to the real program (its Hypercorn, uvloop, SQLite on disk, broker with simulated devices that answer every
command) and to a Quart application with one route on the same server with the same settings, from the same client, one after
the other. `requests_per_s` is wall time, `cpu_us` the server's processor time a request, which a busy machine disturbs less.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from quart import Quart, Response

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.tokens import ALGORITHM, AUDIENCE, ISSUER, JwtAccessTokenCodec
from adapters.engine import _native
from adapters.engine.native import NativeGrantEvaluator, read_tzif
from adapters.engine.reference import ReferenceGrantEvaluator
from adapters.http.core.quart_app import TrimmedQuart
from domain.accounts.model import Membership
from domain.grants.checks import GrantCheckInput, filter_applicable
from domain.grants.model import Grant, GrantSubject, Scope, WeeklyGrantWindow
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, DeviceId, GrantId, KeyId, MembershipId, SessionId, UserId
from support.ports import free_ports
from support.service import EMAIL, PASSWORD, Service

NOW_MS = 1_800_000_000_000
CALLS = 10_000
CONNECTIONS, REQUESTS, ROUNDS = 8, 1_600, 5
DEVICES = 40
OFFICE_HOURS = WeeklyGrantWindow(frozenset({1, 2, 3, 4, 5}), 480, 1_080, "Europe/Berlin")
GRANT = Grant(
    GrantId("grt_1"),
    AccountId("acc_1"),
    GrantSubject(key_id=KeyId("key_1")),
    DeviceId("dev_1"),
    None,
    ("ON", "OFF"),
    Scope.WRITE,
    NOW_MS + 86_400_000,
    OFFICE_HOURS,
    None,
    NOW_MS,
    "bench",
)


@pytest.mark.parametrize("windows", ["native", "reference"])
def bench_five_checks_of_a_grant(cpu: Callable[..., float], windows: str) -> None:
    """Command, scope, expiry, window; the window is checked by the extension."""
    evaluator = NativeGrantEvaluator() if windows == "native" else ReferenceGrantEvaluator()
    request, grants = GrantCheckInput("ON", False), [GRANT]
    cpu(lambda: [filter_applicable(grants, request, NOW_MS + at, evaluator) for at in range(CALLS)], CALLS)


def bench_the_engine_call_alone(cpu: Callable[..., float]) -> None:
    days = sum(1 << day for day in OFFICE_HOURS.days)
    compiled = _native.Window(days, 480, 1_080, read_tzif("Europe/Berlin"), "Europe/Berlin")
    cpu(lambda: [compiled.is_open(NOW_MS + at) for at in range(CALLS)], CALLS)


@pytest.mark.parametrize("how", ["seen before", "first seen", "PyJWT alone"])
def bench_a_token_is_checked(cpu: Callable[..., float], how: str) -> None:
    ring = KeyRing.generate()
    member = Membership(MembershipId("mbr_1"), AccountId("acc_1"), UserId("usr_1"), Role.OWNER, NOW_MS)
    tokens = JwtAccessTokenCodec(ring)
    token, key = tokens.issue(member, SessionId("ses_1"), NOW_MS), ring.newest.derive("access-token")
    options: Any = {"verify_exp": False, "verify_iat": False}

    def first_seen() -> object:
        tokens._verify_cached.cache_clear()
        return tokens.verify(token, NOW_MS)

    check: dict[str, Callable[[], object]] = {
        "seen before": lambda: tokens.verify(token, NOW_MS),
        "first seen": first_seen,
        "PyJWT alone": lambda: jwt.decode(token, key, [ALGORITHM], issuer=ISSUER, audience=AUDIENCE, options=options),
    }
    calls = CALLS // 10
    cpu(lambda: [check[how]() for _ in range(calls)], calls)


@dataclass(frozen=True)
class Server:
    """A server, and the process whose processor time is measured."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


BARE_APPLICATION = """
from quart import Quart
app = Quart("bare")
@app.post("/api/v1/bare")
async def bare():
    return {"ok": True}
"""
HYPERCORN = """
import sys, uvloop
from hypercorn.asyncio import serve
from hypercorn.config import Config
from bare import app
config = Config()
config.bind = [f"127.0.0.1:{sys.argv[1]}"]
config.accesslog, config.include_date_header, config.include_server_header = None, False, False
config.keep_alive_max_requests = 1_000_000
uvloop.run(serve(app, config))
"""


GRANIAN = "-m granian --interface asgi --loop uvloop --no-ws --workers 1 --log-level error --host 127.0.0.1 --port"


def child_of(pid: int) -> int:
    """The only child of a process, or the process itself."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid


@pytest.fixture(params=["hypercorn", "granian"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    [port] = free_ports(1)
    (tmp_path / "bare.py").write_text(BARE_APPLICATION)
    if request.param == "granian":
        pytest.importorskip("granian")
        arguments = [*GRANIAN.split(), str(port), "bare:app"]
    else:
        arguments = ["-c", HYPERCORN, str(port)]
    process = subprocess.Popen([sys.executable, *arguments], cwd=tmp_path)
    try:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                assert httpx.post(f"http://127.0.0.1:{port}/api/v1/bare", json={}).status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield Server(port, child_of(process.pid))
    finally:
        process.terminate()  # Granian's worker ends with it
        process.wait(10)


@dataclass(frozen=True)
class Site:
    api: httpx.Client
    server: Server
    devices: list[str]
    session: str
    key: str


@contextmanager
def open_site(service: Service) -> Iterator[Site]:
    """The program with devices that answer, and a key with a grant whose window is always open."""
    with service, httpx.Client(base_url=f"{service.url}/api/v1", timeout=30) as api:
        login = api.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
        api.headers["Authorization"] = f"Bearer {login['accessToken']}"
        credentials = []
        for number in range(DEVICES):
            new = api.post("/devices/register", json={"name": f"d{number}", "boardType": "ESP32", "appType": "PUMP"}).json()
            made = api.post(f"/devices/{new['deviceId']}/credentials", json={}).json()
            credentials.append((new["deviceId"], made["mqttPassword"]))
        key = api.post("/keys", json={"name": "bench"}).json()
        terms = {"commands": ["ON", "STATUS"], "activeFromMinute": 0, "activeToMinute": 1439, "timezone": "Europe/Berlin"}
        grant = {**terms, "apiKeyId": key["keyId"], "appliesVia": "project"}
        assert api.post(f"/devices/{credentials[0][0]}/grants", json=grant).status_code == 201
        fleet = _native.Simulation("127.0.0.1", service.mqtt_port, credentials, rate=0.01, seconds=600.0)
        time.sleep(1.0)
        assert service.process is not None
        pid = service.process.pid
        yield Site(api, Server(service.port, pid), [one for one, _ in credentials], login["accessToken"], key["key"])
        fleet.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(Service(tmp_path)) as opened:
        yield opened


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} /api/v1{path} HTTP/1.1\r\nHost: bench\r\n{more}{kind}\r\n".encode() + body


async def send_requests(
    port: int, requests: list[bytes], took: list[float] | None = None, *, connections: int = CONNECTIONS
) -> None:
    """Send the requests over a few kept connections, each waiting for its response; every response must be a 200. `took`:
    the seconds of each."""
    waiting = iter(requests)

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for one in waiting:
            began = time.perf_counter()
            writer.write(one)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head + await reader.read(300)
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            if took is not None:
                took.append(time.perf_counter() - began)
        writer.close()

    async with asyncio.timeout(120):
        await asyncio.gather(*(connection() for _ in range(connections)))


def measure(benchmark: Any, server: Server, requests: list[bytes], *, connections: int = CONNECTIONS) -> None:
    asyncio.run(send_requests(server.port, requests, connections=connections))
    each: list[float] = []
    before, began = server.cpu_s(), time.perf_counter()
    benchmark.pedantic(lambda: asyncio.run(send_requests(server.port, requests, each, connections=connections)), rounds=ROUNDS)
    spent, took = server.cpu_s() - before, time.perf_counter() - began
    each.sort()
    benchmark.extra_info["p50_ms"] = round(1000 * each[len(each) // 2], 1)
    benchmark.extra_info["p99_ms"] = round(1000 * each[int(len(each) * 0.99)], 1)
    benchmark.extra_info["requests_per_s"] = round(len(requests) / benchmark.stats["median"])
    benchmark.extra_info["cpu_us"] = round(1e6 * spent / (ROUNDS * len(requests)))
    benchmark.extra_info["server_busy"] = round(spent / took, 2)
    print(f"\n  {benchmark.name}: {benchmark.extra_info}")


def bench_a_bare_route(benchmark: Any, bare: Server) -> None:
    measure(benchmark, bare, [request("POST", "/bare", b"{}")] * REQUESTS)


def bench_health(benchmark: Any, site: Site) -> None:
    measure(benchmark, site.server, [b"GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n"] * REQUESTS)


@pytest.mark.parametrize("application", [Quart, TrimmedQuart])
def bench_the_application_without_a_server(cpu: Callable[..., float], application: type[Quart]) -> None:
    """One small route over ASGI: plain Quart, and Quart without the parts that the service does not use."""
    app = application("bench")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/bare",
        "query_string": b"",
        "headers": [(b"host", b"bench")],
    }

    @app.get("/bare")
    async def bare_route() -> Response:
        return Response("{}", content_type="application/json")

    async def send(_: Any) -> None:
        """A server would write it."""

    async def call_many() -> None:
        for _ in range(CALLS // 10):
            events: asyncio.Queue[Any] = asyncio.Queue()
            events.put_nowait({"type": "http.request", "body": b"", "more_body": False})
            await asyncio.create_task(app.asgi_app(dict(scope), events.get, send))  # type: ignore[arg-type]

    cpu(lambda: asyncio.run(call_many()), CALLS // 10)


@pytest.mark.parametrize("caller", ["key", "session"])
def bench_an_authorised_read(benchmark: Any, site: Site, caller: str) -> None:
    """Caller, grant, device: two read transactions and no write."""
    shown = {"X_Api_Key": site.key} if caller == "key" else {"Authorization": f"Bearer {site.session}"}
    paths = [f"/devices/{site.devices[number % DEVICES]}/telemetry/latest" for number in range(REQUESTS)]
    measure(benchmark, site.server, [request("GET", path, b"", **shown) for path in paths])


@pytest.mark.parametrize("connections", [1, CONNECTIONS])
def bench_a_command_that_is_waited_for(benchmark: Any, site: Site, connections: int) -> None:
    """From the request to the response with the device's result: `waitSeconds`, and devices that answer at once."""
    body = b'{"cmd":"ON","waitSeconds":10}'
    paths = [f"/devices/{site.devices[number % DEVICES]}/command" for number in range(REQUESTS // 4)]
    requests = [request("POST", path, body, X_Api_Key=site.key) for path in paths]
    asyncio.run(send_requests(site.server.port, requests, connections=connections))
    took: list[float] = []
    benchmark.pedantic(
        lambda: asyncio.run(send_requests(site.server.port, requests, took, connections=connections)), rounds=ROUNDS
    )
    took.sort()
    benchmark.extra_info["p50_ms"] = round(1000 * took[len(took) // 2], 1)
    benchmark.extra_info["p99_ms"] = round(1000 * took[int(len(took) * 0.99)], 1)
    print(f"\n  {benchmark.name}: {benchmark.extra_info}")


@pytest.mark.parametrize(("caller", "connections"), [("key", CONNECTIONS), ("session", CONNECTIONS), ("key", 64)])
def bench_an_authorised_command(benchmark: Any, site: Site, caller: str, connections: int) -> None:
    """Grant, definition, parameters; stored with its event; then sent to a device whose result is stored as well."""
    shown = {"X_Api_Key": site.key} if caller == "key" else {"Authorization": f"Bearer {site.session}"}
    paths = [f"/devices/{site.devices[number % DEVICES]}/command" for number in range(REQUESTS)]
    measure(benchmark, site.server, [request("POST", path, b'{"cmd":"ON"}', **shown) for path in paths], connections=connections)
