"""`latchboard tls` makes what the how-to page says, and the programs that the page names accept it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import stat
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.crypto.certificates import tasmota_fingerprint
from support.command_line import run_command
from support.device import Device, create_device
from support.firmware import register_stock_device
from support.ports import free_ports
from support.service import ApiClient, Service, environment
from support.waiting import TIMEOUT_S

MOSQUITTO = shutil.which("mosquitto_pub")


def latchboard(folder: Path, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    env = environment(LATCHBOARD_DATA_DIR=folder / "data", LATCHBOARD_MQTT_PUBLIC_HOST="127.0.0.1", **settings)
    return run_command(*arguments, folder=folder, env=env, is_merged=False)


async def run(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(TIMEOUT_S):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode(errors="replace")


@dataclass
class Plant:
    service: Service
    owner: ApiClient
    pump: Device
    tls: Path
    port: int

    async def publish(self, *options: str) -> int:
        code, _ = await run(
            *("mosquitto_pub", "-h", "127.0.0.1", "-p", str(self.port), "--cafile", str(self.tls / "ca.pem"), "-q", "1"),
            *("-t", self.pump.topic("telemetry"), "-m", '{"temperature": 21.4}'),
            *options,
        )
        return code


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    made = latchboard(tmp_path, "tls", "init")
    assert made.returncode == 0, made.stderr
    lines = [line for line in made.stdout.splitlines() if line.startswith("LATCHBOARD_")]
    [port] = free_ports(1)
    settings = dict(line.split("=", 1) for line in lines) | {"LATCHBOARD_MQTT_TLS_PORT": str(port)}
    with Service(tmp_path, **settings) as service:
        async with service.api() as owner:
            pump = await create_device(owner, "Pump")
            yield Plant(service, owner, pump, tmp_path / "data" / "tls", port)


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto_pub is not installed")
async def test_a_device_comes_in_with_the_certificate_that_the_command_made_until_it_is_revoked(plant: Plant) -> None:
    issued = latchboard(plant.service.folder, "tls", "device", plant.pump.device_id)
    assert issued.returncode == 0, issued.stderr
    pair = plant.tls / "devices" / plant.pump.device_id
    shown = ("--cert", f"{pair}.pem", "--key", f"{pair}-key.pem")
    _, output = await run(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{plant.port}", "-CAfile", str(plant.tls / "ca.pem")),
        *("-verify_return_error", "-verify_ip", "127.0.0.1", "-cert", f"{pair}.pem", "-key", f"{pair}-key.pem"),
    )
    assert "Verify return code: 0 (ok)" in output, output
    assert await plant.publish(*shown) == 0
    await plant.owner.wait_until(f"{plant.pump.path}/telemetry", lambda readings: readings and readings[0]["value"] == 21.4)
    login = ("-u", plant.pump.device_id, "-P", plant.pump.credentials["mqttPassword"])
    assert await plant.publish(*login) != 0, "the port asks for a certificate"
    await plant.owner.post(f"{plant.pump.path}/revoke")
    assert await plant.publish(*shown) != 0


async def test_a_second_init_renews_the_server_and_keeps_the_authority(tmp_path: Path) -> None:
    assert latchboard(tmp_path, "tls", "init").returncode == 0
    folder = tmp_path / "data" / "tls"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {stat.S_IMODE(os.stat(file).st_mode) for file in folder.iterdir()} == {0o600}
    again = latchboard(tmp_path, "tls", "init", "--name", "mqtt.example.com", "--name", "192.0.2.1")
    assert "mqtt.example.com, 192.0.2.1" in again.stdout
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {name for name in before if before[name] == after[name]} == {"ca.pem", "ca-key.pem"}


async def test_tasmota_gets_the_fingerprint_of_the_key_that_the_server_shows_it_and_renewals_keep_it(tmp_path: Path) -> None:
    """Tasmota offers this one cipher suite when it checks a fingerprint."""
    made = latchboard(tmp_path, "tls", "init", "--rsa")
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "data" / "tls"
    key = (folder / "server-key.pem").read_bytes()
    assert latchboard(tmp_path, "tls", "init").returncode == 0
    assert (folder / "server-key.pem").read_bytes() == key, "a renewal keeps the key"
    [port] = free_ports(1)
    settings = {
        "LATCHBOARD_MQTT_TLS_PORT": port,
        "LATCHBOARD_MQTT_TLS_CERTIFICATE": folder / "server.pem",
        "LATCHBOARD_MQTT_TLS_KEY": folder / "server-key.pem",
    }
    with Service(tmp_path, **settings) as service:
        async with service.api() as owner:
            device = await register_stock_device(owner, "tasmota")
            note = (await owner.get(f"{device.path}/config?format=tasmota"))["note"]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as line, context.wrap_socket(line) as secured:
            shown = ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True) or b"")
    assert f"MqttPort {port}; SetOption103 1; SetOption132 1; MqttFingerprint1 {tasmota_fingerprint(shown.encode())}" in note


@pytest.mark.parametrize(("days", "verdict"), [("90", "expires on"), ("3", "Renew it")], ids=["in time", "soon"])
async def test_the_doctor_tells_when_the_certificate_expires(tmp_path: Path, days: str, verdict: str) -> None:
    assert latchboard(tmp_path, "tls", "init", "--days", days).returncode == 0
    folder = tmp_path / "data" / "tls"
    settings = {
        "LATCHBOARD_MQTT_TLS_PORT": "0",
        "LATCHBOARD_MQTT_TLS_CERTIFICATE": folder / "server.pem",
        "LATCHBOARD_MQTT_TLS_KEY": folder / "server-key.pem",
    }
    checked = latchboard(tmp_path, "doctor", **settings)
    told = checked.stdout.partition("MQTT certificate")[2]  # it may begin with a long path and be on several lines
    assert verdict in " ".join(told.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("device", "dev_s247fcqf8bwd2y4ut8m7"), "latchboard tls init"),
        (("device", "pump"), "not a device id"),
        (("init", "--name", "not a name"), "neither a host name nor an address"),
    ],
)
async def test_what_cannot_be_made_is_said(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    refused = latchboard(tmp_path, "tls", *arguments)
    assert refused.returncode == 1
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr
