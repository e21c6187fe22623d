"""The firmware of `examples/firmware` with one provisioning code compiled in: each board gets credentials of its own."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.clock import to_iso
from support.example_firmware import KINDS, SKETCH, NetworkCable, claiming_board, compile_sketch, encrypted_service
from support.service import ApiClient, Service


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with encrypted_service(tmp_path_factory.mktemp("claims")) as service:
        yield service


async def make_code(owner: ApiClient, **fields: Any) -> str:
    body = {"name": "Hall", "boardType": "ESP32", "appType": "PUMP", "expiresAt": to_iso(time.time_ns() // 1_000_000 + 3_600_000)}
    made = await owner.post("/provisioning-codes", body | {"requiresApproval": False} | fields, expect=201)
    return str(made["code"])


async def claimed_device(owner: ApiClient, mac: str) -> Any:
    """The device of this board, online."""
    found = await owner.wait_until(f"/devices?externalId={mac}", lambda devices: devices and devices[0]["isOnline"])
    return found[0]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("kind", KINDS)
async def test_it_claims_its_credentials_once_though_answers_are_lost_and_keeps_them(
    service: Service, owner: ApiClient, tmp_path: Path, kind: str, encrypted: bool
) -> None:
    scheme, tls, ca = "http", None, service.folder / "chain.pem" if encrypted else None
    if encrypted:
        scheme, tls = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(service.folder / "chain.pem", service.folder / "key.pem")
    mac = f"24:6F:28:{KINDS.index(kind):02X}:0{int(encrypted)}:01"
    cable = NetworkCable(service.port, tls)
    board = claiming_board(
        kind, f"{scheme}://127.0.0.1:{cable.port}", await make_code(owner), mac.lower(), tmp_path / "board", ca
    )
    async with board.run() as running:  # the network is down at first
        await running.wait_for(lambda line: line.startswith("latchboard:"))
        cable.loses_answers = True
        await cable.plug_in()
        [device] = await owner.wait_until(f"/devices?externalId={mac}", lambda devices: devices)
        assert not device["isOnline"]
    cable.loses_answers = False  # and the power was lost before any answer had come
    async with board.run() as running:
        device = await claimed_device(owner, mac)
        path = f"/devices/{device['deviceId']}"
        answer = await owner.post(f"{path}/command", {"cmd": "ON", "waitSeconds": 30})
        assert answer["status"] == "DONE"
        assert running.relay_states == ["OFF", "ON"]
    await owner.wait_until(path, lambda found: not found["isOnline"])
    await cable.unplug()
    assert cable.lost_answers > 0
    async with board.run():  # it needs the service's HTTP no more
        await owner.wait_until(path, lambda found: found["isOnline"])
    [kept] = await owner.get(f"/devices?externalId={mac}")
    assert kept["deviceId"] == device["deviceId"]


@pytest.mark.parametrize("kind", KINDS)
async def test_it_waits_for_an_admin_and_another_board_with_its_hardware_id_gets_nothing(
    service: Service, owner: ApiClient, tmp_path: Path, kind: str
) -> None:
    code, mac = await make_code(owner, requiresApproval=True), f"24:6F:28:{KINDS.index(kind):02X}:03:01"
    true, false = (claiming_board(kind, service.url, code, mac, tmp_path / name) for name in ("true", "false"))
    async with true.run() as board:
        await board.wait_for(lambda line: line.startswith("latchboard:") and "202" in line)
        async with false.run() as thief:
            await thief.wait_for(lambda line: line.startswith("latchboard:") and "409" in line)
    [waiting] = await owner.get("/provisioning-claims?status=PENDING")
    await owner.post(f"/provisioning-claims/{waiting['claimId']}/approve")
    async with false.run() as thief:
        await thief.wait_for(lambda line: line.startswith("latchboard:") and "409" in line)
    async with true.run():  # it kept its token
        device = await claimed_device(owner, mac)
    [claim] = await owner.get("/provisioning-claims?status=CLAIMED&limit=1")
    assert (claim["deviceId"], claim["hardwareId"]) == (device["deviceId"], mac)


@pytest.mark.parametrize("core", ["ESP32", "ESP8266"])
@pytest.mark.parametrize("tls", ["0", "1"])
def test_the_sketch_compiles_with_a_code_for_both_chips(tls: str, core: str, tmp_path: Path) -> None:
    settings = (SKETCH / "settings.h").read_text().replace("USE_TLS 0", f"USE_TLS {tls}")
    (tmp_path / "settings.h").write_text(settings.replace("USE_PROVISIONING 0", "USE_PROVISIONING 1"))
    compile_sketch(tmp_path, core)
