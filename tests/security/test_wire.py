"""The real program against clients that violate HTTP: it disconnects them and keeps serving others."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from support.service import EMAIL, PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S

QUIET_S = 1.0
LOGIN = "POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GOOD = json.dumps({"email": "nobody@example.com", "password": "wrong password"})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("wire")) as service:
        yield service


@pytest.fixture
async def owner(running: Service) -> AsyncIterator[ApiClient]:
    async with running.api() as api:
        yield api
        assert (await api.raw.get(f"{running.url}/readyz")).status_code == 200
    assert '"level": "error"' not in running.log(1_000_000)


@asynccontextmanager
async def connection(running: Service) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def reply(running: Service, *pieces: bytes, first_within_s: float = TIMEOUT_S) -> bytes:
    """The service's response to these bytes, until it closes or sends nothing more for a while. Some requests get none."""
    reported = b""
    async with connection(running) as (reader, writer):
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            while True:
                async with asyncio.timeout(QUIET_S if reported else first_within_s):
                    more = await reader.read(65_536)
                if not more:
                    return reported
                reported += more
        except (TimeoutError, ConnectionError):
            return reported


def statuses(answer: bytes) -> list[int]:
    """The status of each response in these bytes."""
    return [int(line[9:12]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def request(raw: bytes, **headers: str) -> bytes:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{LOGIN}Content-Length: {len(raw)}\r\nConnection: close\r\n{more}\r\n".encode() + raw


async def test_a_slow_body_is_cut_off_and_delays_no_other_client(running: Service, owner: ApiClient) -> None:
    async def drip() -> bytes:
        async with connection(running) as (reader, writer):
            writer.write(f"{LOGIN}Content-Length: 5000\r\n\r\n".encode())
            answer = asyncio.create_task(reader.readline())
            while not answer.done():
                writer.write(b"x")
                await asyncio.sleep(0.5)
            return await answer

    dripping = [asyncio.create_task(drip()) for _ in range(50)]
    for _ in range(20):
        await owner.get("/devices")
    async with asyncio.timeout(TIMEOUT_S):
        answers = await asyncio.gather(*dripping)
    assert {answer[:12] for answer in answers} == {b"HTTP/1.1 408"}


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 30_000],
        [b"GET / HTTP/1.1\r\nA: " + b"b" * 200_000],
        [b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"H%d: x\r\n" % number for number in range(20_000)) + b"\r\n"],
        [b"\x16\x03\x01" + b"\x00" * 5_000],
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 50_000],
        [b"\r\n" * 50_000],
    ],
    ids=["many headers", "a long header", "a long path", "many different headers", "TLS", "broken HTTP/2", "lines"],
)
async def test_floods_are_refused(running: Service, owner: ApiClient, pieces: list[bytes]) -> None:
    answer = await reply(running, *pieces, first_within_s=QUIET_S)
    assert all(status in (400, 404, 414, 431, 505) for status in statuses(answer)), answer[:200]


@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"[" * 100_000, {}, 400),
        (b'{"a":' * 50_000, {}, 400),
        (b'{"email": "a", "password": ' + b"9" * 200_000 + b"}", {}, 400),
        (b" " * 262_145, {}, 413),
        (b"x" * 262_145, {}, 413),
        (GOOD.encode("utf-16"), {}, 400),
        (GOOD.encode("utf-32"), {}, 400),
        (b"\xef\xbb\xbf" + GOOD.encode(), {}, 400),
        (gzip.compress(GOOD.encode()), {"Content_Encoding": "gzip"}, 415),
        (gzip.compress(b" " * 10_000_000), {"Content_Encoding": "gzip"}, 415),
        (zlib.compress(GOOD.encode()), {"Content_Encoding": "deflate"}, 415),
        (gzip.compress(GOOD.encode()), {}, 400),
    ],
    ids=[
        "arrays",
        "objects",
        "a long number",
        "blanks",
        "too long",
        "UTF-16",
        "UTF-32",
        "BOM",
        "gzip",
        "bomb",
        "deflate",
        "unsaid gzip",
    ],
)
async def test_bodies_that_are_not_utf_8_json_are_refused(
    running: Service, owner: ApiClient, raw: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await reply(running, request(raw, **headers))
    assert statuses(answer) == [status], answer[:300]
    assert b'"requestId"' in answer


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 0x5\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length : 5\r\n",
    ],
)
async def test_no_second_request_is_smuggled_in_a_first_one(running: Service, owner: ApiClient, framing: str) -> None:
    smuggled = b"0\r\n\r\nGET /api/v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = await reply(running, f"{LOGIN}{framing}\r\n".encode() + smuggled, first_within_s=QUIET_S)
    assert b"smuggled" not in answer
    assert len(statuses(answer)) <= 1 or statuses(answer)[0] in (400, 401, 501), answer[:300]


async def test_a_request_with_two_lengths_is_refused_and_ends_the_connection(running: Service) -> None:
    for framing in ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(f"{LOGIN}{framing}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(TIMEOUT_S):
            answer = await reader.read()  # to the end: the connection is closed
        writer.close()
        assert statuses(answer) == [400]
        assert b"connection: close" in answer.lower()


NOWHERE = [
    "/api/v1/../../etc/passwd",
    "/docs/..%2f..%2fetc/passwd",
    "/docs/%2e%2e/openapi.json",
    "//evil.example/%2e%2e",
    "/API/V1/keys",
    "/api/v1/keys/..;/devices",
    "/api/v1/devices/%2e%2e/keys",
    "/api/v1/keys/",
    "/api/v1//keys",
    "/./api/v1/keys",
    "/api/v1/keys%00",
    "/api/v1/keys%20",
    "/api/v1/keys%0d%0aX-A:%201",
]
SOMEWHERE = ["/api%2fv1%2fkeys", "/api/v1/ke%79s", "http://evil.example/api/v1/keys"]
"""Other spellings of an existing path: authentication is required all the same."""


@pytest.mark.parametrize("path", NOWHERE + SOMEWHERE)
async def test_path_traversal_is_refused(running: Service, owner: ApiClient, path: str) -> None:
    bearer = f"Authorization: {owner.headers['Authorization']}\r\n"
    for credentials, expected in (("", {400, 401, 404}), (bearer, {400, 404} if path in NOWHERE else {200})):
        answer = await reply(running, f"GET {path} HTTP/1.1\r\nHost: x\r\n{credentials}Connection: close\r\n\r\n".encode())
        assert set(statuses(answer)) <= expected, answer[:300]
        assert b"evil.example" not in answer
        assert b"root:" not in answer
        assert b"\r\nX-A:" not in answer


HOSTS = ["evil.example", "a" * 3_000, "x..", "-", "[::1", "localhost:99999", "\xff\xfe", "xn--a", "a b", "", "." * 64, "\t"]


@pytest.mark.parametrize("host", HOSTS, ids=range(len(HOSTS)))
async def test_the_host_header_does_not_appear_in_a_response(running: Service, owner: ApiClient, host: str) -> None:
    """Routing depends on method and path only; an invalid host name breaks nothing."""
    bearer = owner.headers["Authorization"]
    head = f"GET /api/v1/auth/me HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n"
    answer = await reply(running, head.encode("latin-1"))
    assert statuses(answer) in ([200], [400]), answer[:300]
    assert len(host) < 4 or host.encode("latin-1") not in answer


TARGETS = [
    b"/api/v1/devices?\xff\xfe=1",
    b"/api/v1/devices\xff",
    b"/api/v1/devices?a=%ff%00",
    b"*",
    b"?a=1",
    b"api/v1/devices",
    b"http:",
    b"http://x",
    b"http://x?a=/b",
    b"http://",
    b"x:443",
    b"://",
    b"mailto://x/y@z",
    b"http://[::1/",
    b"http://[/x",
    b"http://\\/..",
]


@pytest.mark.parametrize("target", TARGETS)
async def test_a_target_of_odd_bytes_breaks_nothing(running: Service, owner: ApiClient, target: bytes) -> None:
    bearer = owner.headers["Authorization"].encode()
    head = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: "
    answer = await reply(running, b"GET " + target + head + bearer + b"\r\n\r\n")
    assert all(status in (200, 400, 404) for status in statuses(answer)), answer[:300]
    assert b"deviceId" not in answer


async def test_no_header_overrides_the_method_or_address(running: Service, owner: ApiClient) -> None:
    new = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
    device = f"/devices/{(await owner.post('/devices/register', new, expect=201))['deviceId']}"
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        assert (await owner.send("GET", device, headers={name: "DELETE"})).status_code == 200
        await owner.raw.post("/auth/logout", json={"refreshToken": "x"}, headers={name: "DELETE"})
    for name in ("X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Path", "X-Forwarded-Prefix"):
        shown = await owner.raw.get("/catalog/apps", headers={name: f"/api/v1{device}"})
        assert "deviceId" not in shown.text
    assert (await owner.get(device))["name"] == "Pump"


async def test_head_is_authorised_like_get_and_options_reveals_nothing(running: Service, owner: ApiClient) -> None:
    made = await owner.post("/keys", {"name": "Robot"}, expect=201)
    for path in ("/devices", "/keys", "/events", "/auth/me", "/members"):
        assert (await owner.raw.head(path)).status_code == 401
        assert (await owner.raw.options(path)).content == b""
        expected = 200 if path == "/devices" else 403
        assert (await owner.raw.head(path, headers={"X-Api-Key": made["key"]})).status_code == expected
    for method in ("TRACE", "PROPFIND", "GETS", "get"):
        answer = await owner.raw.request(method, "/devices", headers=owner.headers)
        assert answer.status_code in (400, 405) or method == "get"


UPGRADE = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)


@pytest.mark.parametrize("opening", [UPGRADE, PREFACE], ids=["upgrade", "preface"])
async def test_http_2_is_not_offered(running: Service, owner: ApiClient, opening: bytes) -> None:
    assert statuses(await reply(running, opening))[0] in (200, 404, 505)


async def test_a_huge_query_string_is_no_burden(running: Service, owner: ApiClient) -> None:
    for query in ("a=" + "b" * 20_000, "&".join(f"a{number}=1" for number in range(2_000)), "a=1&" * 4_000, "%" * 10_000):
        answer = await owner.send("GET", f"/devices?{query}")
        assert answer.status_code in (400, 414, 431), answer.status_code


async def test_forwarded_addresses_do_not_evade_throttling(running: Service, owner: ApiClient) -> None:
    seen = []
    for number in range(12):
        address = f"203.0.113.{number}"
        headers = {"X-Forwarded-For": address, "X-Real-IP": address, "Forwarded": f"for={address}", "Client-IP": address}
        body = {"email": "victim@example.com", "password": f"guess {number}"}
        seen.append((await owner.raw.post("/auth/login", json=body, headers=headers)).status_code)
    assert seen[0] == 401
    assert 429 in seen
    events = (await owner.get("/events?type=login&limit=5"))["data"]
    assert "203.0.113" not in json.dumps(events)


async def test_guessing_does_not_lock_the_owner_out(running: Service, owner: ApiClient) -> None:
    for number in range(10):
        await owner.raw.post("/auth/login", json={"email": "another@example.com", "password": f"guess {number}"})
    answer = await owner.raw.post("/auth/login", json={"email": EMAIL, "password": PASSWORD})
    assert answer.status_code == 200
