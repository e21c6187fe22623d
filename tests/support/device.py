"""A device as firmware would be: paho on a thread of its own, MQTT 3.1.1 or 5, TCP or WebSocket; what it hears is kept in order."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

WITHIN_S = 10.0


class Device:
    """Obeys commands unless told otherwise. `connect` returns the reason with which the broker answered: 0 is success."""

    def __init__(
        self, device_id: str, password: str, port: int, *, version: int = 4, websocket: bool = False, obeys: bool = True
    ) -> None:
        self.device_id = device_id
        self.obeys = obeys
        self.relay = False
        self.commands: queue.Queue[dict[str, Any]] = queue.Queue()
        self.plans: queue.Queue[dict[str, Any]] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        self.gone = threading.Event()
        self._port = port
        self._answered: queue.Queue[int] = queue.Queue()
        self._subscribed: queue.Queue[list[int]] = queue.Queue()
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=device_id,
            protocol=MQTTProtocolVersion(version),
            transport="websockets" if websocket else "tcp",
            reconnect_on_failure=False,
        )
        if websocket:
            self._client.ws_set_options(path="/mqtt")
        self._client.username_pw_set(device_id, password)
        self._client.will_set(self.topic("status"), "offline", qos=1, retain=True)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def topic(self, below: str, device_id: str | None = None) -> str:
        return f"devices/{device_id or self.device_id}/{below}"

    def connect(self) -> int:
        self.gone.clear()
        try:
            self._client.connect("127.0.0.1", self._port, keepalive=30)
        except OSError:
            return -1
        self._client.loop_start()
        try:
            return self._answered.get(timeout=WITHIN_S)
        except queue.Empty:
            return -1

    def online(self) -> Device:
        """Connect, subscribe to what a device hears, and say so."""
        assert self.connect() == 0
        assert self.subscribe("cmd") < 0x80
        assert self.subscribe("sched") < 0x80
        self.publish("status", "online", retain=True)
        return self

    def subscribe(self, below: str, device_id: str | None = None) -> int:
        """The broker's answer: the granted QoS, 0x80 and more for a refusal."""
        self._client.subscribe(self.topic(below, device_id), qos=1)
        return self._subscribed.get(timeout=WITHIN_S)[0]

    def publish(self, below: str, payload: Any, *, qos: int = 1, retain: bool = False, device_id: str | None = None) -> None:
        """At QoS 1 it waits for the PUBACK: the service then has it durably."""
        sent = self._send(below, payload, qos=qos, retain=retain, device_id=device_id)
        sent.wait_for_publish(WITHIN_S)
        assert sent.is_published()

    def report(self, **values: Any) -> None:
        self.publish("telemetry", values)

    def switch(self, on: bool, *, by: str = "button", execution_id: str | None = None) -> None:
        self.publish("state", self._state(on, by, execution_id), retain=True)

    def next_command(self, within_s: float = WITHIN_S) -> dict[str, Any]:
        return self.commands.get(timeout=within_s)

    def disconnect(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def _state(self, on: bool, by: str, execution_id: str | None) -> dict[str, Any]:
        self.relay = on
        state: dict[str, Any] = {"relay": "ON" if on else "OFF", "by": by, "ts": time.time_ns() // 1_000_000}
        return state if execution_id is None else {**state, "id": execution_id}

    def _send(self, below: str, payload: Any, *, qos: int = 1, retain: bool = False, device_id: str | None = None) -> mqtt.MQTTMessageInfo:
        body = payload if isinstance(payload, str | bytes) else json.dumps(payload)
        return self._client.publish(self.topic(below, device_id), body, qos=qos, retain=retain)

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any = None) -> None:
        self._answered.put(reason.value)

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any = None) -> None:
        self.gone.set()

    def _on_subscribe(self, client: Any, data: Any, mid: int, reasons: Any, properties: Any = None) -> None:
        self._subscribed.put([reason.value for reason in reasons])

    def _on_message(self, client: Any, data: Any, message: mqtt.MQTTMessage) -> None:
        order = json.loads(message.payload)
        if message.topic.endswith("/sched"):
            self.plans.put(order)
            return
        self.seen.append(order)
        if self.obeys:
            self._obey(order)
        self.commands.put(order)

    def _obey(self, order: dict[str, Any]) -> None:
        on = {"ON": True, "OFF": False}.get(order["cmd"], self.relay)
        if on != self.relay:
            self._send("state", self._state(on, "cmd", order["id"]), retain=True)
        self._send("result", {"id": order["id"], "status": "done", "relay": "ON" if on else "OFF"})


def eventually(check: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """The first true answer of `check`."""
    deadline = time.monotonic() + within_s
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"still {found!r} after {within_s} s")
        time.sleep(0.05)
