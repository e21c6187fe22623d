"""Home Assistant with its own broker beside the service: what it sees, what it may do, and what is cleared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from support.device import Device, create_device
from support.homeassistant import HomeAssistant, MosquittoProcess, home_assistant
from support.ports import free_ports
from support.service import EMAIL, PASSWORD, ApiClient, Service
from support.thoroughness import thorough_run_only
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

SPECIAL_NAME = 'Pump "7"; {{ states }} \\ </script> ü'


class BridgedService:
    """The service with a bridge to `broker`, acting as the key `key_id`."""

    def __init__(self, service: Service, broker: MosquittoProcess, key_id: str) -> None:
        self.service = service
        self.broker = broker
        self.key_id = key_id

    async def grant(self, owner: ApiClient, device: Device, commands: list[str], **more: Any) -> str:
        body = {"apiKeyId": self.key_id, "commands": commands, **more}
        grant_id: str = (await owner.post(f"{device.path}/grants", body, expect=201))["grantId"]
        return grant_id

    async def metrics(self, owner: ApiClient) -> dict[str, float]:
        lines = (await owner.raw.get(f"{self.service.url}/metrics")).text.splitlines()
        prefix = "latchboard_homeassistant_"
        samples = [line.removeprefix(prefix).split() for line in lines if line.startswith(prefix)]
        return {name.removesuffix("_total"): float(value) for name, value in samples}


@pytest.fixture(scope="module")
def bridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgedService]:
    folder = tmp_path_factory.mktemp("home")
    folder.joinpath("broker").mkdir()
    broker = MosquittoProcess(folder / "broker", *free_ports(1))
    broker.start()
    try:
        with Service(folder / "service") as service:
            key = create_key(service)
            service.settings |= {"LATCHBOARD_HOMEASSISTANT": broker.url, "LATCHBOARD_HOMEASSISTANT_KEY": key["key"]}
            service.restart()
            yield BridgedService(service, broker, key["keyId"])
    finally:
        broker.stop()


def create_key(service: Service) -> dict[str, str]:
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=TIMEOUT_S) as api:
        token = api.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()["accessToken"]
        key: dict[str, str] = api.post("/keys", json={"name": "Home"}, headers={"Authorization": f"Bearer {token}"}).json()
    return key


@pytest.fixture
async def owner(bridged: BridgedService) -> AsyncIterator[ApiClient]:
    async with bridged.service.api() as api:
        yield api


@pytest.fixture
async def home(bridged: BridgedService) -> AsyncIterator[HomeAssistant]:
    async with home_assistant(bridged.broker) as home:
        yield home


async def test_home_assistant_shows_a_device_with_its_sensors_and_switches_it(
    bridged: BridgedService, owner: ApiClient, home: HomeAssistant
) -> None:
    device = await create_device(owner, SPECIAL_NAME)
    await bridged.grant(owner, device, ["*"])
    config = await home.wait_until(lambda home: home.switch(device))
    assert (config["device"]["name"], config["name"]) == (SPECIAL_NAME, None)
    assert home.displayed_state(config) == "unavailable"
    async with device.online(bridged.service) as line, bridged.service.feed(owner) as feed:
        await line.press_button(False)
        await home.wait_until(lambda home: home.displayed_state(home.switch(device)) == "OFF")
        await home.press(device, "ON")
        assert (await line.next_command())["cmd"] == "ON"
        await home.wait_until(lambda home: home.displayed_state(home.switch(device)) == "ON")
        assert (await feed.wait_for("relay_changed", relay="ON"))["triggeredBy"] == "apikey"
        await line.press_button(False)
        await home.wait_until(lambda home: home.displayed_state(home.switch(device)) == "OFF")
        units = {"room.temp": "celsius", "load": "W"}
        await line.publish(
            "telemetry", {"m": {"room.temp": 21.5, "load": 40, "mode": "eco", "a+b/#": 1, "wet": True}, "u": units}
        )
        names = ("room.temp", "load", "mode", "a+b/#")
        await home.wait_until(lambda home: all(home.sensor(device, name) for name in names))
        assert home.sensor(device, "room.temp")["unit_of_measurement"] == "°C"  # type: ignore[index]
        wanted = ["21.5", "40", "eco", "1"]
        await home.wait_until(lambda home: [home.displayed_state(home.sensor(device, name)) for name in names] == wanted)
        wet = await home.wait_until(lambda home: home.sensor(device, "wet", "binary_sensor"))
        await home.wait_until(lambda home: home.displayed_state(wet) == "ON")
        assert home.sensor(device, "wet") is None
        await line.report(load=41.25, wet=False)
        await home.wait_until(lambda home: home.displayed_state(wet) == "OFF")
        await home.wait_until(lambda home: home.displayed_state(home.sensor(device, "load")) == "41.25")
    await home.wait_until(lambda home: home.displayed_state(home.switch(device)) == "unavailable")
    assert not bridged.service.error_lines()


async def test_home_assistant_may_do_exactly_what_its_key_may_do(
    bridged: BridgedService, owner: ApiClient, home: HomeAssistant
) -> None:
    requested, only_off, reader = [await create_device(owner, name) for name in ("Asked", "Only off", "Read only")]
    unseen = await create_device(owner, "Unseen")
    await owner.post(f"{requested.path}/commands", {"name": "ON", "label": "On", "requiresApproval": True}, expect=201)
    await bridged.grant(owner, requested, ["*"])
    await bridged.grant(owner, only_off, ["OFF"])
    await bridged.grant(owner, reader, ["*"], scope="READ")
    before = await bridged.metrics(owner)
    async with requested.online(bridged.service) as a, only_off.online(bridged.service) as b, reader.online(bridged.service) as c:
        await home.wait_until(lambda home: all(home.switch(each) for each in (requested, only_off, reader)))
        for device in (requested, only_off, reader):
            await home.press(device, "ON")
        await home.client.publish(home.base(requested).replace(requested.device_id, unseen.device_id) + "/set", "ON", qos=1)
        await home.press(only_off, "REBOOT")
        await home.press(only_off, "OFF", retain=True)
        await home.press(only_off, "OFF")
        waiting = await owner.wait_until(f"{requested.path}/approvals", lambda found: len(found) == 1)
        assert (waiting[0]["cmd"], waiting[0]["status"]) == ("ON", "PENDING")
        assert await a.drain_commands(owner) == []
        assert (await b.next_command())["cmd"] == "OFF"
        assert await c.drain_commands(owner) == []
    metrics = await bridged.metrics(owner)
    assert metrics["refused"] - before["refused"] == 3
    assert metrics["ignored"] - before["ignored"] >= 1
    assert not home.retained_topics_of(unseen)
    assert (await owner.get(f"{unseen.path}/executions"))["data"] == []


KINDS = ("RELAY", "LEVEL", "COLOR", "COVER", "CLIMATE", "INPUT", "INPUT")
NAMES = ("Pump", "Lamp", "Strip", "Garage door", "Floor", "Button", "Window contact")


async def test_each_channel_is_the_entity_of_its_kind(bridged: BridgedService, owner: ApiClient, home: HomeAssistant) -> None:
    device = await create_device(owner, "House")
    await bridged.grant(owner, device, ["*"])
    await home.wait_until(lambda home: home.switch(device))
    components = ("switch", "light", "light", "cover", "climate", "event", "event")
    async with device.online(bridged.service, auto_reply=False) as line:
        await line.publish("hello", {"ch": KINDS, "names": NAMES})
        await home.wait_until(lambda home: all(home.channel(kind, device, n) for n, kind in enumerate(components, 1)))
        relay, lamp, strip, cover, climate, button, _ = [
            home.channel(kind, device, number) or {} for number, kind in enumerate(components, 1)
        ]
        assert [each["name"] for each in (relay, lamp, strip, cover, climate, button)] == [*NAMES[:6]]
        assert relay["unique_id"] == f"latchboard_{device.device_id}_relay"
        assert (lamp["supported_color_modes"], strip["supported_color_modes"]) == (["brightness"], ["color_temp", "rgb"])
        assert lamp["brightness"] is strip["brightness"] is True
        assert cover["device_class"] == "garage"
        for state in (
            {"relay": "ON"},
            {"ch": 2, "relay": "ON", "level": 40},
            {"ch": 3, "relay": "OFF", "level": 10, "color": "#ff8000"},
            {"ch": 4, "position": 30},
            {"ch": 5, "celsius": 21.5, "mode": "FAN_ONLY"},
        ):
            await line.publish("state", state)
        await home.wait_until(lambda home: home.displayed_state(climate, "mode_state_topic") == "fan_only")
        assert home.displayed_state(relay) == "ON"
        assert json.loads(home.displayed_state(lamp) or "") == {"state": "ON", "brightness": 40}
        color = {"color_mode": "rgb", "color": {"r": 255, "g": 128, "b": 0}}
        assert json.loads(home.displayed_state(strip) or "") == {"state": "OFF", "brightness": 10, **color}
        assert (home.displayed_state(cover), home.displayed_state(cover, "position_topic")) == ("open", "30")
        assert home.displayed_state(climate, "temperature_state_topic") == "21.5"
        for topic, payload, channel, cmd, params in (
            (relay["command_topic"], "OFF", None, "OFF", None),
            (lamp["command_topic"], '{"state": "ON", "brightness": 55}', 2, "SET_LEVEL", {"level": 55}),
            (lamp["command_topic"], '{"state": "OFF"}', 2, "OFF", None),
            (
                strip["command_topic"],
                '{"state": "ON", "color": {"r": 1, "g": 2, "b": 255}}',
                3,
                "SET_COLOR",
                {"color": "#0102ff"},
            ),
            (strip["command_topic"], '{"state": "ON", "color_temp": 2700}', 3, "SET_COLOR", {"kelvin": 2700}),
            (cover["command_topic"], "CLOSE", 4, "CLOSE", None),
            (cover["set_position_topic"], "70", 4, "SET_POSITION", {"position": 70}),
            (climate["mode_command_topic"], "heat", 5, "SET_MODE", {"mode": "HEAT"}),
            (climate["temperature_command_topic"], "19.5", 5, "SET_TARGET", {"celsius": 19.5}),
        ):
            await home.client.publish(topic, payload, qos=1)
            command = await line.next_command(cmd)
            assert (command.get("ch"), command.get("params") or None) == (channel, params), payload
        for action in ("SINGLE", "SINGLE", "LONG"):
            await line.publish("state", {"ch": 6, "action": action})
        await line.publish("state", {"ch": 7, "action": "ON"})
        contact = await home.wait_until(lambda home: home.channel("binary_sensor", device, 7))
        await home.wait_until(lambda home: home.displayed_state(contact) == "ON" and home.channel("event", device, 7) is None)
        await home.wait_until(lambda home: len([each for each in home.passing if each[0] == button["state_topic"]]) == 3)
        presses = [(json.loads(text), expiry) for topic, text, expiry in home.passing if topic == button["state_topic"]]
        assert presses == [({"event_type": action}, 60) for action in ("SINGLE", "SINGLE", "LONG")]
        assert button["state_topic"] not in home.retained
        await line.publish("hello", {"ch": KINDS[:2], "names": ("Pump", "Ceiling")})
        await home.wait_until(lambda home: (home.channel("light", device, 2) or {}).get("name") == "Ceiling")
        left = [{"channel": number, "kind": kind} for number, kind in ((1, "RELAY"), (2, "LEVEL"))]
        await owner.send("PUT", device.path, {"channels": left})
        gone = {each[option] for each in (strip, cover, climate, contact) for option in each if option.endswith("_topic")}
        await home.wait_until(lambda home: not gone & home.retained.keys() and not home.channel("cover", device, 4))
    assert not bridged.service.error_lines()


async def test_a_key_for_one_channel_cannot_touch_another_and_its_user_reads_why(
    bridged: BridgedService, owner: ApiClient, home: HomeAssistant
) -> None:
    device = await create_device(owner, "Yard")
    await bridged.grant(owner, device, ["*"], channels=[2])
    body = {"name": "PULSE", "label": "Pulse", "shape": "BUTTON", "channels": [1, 2]}
    await owner.post(f"{device.path}/commands", body, expect=201)
    async with device.online(bridged.service, auto_reply=False) as line:
        await line.publish("hello", {"ch": ["RELAY", "RELAY", "COVER"], "names": ["Gate", "Light", "Shutter"]})
        gate = await home.wait_until(lambda home: home.channel("switch", device, 1))
        cover = await home.wait_until(lambda home: home.channel("cover", device, 3))
        light = await home.wait_until(lambda home: home.channel("switch", device, 2))
        pulse = await home.wait_until(lambda home: home.command("button", device, "PULSE-2"))
        assert home.refusal(device) is None
        before = await bridged.metrics(owner)
        base = home.base(device)
        attempts = [
            (gate["command_topic"], "ON", "ON"),
            (f"{base}/set/channel/1", "ON", "ON"),
            (f"{base}/set/PULSE", "PRESS", "PULSE"),
            (f"{base}/set/PULSE/1", "PRESS", "PULSE"),
            (cover["command_topic"], "OPEN", "OPEN #3"),
            (cover["set_position_topic"], "100", "SET_POSITION #3"),
        ]
        for number, (topic, payload, shown) in enumerate(attempts, 1):
            await home.client.publish(topic, payload, qos=1)
            refusal = await home.wait_until(lambda home: home.refusal(device))
            await home.wait_until(lambda home, at=refusal, shown=shown: home.attributes(at).get("command") == shown)
            assert home.attributes(refusal)["code"] == "CHANNEL_NOT_GRANTED"
            assert home.displayed_state(refusal) == home.attributes(refusal)["message"][:255]
            assert "covers channel 2 only" in str(home.displayed_state(refusal))
            log = await owner.wait_until(f"{device.path}/events", lambda log, n=number: _refusals(log) == n)
            assert any(shown in each["description"] for each in log)
        for topic in (f"{base}/set/channel/4", f"{base}/set/channel/02", f"{base}/set/channel/2/ON", f"{base}/set/channel"):
            await home.client.publish(topic, "ON", qos=1)
        await home.client.publish(light["command_topic"], "ON", qos=1)
        await home.client.publish(pulse["command_topic"], "PRESS", qos=1)
        assert [((await line.next_command(cmd)).get("ch")) for cmd in ("ON", "PULSE")] == [2, 2]
        assert await line.drain_commands(owner) == []
    assert (await bridged.metrics(owner))["refused"] - before["refused"] == len(attempts)
    assert all(each["channel"] == 2 or each["cmd"] == "STATUS" for each in (await owner.get(f"{device.path}/executions"))["data"])


def _refusals(log: list[dict[str, Any]]) -> int:
    return sum(each["eventType"] == "access_refused" for each in log)


async def test_commands_with_a_shape_are_buttons_numbers_and_selects(
    bridged: BridgedService, owner: ApiClient, home: HomeAssistant
) -> None:
    device = await create_device(owner)
    level = {"type": "object", "properties": {"level": {"type": "integer", "minimum": 0, "maximum": 100}}, "required": ["level"]}
    mode = {"type": "object", "properties": {"mode": {"enum": ["eco", "boost"]}}, "required": ["mode"]}
    both = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
    await bridged.grant(owner, device, ["LEVEL", "MODE", "BEEP"])
    await home.wait_until(lambda home: home.switch(device))
    for name, shape, schema in (("BEEP", "BUTTON", None), ("LEVEL", "NUMBER", level), ("MODE", "SELECT", mode)):
        await define(owner, device, name, shape, schema)
    await define(owner, device, "BOTH", "NUMBER", both)  # Home Assistant has no entity with two values
    await define(owner, device, "DENIED", "BUTTON", None)
    number = await home.wait_until(lambda home: home.command("number", device, "LEVEL"))
    assert [number[name] for name in ("min", "max", "step", "name")] == [0, 100, 1, "Level"]
    select = await home.wait_until(lambda home: home.command("select", device, "MODE"))
    assert select["options"] == ["eco", "boost"]
    button, denied = [await home.wait_until(lambda home, n=n: home.command("button", device, n)) for n in ("BEEP", "DENIED")]
    assert home.command("number", device, "BOTH") is None
    before = await bridged.metrics(owner)
    async with device.online(bridged.service) as line:
        for config, payload in ((button, "PRESS"), (number, "42"), (select, "boost")):
            await home.client.publish(config["command_topic"], payload, qos=1)
            command = await line.next_command()
            expected = {"PRESS": ("BEEP", None), "42": ("LEVEL", {"level": 42}), "boost": ("MODE", {"mode": "boost"})}[payload]
            assert (command["cmd"], command.get("params") or None) == expected
        wrong = ((number, "101"), (number, "nan"), (number, "x"), (select, "max"), (button, "ON"), (denied, "PRESS"))
        for config, payload in wrong:
            await home.client.publish(config["command_topic"], payload, qos=1)
        both_topic = button["command_topic"].replace("BEEP", "BOTH")
        await home.client.publish(both_topic, "1", qos=1)
        async with asyncio.timeout(TIMEOUT_S):
            while (await bridged.metrics(owner))["refused"] - before["refused"] < len(wrong) + 1:
                await asyncio.sleep(0.05)
        assert await line.drain_commands(owner) == []
    [beep] = [each for each in await owner.get(f"{device.path}/commands") if each["name"] == "BEEP"]
    await owner.delete(f"{device.path}/commands/{beep['commandId']}")
    await home.wait_until(lambda home: home.command("button", device, "BEEP") is None)


async def define(owner: ApiClient, device: Device, name: str, shape: str, schema: Any) -> None:
    body = {"name": name, "label": name.capitalize(), "shape": shape, **({} if schema is None else {"paramsSchema": schema})}
    await owner.post(f"{device.path}/commands", body, expect=201)


async def test_home_assistant_shows_what_waits_for_a_person_and_cannot_decide(
    bridged: BridgedService, owner: ApiClient, home: HomeAssistant
) -> None:
    device, plain = [await create_device(owner, name) for name in ("Gate", "Lamp")]
    await owner.post(f"{device.path}/commands", {"name": "FLOOD", "label": "Flood", "requiresApproval": True}, expect=201)
    for each in (device, plain):
        await bridged.grant(owner, each, ["*"])
    config = await home.wait_until(lambda home: home.approvals(device))
    await home.wait_until(lambda home: home.displayed_state(config) == "0")
    flood = await home.wait_until(lambda home: home.command("button", device, "FLOOD"))
    await home.client.publish(flood["command_topic"], "PRESS", qos=1)
    await home.wait_until(lambda home: home.displayed_state(config) == "1")
    await home.wait_until(lambda home: home.attributes(config) == {"commands": ["FLOOD"]})
    [asked] = await owner.get(f"{device.path}/approvals?status=PENDING")
    for payload in ("APPROVE", asked["approvalId"]):
        await home.client.publish(config["state_topic"] + "/set", payload, qos=1)
    await home.press(device, "APPROVE")
    await owner.post(f"{device.path}/approvals/{asked['approvalId']}/deny", {"note": "no"})
    await home.wait_until(lambda home: home.displayed_state(config) == "0")
    assert home.approvals(plain) is None


async def test_energy_and_power_have_their_classes(bridged: BridgedService, owner: ApiClient, home: HomeAssistant) -> None:
    device = await create_device(owner)
    await bridged.grant(owner, device, ["*"])
    units = {"energy": "kWh", "power": "W", "voltage": "V", "current": "mA", "grid": "Hz", "plant": "MW", "tiny": "mWh"}
    async with device.online(bridged.service) as line:
        await line.publish("telemetry", {"m": dict.fromkeys(units, 5), "u": units})
        await home.wait_until(lambda home: all(home.sensor(device, name) for name in units))
    shown = {name: home.sensor(device, name) or {} for name in units}
    assert {
        name: (each.get("device_class"), each["unit_of_measurement"], each["state_class"]) for name, each in shown.items()
    } == {
        "energy": ("energy", "kWh", "total_increasing"),
        "power": ("power", "W", "measurement"),
        "voltage": ("voltage", "V", "measurement"),
        "current": ("current", "mA", "measurement"),
        "grid": ("frequency", "Hz", "measurement"),
        "plant": ("power", "MW", "measurement"),
        "tiny": (None, "mWh", "measurement"),
    }


async def test_a_rate_limit_applies_to_home_assistant(bridged: BridgedService, owner: ApiClient, home: HomeAssistant) -> None:
    device = await create_device(owner)
    await bridged.grant(owner, device, ["*"], rateLimitPerMinute=2)
    async with device.online(bridged.service) as line:
        await home.wait_until(lambda home: home.switch(device))
        before = await bridged.metrics(owner)
        for command in ("ON", "OFF", "ON", "OFF"):
            await home.press(device, command)
        async with asyncio.timeout(TIMEOUT_S):
            while (await bridged.metrics(owner))["commands"] - before["commands"] < 4:
                await asyncio.sleep(0.05)
        assert await line.drain_commands(owner) == ["ON", "OFF"]


async def test_topics_of_devices_that_are_no_longer_visible_are_cleared(
    bridged: BridgedService, owner: ApiClient, home: HomeAssistant
) -> None:
    deleted, revoked, disabled, ungranted = [await create_device(owner, name) for name in ("A", "B", "C", "D")]
    every = (deleted, revoked, disabled, ungranted)
    grants = [await bridged.grant(owner, device, ["*"]) for device in every]
    for device in every:
        async with device.online(bridged.service) as line:
            await line.report(temperature=20)
    await home.wait_until(lambda home: all(home.sensor(device, "temperature") for device in every))
    await owner.delete(deleted.path)
    await owner.post(f"{revoked.path}/revoke")
    await owner.patch(f"{disabled.path}/toggle")
    await owner.delete(f"{ungranted.path}/grants/{grants[3]}")
    await home.wait_until(lambda home: not any(home.retained_topics_of(device) for device in every))
    await owner.patch(f"{disabled.path}/toggle")
    await home.wait_until(lambda home: home.switch(disabled))
    await owner.send("PUT", disabled.path, {"name": "Renamed"})
    await home.wait_until(lambda home: home.switch(disabled)["device"]["name"] == "Renamed")  # type: ignore[index]


async def test_a_disabled_key_clears_every_topic(bridged: BridgedService, owner: ApiClient, home: HomeAssistant) -> None:
    device = await create_device(owner)
    await bridged.grant(owner, device, ["*"])
    await home.wait_until(lambda home: home.switch(device))
    other = "latchboard/acc_another0123456789abc/status"
    await home.client.publish(other, "online", qos=1, retain=True)
    await owner.patch(f"/keys/{bridged.key_id}", {"enabled": False})
    await home.wait_until(lambda home: set(home.retained) == {other})
    await owner.patch(f"/keys/{bridged.key_id}", {"enabled": True})
    await home.client.publish(other, "", qos=1, retain=True)
    await home.wait_until(lambda home: home.switch(device))


@thorough_run_only
async def test_the_service_reconnects_after_the_broker_was_down(bridged: BridgedService, owner: ApiClient) -> None:
    device = await create_device(owner)
    await bridged.grant(owner, device, ["*"])
    async with home_assistant(bridged.broker) as home:
        await home.wait_until(lambda home: home.switch(device))
    bridged.broker.stop()
    assert (await owner.get(device.path))["name"] == "Pump"
    bridged.broker.start()
    async with home_assistant(bridged.broker) as home:
        await home.wait_until(lambda home: home.switch(device))
    bridged.broker.stop()
    assert await asyncio.to_thread(bridged.service.stop) < 5
    await asyncio.to_thread(bridged.service.start)
    assert (await owner.raw.get(f"{bridged.service.url}/readyz")).status_code == 200
    bridged.broker.start()
    async with home_assistant(bridged.broker) as home:
        await home.wait_until(lambda home: home.switch(device))
    assert await asyncio.to_thread(bridged.service.stop) < 5
    await asyncio.to_thread(bridged.service.start)


@thorough_run_only
async def test_topics_that_an_earlier_run_left_are_cleared(
    bridged: BridgedService, owner: ApiClient, home: HomeAssistant
) -> None:
    gone, stays = await create_device(owner, "Gone"), await create_device(owner, "Stays")
    for device in (gone, stays):
        await bridged.grant(owner, device, ["*"])
    await home.wait_until(lambda home: home.switch(gone) and home.switch(stays))
    bridged.service.kill()
    await home.wait_until(lambda home: home.displayed_state(home.switch(stays)) == "unavailable")
    bridge = {name: bridged.service.settings.pop(name) for name in list(bridged.service.settings) if "HOMEASSISTANT" in name}
    await asyncio.to_thread(bridged.service.start)
    await owner.delete(gone.path)
    await asyncio.to_thread(bridged.service.stop)
    bridged.service.settings |= bridge
    await asyncio.to_thread(bridged.service.start)
    await home.wait_until(lambda home: not home.retained_topics_of(gone) and home.switch(stays))
    for name in bridge:
        del bridged.service.settings[name]
    await asyncio.to_thread(bridged.service.restart)
    await owner.delete(f"/keys/{bridged.key_id}")
    await asyncio.to_thread(bridged.service.stop)
    bridged.service.settings |= bridge
    await asyncio.to_thread(bridged.service.start)
    await home.wait_until(lambda home: not home.retained)
