"""The firmware of `examples/firmware` against a broker on which the test plays the service: what the real service sends rarely."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from domain.devices.firmware import BrokerEndpoint, FirmwareConfigFormat, FirmwareConfigValues, render_config
from support.device import cancel_tasks
from support.example_firmware import (
    FIRMWARE,
    KINDS,
    SKETCH,
    CatalogBoard,
    compile_sketch,
    micropython,
    run_example,
    write_settings,
)
from support.mosquitto import open_mosquitto
from support.waiting import TIMEOUT_S

DEVICE = "dev_s247fcqf8bwd2y4ut8m7"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class PlayedService:
    """`received`: (topic below the device's prefix, payload), in order. `port`: of the broker."""

    def __init__(self, client: aiomqtt.Client, port: int) -> None:
        self.client, self.port = client, port
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

    @property
    def states(self) -> list[dict[str, Any]]:
        """Without their times."""
        found = [json.loads(payload) for below, payload in self.received if below == "state"]
        return [{key: value for key, value in state.items() if key != "ts"} for state in found]

    async def retained_states(self) -> list[dict[str, Any]]:
        """What a new subscriber gets before what is published now."""
        found: list[dict[str, Any]] = []
        async with aiomqtt.Client("127.0.0.1", self.port) as client, asyncio.timeout(TIMEOUT_S):
            await client.subscribe([(f"devices/{DEVICE}/state", 1), ("end", 1)])
            await client.publish("end", qos=1)
            async for message in client.messages:
                if message.topic.value == "end":
                    break
                found.append(json.loads(bytes(message.payload)))
        return found

    async def wait_until(self, wanted: Any) -> None:
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(wanted)

    async def wait_for_results(self, order_id: str, *statuses: str) -> None:
        await self.wait_until(lambda: len(self.results(order_id)) >= len(statuses))
        assert [result["status"] for result in self.results(order_id)] == [*statuses]


@contextlib.asynccontextmanager
async def played(kind: str, folder: Path, *, two_relays: bool = False) -> AsyncIterator[tuple[PlayedService, CatalogBoard]]:
    """The device is connected and has subscribed to its commands."""
    values = FirmwareConfigValues(DEVICE, 'Pump "1"', BrokerEndpoint("127.0.0.1", 0, 0), "secret")
    async with open_mosquitto(folder) as port, aiomqtt.Client("127.0.0.1", port) as client:
        service = PlayedService(client, port)
        await client.subscribe(f"devices/{DEVICE}/+")
        await client.subscribe(f"devices/{DEVICE}/+/+")
        listening = asyncio.create_task(service.listen())
        await service.send("sched", {"rev": 3, "s": []}, retain=True)
        block = render_config(FirmwareConfigFormat(kind), values).replace("MQTT_PORT = 0", f"MQTT_PORT = {port}")
        try:
            block = block.replace("MQTT_PORT       = 0", f"MQTT_PORT       = {port}")
            async with run_example(kind, block, folder, two_relays=two_relays) as board:
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
        assert [(state["relay"], state["by"]) for state in service.states[1:]] == [
            ("ON", "sched"), ("OFF", "sched"), ("ON", "sched"),
        ]  # fmt: skip


@pytest.mark.parametrize("tls", ["0", "1"])
def test_the_sketch_compiles_for_the_esp8266_too(tls: str, tmp_path: Path) -> None:
    values = FirmwareConfigValues(DEVICE, "Pump", BrokerEndpoint("mqtt.example.com", 1883, 8083, 8883))
    (tmp_path / "latchboard_config.h").write_text(render_config(FirmwareConfigFormat.ARDUINO, values))
    (tmp_path / "settings.h").write_text((SKETCH / "settings.h").read_text().replace("USE_TLS 0", f"USE_TLS {tls}"))
    compile_sketch(tmp_path, "ESP8266")


@pytest.mark.parametrize("kind", KINDS)
async def test_with_one_relay_it_speaks_of_no_channel_and_runs_nothing_for_another(kind: str, tmp_path: Path) -> None:
    async with played(kind, tmp_path) as (service, board):
        await service.order("exe_two", "ON", ch=2)
        await service.wait_for_results("exe_two", "ack", "error")
        assert service.results("exe_two")[1]["code"] == "UNKNOWN_CHANNEL"
        await service.order("exe_one", "ON", ch=1)
        await service.wait_for_results("exe_one", "ack", "done")
        assert board.relay_states == ["OFF", "ON"]
        [hello] = [json.loads(payload) for below, payload in service.received if below == "hello"]
        assert hello.keys() == {"fw", "sched"}
        assert service.states == [{"relay": "OFF", "by": "boot"}, {"relay": "ON", "by": "cmd", "id": "exe_one"}]


@pytest.mark.parametrize("kind", KINDS)
async def test_each_relay_has_its_commands_and_its_state_and_only_the_first_is_retained(kind: str, tmp_path: Path) -> None:
    async with played(kind, tmp_path, two_relays=True) as (service, board):
        [hello] = [json.loads(payload) for below, payload in service.received if below == "hello"]
        assert (hello["ch"], hello["names"]) == (["RELAY", "RELAY", "INPUT"], ["Relay", "Light", "Button"])
        for _ in range(2):
            await service.order("exe_light", "TOGGLE", ch=2)
        await service.wait_for_results("exe_light", "ack", "done", "done")
        await service.order("exe_pump", "STATUS")
        await service.wait_for_results("exe_pump", "ack", "done")
        assert [service.results(each)[-1]["relay"] for each in ("exe_light", "exe_pump")] == ["ON", "OFF"]
        assert (board.relay_states, board.states_of(2)) == (["OFF"], ["OFF", "ON"])
        for order, cmd, channel, code in (
            ("exe_input", "ON", 3, "UNSUPPORTED"),
            ("exe_four", "ON", 4, "UNKNOWN_CHANNEL"),
            ("exe_none", "ON", 0, "UNKNOWN_CHANNEL"),
            ("exe_minus", "ON", -1, "UNKNOWN_CHANNEL"),
            ("exe_far", "ON", 2**33 + 1, "UNKNOWN_CHANNEL"),
        ):
            await service.order(order, cmd, ch=channel)
            await service.wait_for_results(order, "ack", "error")
            assert service.results(order)[1]["code"] == code
        for unreadable in ("2", 1.5, None, True, [2]):
            await service.order("exe_unreadable", "ON", ch=unreadable)
        await service.order("exe_late", "ON", ch=2, exp=now_ms() - 2_000)
        await service.wait_for_results("exe_late", "ack", "expired")
        await service.order("exe_button", "STATUS", ch=3)
        await service.wait_for_results("exe_button", "ack", "done")
        assert "relay" not in service.results("exe_button")[1]
        assert service.results("exe_unreadable") == []
        assert (board.relay_states, board.states_of(2)) == (["OFF"], ["OFF", "ON"])
        boot = {"relay": "OFF", "by": "boot"}
        assert service.states == [boot, boot | {"ch": 2}, {"ch": 2, "relay": "ON", "by": "cmd", "id": "exe_light"}]
        assert [("ch" in state, state["relay"]) for state in await service.retained_states()] == [(False, "OFF")]


@pytest.mark.parametrize("kind", KINDS)
async def test_each_relay_has_its_slots_and_one_for_a_channel_that_it_lacks_switches_nothing(kind: str, tmp_path: Path) -> None:
    async with played(kind, tmp_path, two_relays=True) as (service, board):
        now = now_ms() // 1_000
        light, pump = [0, now + 2, now + 4, True, 2], [1, now + 3, now + 4, True]
        elsewhere = [[2, now + 2, now + 3, True, channel] for channel in (3, 4)]
        pump_again = [4, now + 4, now + 900, True, 1]  # begins where the other one ends; the light goes off then
        rows = [light, pump, *elsewhere, pump_again]
        await service.send("sched", {"rev": 5, "s": rows}, retain=True)
        await board.wait_for_relay("OFF", "ON", "OFF", relay=2)
        await board.wait_for_relay("OFF", "ON")
        await service.order("exe_plan", "GET_SCHEDULES")
        await service.wait_for_results("exe_plan", "ack", "done")
        assert service.results("exe_plan")[1]["data"] == {"rev": 5, "s": rows}
        ran = [(state.get("ch", 1), state["relay"]) for state in service.states if state["by"] == "sched"]
        assert sorted(ran[2:]) == [(1, "ON"), (2, "OFF")], "at the same second"
        assert ran[:2] == [(2, "ON"), (1, "ON")]
        assert board.relay_states == ["OFF", "ON"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_press_is_told_unretained_and_switches_the_buttons_relay(kind: str, tmp_path: Path) -> None:
    async with played(kind, tmp_path, two_relays=True) as (service, board):

        def presses() -> list[str]:
            return [state["action"] for state in service.states if state.get("ch") == 3]

        await board.hold_button(down=True)
        await service.wait_until(lambda: "LONG" in presses())
        await board.hold_button(down=False)
        assert presses() == ["LONG"]
        assert board.relay_states == ["OFF"], "a long press toggles nothing"
        while "SINGLE" not in presses():  # a slow machine may make it a long one, or none
            told = len(presses())
            await board.hold_button(down=True)
            await asyncio.sleep(0.15)
            await board.hold_button(down=False)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(3):
                    await service.wait_until(lambda told=told: len(presses()) > told)
        await service.wait_until(lambda: service.states[-1] == {"relay": "ON", "by": "button"})
        assert board.relay_states == ["OFF", "ON"]
        assert [state.get("by") for state in await service.retained_states()] == ["button"], "no press is retained"


PRESSES = [
    ([(0, True), (100, False)], ["SINGLE"]),
    ([(0, True), (100, False), (250, True), (350, False)], ["DOUBLE"]),
    ([(0, True), (60, False), (200, True), (260, False), (400, True), (460, False), (600, True), (660, False)], ["TRIPLE"]),
    ([(0, True), (100, False), (700, True), (800, False)], ["SINGLE", "SINGLE"]),
    ([(0, True), (1_500, False)], ["LONG"]),
    ([(0, True), (100, False), (250, True), (2_000, False)], ["LONG"]),
    ([(0, True), (5, False), (10, True), (15, False), (20, True), (120, False), (125, True), (130, False)], ["SINGLE"]),
    ([(0, True), (10, False)], []),
]
"""When the contact is closed or opened, in ms, and what it means."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_contact_that_bounces_is_pressed_once(kind: str, tmp_path: Path) -> None:
    """Each script begins just before the clock of the board begins again at 0."""
    scripts = [[(1 if down else 0, ms) for ms, down in script] for script, _ in PRESSES]
    if kind == "micropython":
        code = f"""
import time
from latchboard_relay import Button
now = down = 0
for script in {scripts}:
    button, told, now = Button("", lambda: bool(down)), [], time.ticks_add(0, -100)
    down = 0
    for ms in range(0, 4000, 5):
        for level, at in script:
            if at == ms: down = level
        press = button.press(time.ticks_add(now, ms))
        if press: told.append(press)
    print(",".join(told))
"""
        command = [micropython(), "-c", code]
        ran = subprocess.run(
            command, env={"MICROPYPATH": f"{FIRMWARE / 'micropython'}:.frozen"}, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    else:
        block = render_config(FirmwareConfigFormat.ARDUINO, FirmwareConfigValues(DEVICE, "", BrokerEndpoint("127.0.0.1", 0, 0)))
        (tmp_path / "latchboard_config.h").write_text(block)
        write_settings(tmp_path, None)
        runs = "".join(
            "{ Button button = {}; bool down = false; for (uint32_t ms = 0; ms < 4000; ms += 5) {"
            + "".join(f"if (ms == {at}) down = {level};" for level, at in script)
            + ' if (const char* press = pressOf(button, down, (uint32_t)-100 + ms)) printf("%s,", press); } printf("\\n"); }\n'
            for script in scripts
        )
        program = compile_sketch(tmp_path, "ESP32", f"\nint main() {{ {runs} }}\n")
        ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0, ran.stderr
    told = [line.rstrip(",").split(",") if line else [] for line in ran.stdout.splitlines()]
    assert told == [wanted for _, wanted in PRESSES]


def test_every_file_for_micropython_is_in_its_python() -> None:
    """`main.py` needs a board, so the other tests do not run it."""
    files = [str(file) for file in (FIRMWARE / "micropython").glob("*.py")]
    code = f"for name in {files!r}:\n    compile(open(name).read(), name, 'exec')"
    subprocess.run([micropython(), "-c", code], check=True, timeout=TIMEOUT_S)
