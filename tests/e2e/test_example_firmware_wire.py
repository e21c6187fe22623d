"""The firmware of `examples/firmware` against a broker on which the test plays the service: what the real service sends rarely."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from domain.devices.firmware import BrokerEndpoint, FirmwareConfigFormat, FirmwareConfigValues, render_config
from support.device import cancel_tasks
from support.example_firmware import KINDS, SKETCH, CatalogBoard, compile_sketch, run_example
from support.mosquitto import open_mosquitto
from support.waiting import TIMEOUT_S

DEVICE = "dev_s247fcqf8bwd2y4ut8m7"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class PlayedService:
    """`received`: (topic below the device's prefix, payload), in order."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self.client = client
        self.received: list[tuple[str, str]] = []
        self._changed = asyncio.Condition()

    async def listen(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for message in self.client.messages:
                below = str(message.topic).removeprefix(f"devices/{DEVICE}/")
                if below == "time/get":
                    await self.send("time", {"t": now_ms()}, qos=0)
                async with self._changed:
                    self.received.append((below, bytes(message.payload).decode()))
                    self._changed.notify_all()

    async def send(self, below: str, message: Any, *, qos: int = 1, retain: bool = False) -> None:
        payload = message if isinstance(message, str) else json.dumps(message, separators=(",", ":"))
        await self.client.publish(f"devices/{DEVICE}/{below}", payload, qos=qos, retain=retain)

    async def order(self, order_id: str, cmd: str, **more: Any) -> None:
        await self.send("cmd", {"id": order_id, "cmd": cmd, "params": None, "exp": now_ms() + 60_000, **more})

    def results(self, order_id: str) -> list[dict[str, Any]]:
        found = [json.loads(payload) for below, payload in self.received if below == "result"]
        return [result for result in found if result["id"] == order_id]

    async def wait_until(self, wanted: Any) -> None:
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(wanted)

    async def wait_for_results(self, order_id: str, *statuses: str) -> None:
        await self.wait_until(lambda: len(self.results(order_id)) >= len(statuses))
        assert [result["status"] for result in self.results(order_id)] == [*statuses]


@contextlib.asynccontextmanager
async def played(kind: str, folder: Path) -> AsyncIterator[tuple[PlayedService, CatalogBoard]]:
    """The device is connected and has subscribed to its commands."""
    values = FirmwareConfigValues(DEVICE, 'Pump "1"', BrokerEndpoint("127.0.0.1", 0, 0), "secret")
    async with open_mosquitto(folder) as port, aiomqtt.Client("127.0.0.1", port) as client:
        service = PlayedService(client)
        await client.subscribe(f"devices/{DEVICE}/+")
        await client.subscribe(f"devices/{DEVICE}/+/+")
        listening = asyncio.create_task(service.listen())
        await service.send("sched", {"rev": 3, "s": []}, retain=True)
        block = render_config(FirmwareConfigFormat(kind), values).replace("MQTT_PORT = 0", f"MQTT_PORT = {port}")
        try:
            async with run_example(kind, block.replace("MQTT_PORT       = 0", f"MQTT_PORT       = {port}"), folder) as board:
                await service.wait_until(
                    lambda: ("sched/rev", '{"rev":3}') in [(a, b.replace(" ", "")) for a, b in service.received]
                )
                for attempt in range(100):  # its subscription to cmd follows
                    await service.order(f"exe_ready{attempt}", "STATUS")
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await service.wait_until(lambda: any(below == "result" for below, _ in service.received))
                            break
                yield service, board
        finally:
            await cancel_tasks(listening)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_repeated_command_is_not_run_again_and_a_late_one_never(kind: str, tmp_path: Path) -> None:
    async with played(kind, tmp_path) as (service, board):
        for _ in range(2):
            await service.order("exe_a", "TOGGLE")
        await service.wait_for_results("exe_a", "ack", "done", "done")
        await service.order("exe_b", "TOGGLE", exp=now_ms() - 2_000)
        await service.wait_for_results("exe_b", "ack", "expired")
        await service.order("exe_c", "TOGGLE")
        await service.wait_for_results("exe_c", "ack", "done")
        for count in range(15):
            await service.order(f"exe_more{count}", "STATUS")
        await service.order("exe_c", "TOGGLE")  # the oldest of the sixteen that it remembers
        await service.wait_for_results("exe_c", "ack", "done", "done")
        assert board.relay_states == ["OFF", "ON", "OFF"]
        states = [json.loads(payload) for below, payload in service.received if below == "state"]
        assert [(state["relay"], state["by"], state.get("id")) for state in states] == [
            ("OFF", "boot", None), ("ON", "cmd", "exe_a"), ("OFF", "cmd", "exe_c"),
        ]  # fmt: skip
        assert all(abs(state["ts"] - now_ms()) < 60_000 for state in states)
        board.process.kill()
        await service.wait_until(lambda: ("status", "offline") in service.received)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_it_cannot_read_changes_nothing(kind: str, tmp_path: Path) -> None:
    async with played(kind, tmp_path) as (service, board):
        wrong = [
            "",
            "x",
            "[]",
            '"exe_a"',
            "{",
            '{"id":"exe_a"',
            '{"id":"exe_a"}',
            '{"cmd":"ON"}',
            '{"id":"exe_a","cmd":"ON"',
            "[" * 200,
        ]
        for payload in wrong:
            await service.send("cmd", payload)
        for payload in ("", "x", "[]", '{"rev":"x"}', '{"rev":9,"s":[[0]', '{"s":[]}', '{"rev":9,"s":{"a":1}}'):
            await service.send("sched", payload)
        params = {"id": "exe_no", "cmd": "ON", "list": [1, {"cmd": "ON"}], "text": 'a "quoted" } text'}
        await service.order("exe_last", "STATUS", params=params)
        await service.wait_for_results("exe_last", "ack", "done")
        assert (board.relay_states, service.results("exe_no"), service.results("exe_a")) == (["OFF"], [], [])
        await service.order("exe_plan", "GET_SCHEDULES")
        await service.wait_for_results("exe_plan", "ack", "done")
        assert service.results("exe_plan")[1]["data"] == {"rev": 3, "s": []}


@pytest.mark.parametrize("kind", KINDS)
async def test_it_runs_the_edges_of_its_enabled_slots_in_their_order(kind: str, tmp_path: Path) -> None:
    async with played(kind, tmp_path) as (service, board):
        now = now_ms() // 1_000
        ends_with_the_other = [1, now + 4, now + 3, True]  # off at 3, on at 4
        rows = [[0, now - 10, now - 5, True], ends_with_the_other, [2, now + 2, now + 4, True], [3, now + 2, now + 3, False]]
        await service.send("sched", {"rev": 2_147_483_647, "s": rows}, retain=True)
        await board.wait_for_relay("OFF", "ON", "OFF", "ON")
        await service.order("exe_plan", "GET_SCHEDULES")
        await service.wait_for_results("exe_plan", "ack", "done")
        assert service.results("exe_plan")[1]["data"] == {"rev": 2_147_483_647, "s": rows}
        states = [json.loads(payload) for below, payload in service.received if below == "state"]
        assert [(state["relay"], state["by"]) for state in states[1:]] == [("ON", "sched"), ("OFF", "sched"), ("ON", "sched")]


@pytest.mark.parametrize("tls", ["0", "1"])
def test_the_sketch_compiles_for_the_esp8266_too(tls: str, tmp_path: Path) -> None:
    values = FirmwareConfigValues(DEVICE, "Pump", BrokerEndpoint("mqtt.example.com", 1883, 8083, 8883))
    (tmp_path / "latchboard_config.h").write_text(render_config(FirmwareConfigFormat.ARDUINO, values))
    (tmp_path / "settings.h").write_text((SKETCH / "settings.h").read_text().replace("USE_TLS 0", f"USE_TLS {tls}"))
    compile_sketch(tmp_path, "ESP8266")
