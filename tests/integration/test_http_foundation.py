"""What applies to every request."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Sequence

import pytest
from pydantic import Field
from quart import Response

from adapters.http.core.callers import AllowedCallers, current_caller
from adapters.http.core.middleware import HttpMiddlewareSettings
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult, NonJsonResponse
from adapters.http.core.schemas import DisplayName, QueryParametersModel, RequestBodyModel, ResponseModel
from domain.kernel.errors import RateLimited, Unavailable, VersionMismatch
from support.http import HttpClient, HttpWorld, listening, serving
from support.waiting import TIMEOUT_S


class Thing(RequestBodyModel):
    some_name: DisplayName
    amount: float = 0.0
    inner: dict[str, object] | None = None
    texts: list[str] | None = None


class Paging(QueryParametersModel):
    limit: int = Field(default=50, ge=1, le=200)
    kind: list[str] | None = None


class ThingReply(ResponseModel):
    some_name: str
    slot: int
    limit: int


class Waits(ResponseModel):
    approval_id: str


def probes(world: HttpWorld) -> Sequence[ApiBlueprint]:
    bp = ApiBlueprint("probes", "T")

    @bp.operation("PUT /things/<int:slot>", AllowedCallers.ANYONE, "s", status=201)
    async def put_thing(slot: int, body: Thing, query: Paging) -> HttpHandlerResult[ThingReply]:
        return HttpHandlerResult(ThingReply(some_name=body.some_name, slot=slot, limit=query.limit), headers={"ETag": '"7"'})

    @bp.operation("POST /maybe", AllowedCallers.ANYONE, "s", returns={200: ThingReply, 202: Waits})
    async def maybe(body: Thing) -> ThingReply | Waits:
        return Waits(approval_id="apv_1") if body.some_name == "wait" else ThingReply(some_name="x", slot=1, limit=1)

    @bp.operation("GET /who", AllowedCallers.KEY, "s")
    async def who() -> dict[str, str]:
        return {"who": current_caller().label}

    @bp.operation("GET /csv", AllowedCallers.ANYONE, "s", returns={200: NonJsonResponse("text/csv")})
    async def csv() -> Response:
        return Response("a,b\n", content_type="text/csv")

    @bp.operation("POST /fail/<how>", AllowedCallers.ANYONE, "s")
    async def fail(how: str) -> ThingReply:
        raise {
            "limit": RateLimited("slow down", retry_after=17, limit=5, window_s=60),
            "stale": VersionMismatch("other version"),
            "away": Unavailable("not now"),
            "bug": RuntimeError("the secret is 42"),
            "cancelled": asyncio.CancelledError("a task that another request shares, the secret is 42"),
        }[how]

    return [bp]


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with serving(HttpWorld(blueprints=probes)) as client:
        yield client


JSON = {"Content-Type": "application/json"}
PACKED = {**JSON, "Content-Encoding": "gzip"}


@pytest.mark.parametrize(
    ("body", "code", "names"),
    [
        (b'{"someName": 1}', "VALIDATION_ERROR", "someName"),
        (b'{"some_name": "a"}', "VALIDATION_ERROR", "some_name"),
        (b'{"someName": "a", "typo": 1}', "VALIDATION_ERROR", "typo"),
        (b'{"someName": "   "}', "VALIDATION_ERROR", "someName"),
        (b'{"someName": "a", "amount": "1"}', "VALIDATION_ERROR", "amount"),
        (b'{"someName": "a", "texts": ["x", 2]}', "VALIDATION_ERROR", "texts.1"),
        (b'{"someName": "a\\u0000"}', "VALIDATION_ERROR", "someName"),
        (b'{"someName": "a", "texts": ["\\ud800"]}', "VALIDATION_ERROR", "texts.0"),
        (b'{"someName": "a", "inner": {"\\udfff": 1}}', "VALIDATION_ERROR", "inner"),
        (b'{"someName": "a", "amount": 1e999}', "INVALID_JSON", None),
        (b'{"someName": "a", "amount": NaN}', "INVALID_JSON", None),
        (b'{"someName": "a", "amount": -Infinity}', "INVALID_JSON", None),
        (b'{"someName": "a", "amount": ' + b"9" * 310 + b"}", "INVALID_JSON", None),
        (b'{"someName": "a", "amount": ' + b"9" * 100_000 + b"}", "INVALID_JSON", None),
        (b'{"someName": "a", "someName": "b"}', "INVALID_JSON", None),
        (b'{"someName": "a", "inner": ' + b"[" * 32 + b"]" * 32 + b"}", "INVALID_JSON", None),
        (b"[" * 100_000, "INVALID_JSON", None),
        (b"[]", "INVALID_JSON", None),
        (b'"text"', "INVALID_JSON", None),
        (b"", "INVALID_JSON", None),
        (b"{", "INVALID_JSON", None),
        ('{"someName": "a"}'.encode("utf-16"), "INVALID_JSON", None),
        (b'{"someName": "\xff"}', "INVALID_JSON", None),
    ],
)
async def test_a_bad_body_is_a_400_that_says_what_is_wrong(http: HttpClient, body: bytes, code: str, names: str | None) -> None:
    answer = await http.put("/things/1", content=body, headers=JSON)
    problem = answer.json()
    assert (answer.status_code, problem["error"]) == (400, code), problem
    assert problem["message"]
    assert problem["requestId"] == answer.headers["X-Request-Id"]
    if names is not None:
        assert names in [detail["field"] for detail in problem["details"]]


async def test_brackets_in_strings_do_not_count_as_depth(http: HttpClient) -> None:
    deep = {"someName": "[" * 50 + '\\"' + "{" * 10, "inner": {"a": [[1]] * 40}}
    answer = await http.put("/things/1", deep)
    assert answer.status_code == 201


async def test_a_success_has_camel_case_names_headers_and_its_status(http: HttpClient) -> None:
    answer = await http.put("/things/3?limit=7", {"someName": " Pump ", "amount": 1})
    assert (answer.status_code, answer.json()) == (201, {"someName": "Pump", "slot": 3, "limit": 7})
    assert answer.headers["ETag"] == '"7"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


async def test_the_class_of_the_response_selects_the_status(http: HttpClient) -> None:
    assert (await http.post("/maybe", {"someName": "go"})).status_code == 200
    answer = await http.post("/maybe", {"someName": "wait"})
    assert (answer.status_code, answer.json()) == (202, {"approvalId": "apv_1"})


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=1&limit=2", "typo=1", "limit=%00"])
async def test_a_bad_query_parameter_is_named(http: HttpClient, query: str) -> None:
    answer = await http.put(f"/things/1?{query}", {"someName": "a"})
    assert (answer.status_code, answer.json()["error"]) == (400, "VALIDATION_ERROR")
    assert answer.json()["details"][0]["field"] == query.partition("=")[0]


async def test_an_operation_without_query_refuses_parameters(http: HttpClient) -> None:
    answer = await http.get("/csv?x=1")
    assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, "x")


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "code"),
    [
        ("GET", "/api/v1/nothing", {}, 404, "NOT_FOUND"),
        ("GET", "/", {}, 404, "NOT_FOUND"),
        ("DELETE", "/api/v1/who", {}, 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/api/v1/maybe", {"content": b"a=1"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", "/api/v1/maybe", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", "/api/v1/maybe", {"content": b"{}", "headers": PACKED}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", "/api/v1/maybe", {"content": b" " * 262_145, "headers": JSON}, 413, "PAYLOAD_TOO_LARGE"),
        ("POST", "/api/v1/fail/stale", {}, 412, "PRECONDITION_FAILED"),
        ("POST", "/api/v1/fail/away", {}, 503, "UNAVAILABLE"),
        ("POST", "/api/v1/fail/bug", {}, 500, "INTERNAL_ERROR"),
        ("POST", "/api/v1/fail/cancelled", {}, 500, "INTERNAL_ERROR"),
        ("POST", "/api/v1/fail/a%00b", {}, 404, "NOT_FOUND"),
        ("POST", "/api/v1/fail/" + "a" * 200, {}, 404, "NOT_FOUND"),
    ],
)
async def test_every_error_has_the_one_shape(
    http: HttpClient, method: str, path: str, more: dict[str, object], status: int, code: str
) -> None:
    answer = await http.raw.request(method, path, **more)  # type: ignore[arg-type]
    assert answer.status_code == status
    problem = answer.json()
    assert (problem["error"], problem["requestId"]) == (code, answer.headers["X-Request-Id"])
    assert set(problem) <= {"error", "message", "details", "requestId", "retryAfter"}
    assert "the secret" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_405_names_the_methods_that_are_allowed(http: HttpClient) -> None:
    answer = await http.delete("/who")
    assert "GET" in answer.headers["Allow"]


async def test_a_rate_limit_has_retry_after(http: HttpClient) -> None:
    answer = await http.post("/fail/limit")
    assert (answer.status_code, answer.json()["error"], answer.json()["retryAfter"]) == (429, "RATE_LIMITED", 17)
    assert answer.headers["Retry-After"] == "17"
    assert answer.headers["RateLimit-Policy"] == '"grant";q=5;w=60'
    assert answer.headers["RateLimit"] == '"grant";r=0;t=17'


async def test_a_valid_request_id_is_used_and_an_invalid_one_replaced(http: HttpClient) -> None:
    answer = await http.get("/csv", headers={"X-Request-Id": "trace-12345678"})
    assert answer.headers["X-Request-Id"] == "trace-12345678"
    answer = await http.get("/csv", headers={"X-Request-Id": "<script>alert(1)</script>"})
    assert answer.headers["X-Request-Id"].startswith("req_")


async def test_validation_errors_reveal_nothing_before_authentication(http: HttpClient) -> None:
    answer = await http.post("/keys", content=b"not json", headers=JSON)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_cors_is_off_unless_configured(http: HttpClient) -> None:
    answer = await http.get("/csv", headers={"Origin": "https://app.example.com"})
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_cors_lets_in_only_the_origins_of_the_settings() -> None:
    world = HttpWorld(blueprints=probes, settings=HttpMiddlewareSettings(cors_origins=("https://app.example.com",), hsts=True))
    async with serving(world) as http:
        preflight = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "PUT"}
        answer = await http.call("OPTIONS", "/things/1", headers=preflight)
        assert answer.status_code == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example.com"
        assert "Idempotency-Key" in answer.headers["Access-Control-Allow-Headers"]
        answer = await http.get("/csv", headers={"Origin": "https://evil.example.com"})
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


async def test_hsts_names_the_subdomains_where_the_settings_say_so() -> None:
    async with serving(HttpWorld(blueprints=probes, settings=HttpMiddlewareSettings(hsts=True, hsts_subdomains=True))) as http:
        assert (await http.get("/csv")).headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains"


async def test_a_slow_body_is_cut_off() -> None:
    world = HttpWorld(blueprints=probes, settings=HttpMiddlewareSettings(body_timeout_s=0.2))
    async with listening(world.app()) as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, family=socket.AF_INET)
        head = "POST /api/v1/maybe HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        writer.write(head.encode())
        status = await asyncio.wait_for(reader.readline(), TIMEOUT_S)
        assert b"408" in status
        writer.close()
    await world.close()


NOT_READ = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
NEXT = b"GET /api/v1/catalog/boards HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "body", "stays"),
    [
        (b"Content-Length: 2\r\n\r\n", b"{}", True),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n", True),
        (b"Content-Length: 900\r\n\r\n", b"{}", False),
        (b"Content-Length: 300000\r\n\r\n", b"{}", False),
    ],
    ids=["late", "late in chunks", "never whole", "too large"],
)
async def test_an_early_refusal_leaves_a_usable_or_closed_connection(
    http: HttpClient, head: bytes, body: bytes, stays: bool
) -> None:
    reader, writer = await asyncio.open_connection(http.raw.base_url.host, http.raw.base_url.port)
    async with asyncio.timeout(TIMEOUT_S):
        writer.write(NOT_READ + head)
        await writer.drain()
        await asyncio.sleep(0.1)  # like a client that sends head and body separately; the refusal is ready in between
        writer.write(body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 404 " in answer.splitlines()[0]
        assert (b"connection: close" not in answer.lower()) == stays
        if stays:
            writer.write(NEXT)
        rest = await reader.readuntil(b"200") if stays else await reader.read()
        assert b"NOT_FOUND" in rest
    writer.close()


async def test_the_document_names_every_operation_and_its_errors(http: HttpClient) -> None:
    document = (await http.raw.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    put = document["paths"]["/api/v1/things/{slot}"]["put"]
    assert {one["name"] for one in put["parameters"]} == {"slot", "limit", "kind"}
    assert put["requestBody"]["required"] is True
    assert {"201", "400", "404", "413", "415", "500", "503"} <= set(put["responses"])
    assert document["paths"]["/api/v1/who"]["get"]["security"] == [{"session": []}, {"apiKey": []}]
    assert set(document["paths"]["/api/v1/maybe"]["post"]["responses"]) >= {"200", "202"}
    created = document["paths"]["/api/v1/keys"]["post"]
    assert "Idempotency-Key" in {one["name"] for one in created["parameters"]}
    assert (
        "IDEMPOTENCY_MISMATCH"
        in created["responses"]["409"]["content"]["application/json"]["schema"]["allOf"][1]["properties"]["error"]["enum"]
    )


async def test_every_reference_of_the_document_resolves(http: HttpClient) -> None:
    text = (await http.raw.get("/openapi.json")).text
    document = json.loads(text)
    places = re.findall(r'"\$ref": ?"#/([^"]+)"', text)
    assert places
    for place in places:
        at = document
        for step in place.split("/"):
            at = at[step]


async def test_the_document_is_compressed_and_a_client_that_has_it_gets_none(http: HttpClient) -> None:
    plain = await http.raw.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    packed = await http.raw.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert (plain.headers.get("Content-Encoding"), packed.headers["Content-Encoding"]) == (None, "gzip")
    assert plain.json() == packed.json()
    assert int(packed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 5
    assert packed.headers["Cache-Control"] == "no-cache"
    assert packed.headers["Vary"] == "Accept-Encoding"
    again = await http.raw.get("/openapi.json", headers={"Accept-Encoding": "gzip", "If-None-Match": packed.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_the_docs_page_needs_no_other_host(http: HttpClient) -> None:
    page = await http.raw.get("/docs")
    assert page.status_code == 200
    assert "http" not in page.text.replace("http-equiv", "")
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    for asset in ("swagger-ui.css", "swagger-ui-bundle.js", "start.js"):
        answer = await http.raw.get(f"/docs/{asset}")
        assert answer.status_code == 200, asset
    assert (await http.raw.get("/docs/..%2fLICENSE")).status_code == 404


async def test_the_catalog_is_for_everyone(http: HttpClient) -> None:
    boards = await http.get("/catalog/boards")
    apps = await http.get("/catalog/apps")
    assert "ESP32" in {board["boardType"] for board in boards.json()}
    assert {"id", "appType", "name", "description"} == set(apps.json()[0])
