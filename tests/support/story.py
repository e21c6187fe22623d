"""What the end-to-end tests say to the service over HTTP, feed and webhooks: the words of its clients, nothing of its insides."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from support.device import Device
from support.service import EMAIL, PASSWORD, Service

WITHIN_S = 10.0


class Api:
    """One caller. `ok` gives the answer's JSON and insists on success; `refused` gives (status, error code)."""

    def __init__(self, service: Service, headers: dict[str, str]) -> None:
        self.service = service
        self.headers = headers

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """A connection of its own for each call: nothing to close, and a restart of the service in between does not matter."""
        headers = {**self.headers, **more.pop("headers", {})}
        url = f"{self.service.url}/api/v1{path}"
        return httpx.request(method, url, json=body, headers=headers, timeout=30, verify=False, **more)

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.call(method, path, body, **more)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        answer = self.call(method, path, body)
        assert answer.is_error, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.status_code, answer.json()["error"]


def sign_in(service: Service, email: str = EMAIL, password: str = PASSWORD) -> Api:
    answer = httpx.post(f"{service.url}/api/v1/auth/login", json={"email": email, "password": password}, timeout=30)
    assert answer.status_code == 200, answer.text
    return Api(service, {"Authorization": f"Bearer {answer.json()['accessToken']}"})


def register(owner: Api, name: str = "Pump") -> str:
    made = owner.ok("POST", "/devices/register", {"name": name, "boardType": "ESP32", "appType": "PUMP"})
    device_id: str = made["deviceId"]
    return device_id


def generate(owner: Api, device_id: str) -> str:
    password: str = owner.ok("POST", f"/devices/{device_id}/credentials")["mqttPassword"]
    return password


def device_on(owner: Api, *, name: str = "Pump", version: int = 4, websocket: bool = False, obeys: bool = True) -> Device:
    """A registered device that is online."""
    device_id = register(owner, name)
    port = owner.service.ws_port if websocket else owner.service.mqtt_port
    return Device(device_id, generate(owner, device_id), port, version=version, websocket=websocket, obeys=obeys).online()


def new_key(owner: Api, name: str = "Robot") -> tuple[str, Api]:
    made = owner.ok("POST", "/keys", {"name": name})
    return made["keyId"], Api(owner.service, {"X-Api-Key": made["key"]})


@dataclass
class Feed:
    """A live feed client; `wait_for` passes over what is not asked for."""

    socket: ClientConnection
    events: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    initial: dict[str, Any] = field(default_factory=dict)

    def listen(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            for text in self.socket:
                self.events.put(json.loads(text))

    def wait_for(self, kind: str, within_s: float = WITHIN_S, **fields: Any) -> dict[str, Any]:
        while True:
            try:
                event = self.events.get(timeout=within_s)
            except queue.Empty:
                raise AssertionError(f"no {kind} {fields} on the feed within {within_s} s") from None
            if event["type"] == kind and fields.items() <= event.items():
                return event


@contextlib.contextmanager
def feed(api: Api, query: str = "") -> Iterator[Feed]:
    with connect(f"{api.service.feed_url}{query}", additional_headers=api.headers, open_timeout=WITHIN_S) as socket:
        client = Feed(socket)
        client.initial = json.loads(socket.recv(timeout=WITHIN_S))
        reader = threading.Thread(target=client.listen)
        reader.start()
        try:
            yield client
        finally:
            socket.close()
            reader.join(WITHIN_S)


@dataclass(frozen=True)
class Delivery:
    headers: dict[str, str]
    body: bytes


class Hook:
    """A webhook receiver on loopback that remembers each request; `status` is what it answers."""

    def __init__(self) -> None:
        self.got: queue.Queue[Delivery] = queue.Queue()
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the standard library's name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.got.put(Delivery({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(hook.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def wait_for(self, kind: str, within_s: float = 15.0) -> Delivery:
        while True:
            try:
                delivery = self.got.get(timeout=within_s)
            except queue.Empty:
                raise AssertionError(f"no {kind} was delivered within {within_s} s") from None
            if delivery.headers["x-service-event"] == kind:
                return delivery

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WITHIN_S)
