"""The firmware of `examples/firmware`, run as a device of the real service with the config block that the service gives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.certificate import certificate
from support.device import Device, create_device
from support.example_firmware import KINDS, NetworkCable, encrypted_service, run_example
from support.service import ApiClient, Service


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with encrypted_service(tmp_path_factory.mktemp("firmware")) as service:
        yield service


async def config_block(owner: ApiClient, device: Device, kind: str) -> str:
    block: str = (await owner.get(f"{device.path}/config?format={kind}"))["configBlock"]
    return block.replace("YOUR_MQTT_PASSWORD", device.credentials["mqttPassword"])


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("kind", KINDS)
async def test_it_switches_answers_and_reports(
    service: Service, owner: ApiClient, tmp_path: Path, kind: str, encrypted: bool
) -> None:
    pump = await create_device(owner)
    ca = service.folder / "chain.pem" if encrypted else None
    async with service.feed(owner, f"?deviceId={pump.device_id}") as feed:
        async with run_example(kind, await config_block(owner, pump, kind), tmp_path, ca) as board:
            await feed.wait_for("device_online")
            for cmd, relay in (("ON", "ON"), ("TOGGLE", "OFF"), ("ON", "ON")):
                answer = await owner.post(f"{pump.path}/command", {"cmd": cmd, "waitSeconds": 30})
                assert answer["status"] == "DONE"
                assert (await feed.wait_for("relay_changed", relay=relay))["triggeredBy"] == "user"
            assert board.relay_states == ["OFF", "ON", "OFF", "ON"]
            await owner.post(f"{pump.path}/commands", {"name": "FLUSH", "label": "Flush"}, expect=201)
            answer = await owner.post(f"{pump.path}/command", {"cmd": "FLUSH", "waitSeconds": 30})
            execution = await owner.get(f"{pump.path}/executions/{answer['executionId']}")
            assert (execution["status"], execution["result"]["code"]) == ("FAILED", "UNSUPPORTED")
            metrics = await owner.wait_until(f"{pump.path}/rules/context", lambda found: "uptime" in found["metrics"])
            assert "rssi" in metrics["metrics"]
            found = await owner.get(pump.path)
            assert (found["relayState"], found["health"]["firmware"], found["health"]["lastDrop"]) == (True, "1.1.0", None)
        await feed.wait_for("device_offline")
    assert not service.error_lines()


@pytest.mark.parametrize("kind", KINDS)
async def test_it_gives_its_password_to_no_server_of_another_authority(
    service: Service, owner: ApiClient, tmp_path: Path, kind: str
) -> None:
    pump, (other_ca, _) = await create_device(owner), certificate(tmp_path)
    async with run_example(kind, await config_block(owner, pump, kind), tmp_path, other_ca) as board:
        await board.wait_for(lambda line: line.startswith("latchboard:"))
        assert (await owner.get(pump.path))["lastSeen"] is None


@pytest.mark.parametrize("kind", KINDS)
async def test_it_runs_its_schedule_while_the_network_is_down(
    service: Service, owner: ApiClient, tmp_path: Path, kind: str
) -> None:
    pump, cable = await create_device(owner), NetworkCable(service.mqtt_port)
    path, block = f"{pump.path}/schedules", await config_block(owner, pump, kind)
    await cable.plug_in()
    async with run_example(kind, block.replace(str(service.mqtt_port), str(cable.port)), tmp_path) as board:
        await owner.wait_until(pump.path, lambda found: found["isOnline"])
        on_ts = int(time.time()) + 15  # the network is down before
        await owner.post(path, {"slot": 0, "onTs": on_ts, "offTs": on_ts + 3_600}, expect=201)
        await owner.wait_until(path, lambda found: found[0]["firmwareSynced"])
        await cable.unplug()
        await owner.wait_until(path, lambda found: found[0]["lastOutcome"] == "LEFT_TO_DEVICE")
        await board.wait_for_relay("OFF", "ON")
        assert not (await owner.get(pump.path))["relayState"]
        await cable.plug_in()
        [ran] = await owner.wait_until(path, lambda found: found[0]["lastOutcome"] != "LEFT_TO_DEVICE")
        assert (ran["lastOutcome"], ran["status"]) == ("RAN_ON_DEVICE", "ACTIVE")
        assert (await owner.get(pump.path))["relayState"]
        assert board.relay_states == ["OFF", "ON"], "the service did not switch it again"
    await cable.unplug()
