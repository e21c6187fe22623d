"""The configuration block of each firmware, and the complete firmware that the service joins from the sources of `examples/firmware`."""

from __future__ import annotations

import ast
import base64
import datetime
import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from adapters.crypto.certificates import CertificateAuthority, find_authority, load_rsa_key, make_rsa_key, tasmota_fingerprint
from adapters.firmware_sources import ExampleFirmwareSourceReader
from domain.devices.firmware import (
    PASSWORD_PLACEHOLDER,
    WIFI_NAME_PLACEHOLDER,
    WIFI_PASSWORD_PLACEHOLDER,
    BrokerEndpoint,
    FileEncoding,
    FirmwareConfigFormat,
    FirmwareConfigValues,
    FirmwareProject,
    build_project,
    render_config,
    setup_note,
)
from domain.kernel.clock import from_iso
from support.certificate import certificate
from support.waiting import TIMEOUT_S

NASTY = "P\"u'mp\\; */ #{x}\nMqttHost evil\t??/ %s ü€𝄞"
names = st.text(max_size=60)


def values(name: str = NASTY, host: str = "mqtt.example", password: str = "pw") -> FirmwareConfigValues:
    return FirmwareConfigValues("dev_0123456789abcdefghij", name, BrokerEndpoint(host, 1883, 8083, 8883), password)


@given(names, names)
def test_the_micropython_block_is_python_with_the_right_values(name: str, password: str) -> None:
    tree = ast.parse(render_config(FirmwareConfigFormat.MICROPYTHON, values(name, password=password)))
    constants = {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body}  # type: ignore[attr-defined]
    assert constants["MQTT_PORT"] == 1883
    assert constants["MQTT_TLS_PORT"] == 8883
    assert constants["MQTT_PASSWORD"] == password


@given(names, names)
def test_the_esphome_block_is_yaml_with_the_right_values(name: str, password: str) -> None:
    document = yaml.safe_load(render_config(FirmwareConfigFormat.ESPHOME, values(name, password=password)))
    assert document["mqtt"]["topic_prefix"] == "devices/dev_0123456789abcdefghij"
    assert set(document) == {"mqtt", "switch"}
    assert document["mqtt"]["password"] == password


@given(names, names)
def test_shelly_is_one_rpc_call(name: str, password: str) -> None:
    call = json.loads(render_config(FirmwareConfigFormat.SHELLY, values(name, password=password)))
    assert call["method"] == "Mqtt.SetConfig"
    assert call["params"]["config"]["pass"] == password
    assert call["params"]["config"]["server"] == "mqtt.example:1883"


@given(names)
def test_no_value_can_inject_a_tasmota_command(name: str) -> None:
    block = render_config(FirmwareConfigFormat.TASMOTA, values(name, host=name))
    plain = render_config(FirmwareConfigFormat.TASMOTA, values())
    assert block.count(";") == plain.count(";")
    assert block.count("\n") == 1


def test_tasmota_talks_below_the_device_prefix() -> None:
    assert "FullTopic devices/dev_0123456789abcdefghij/%prefix%/;" in render_config(FirmwareConfigFormat.TASMOTA, values())


@given(names)
def test_an_arduino_comment_stays_one_line(name: str) -> None:
    block = render_config(FirmwareConfigFormat.ARDUINO, values(name))
    assert len(block.splitlines()) == len(render_config(FirmwareConfigFormat.ARDUINO, values("x")).splitlines())
    assert not block.splitlines()[0].endswith("\\")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_arduino_compiles_as_c_without_a_warning_and_holds_the_password(tmp_path: Path) -> None:
    every = "".join(f"{chr(code)}7" for code in range(1, 0x180))
    password = 'a"b\\c??/d\x01' + every + "9ü𝄞"
    header = tmp_path / "config.h"
    header.write_text(render_config(FirmwareConfigFormat.ARDUINO, values(password=password)))
    program = tmp_path / "main.c"
    includes = '#include <stdint.h>\n#include <stdio.h>\n#include "config.h"\n'
    program.write_text(includes + "int main(void){fputs(MQTT_PASSWORD, stdout);}")
    binary = tmp_path / "main"
    flags = ["-std=c99", "-trigraphs", "-Wall", "-Wno-unused", "-Werror"]
    subprocess.run(["cc", *flags, str(program), "-o", str(binary)], check=True, timeout=TIMEOUT_S)
    reply = subprocess.run([str(binary)], check=True, capture_output=True, timeout=TIMEOUT_S).stdout
    assert reply.decode() == password


def test_the_tasmota_line_fits_the_console() -> None:
    longest = render_config(FirmwareConfigFormat.TASMOTA, values(host="h" * 60, password="p" * 32))
    assert len(longest) < 500


def test_the_tasmota_password_command_does_not_echo_it() -> None:
    steps = render_config(FirmwareConfigFormat.TASMOTA, values()).removeprefix("Backlog ").strip().split("; ")
    assert [step for step in steps if "pw" in step] == ["MqttPassword2 pw"]


@pytest.mark.parametrize(("host", "server"), [("mqtt.example", "mqtt.example:1883"), ("fd00::2", "[fd00::2]:1883")])
def test_shelly_gets_ipv6_hosts_in_brackets(host: str, server: str) -> None:
    assert json.loads(render_config(FirmwareConfigFormat.SHELLY, values(host=host)))["params"]["config"]["server"] == server


@pytest.mark.parametrize("form", list(FirmwareConfigFormat))
def test_tls_instructions_appear_only_with_tls(form: FirmwareConfigFormat) -> None:
    plain, encrypted = BrokerEndpoint("mqtt.example", 1883, 8083), BrokerEndpoint("mqtt.example", 1883, 8083, 8883)
    assert "Encrypted" not in setup_note(form, plain)
    assert "Encrypted" in setup_note(form, encrypted)
    assert "8883" in setup_note(form, encrypted) or "MQTT_TLS_PORT" in setup_note(form, encrypted)
    for endpoint in (plain, encrypted):
        block = render_config(form, FirmwareConfigValues("dev_0123456789abcdefghij", "Pump", endpoint))
        assert block.count(PASSWORD_PLACEHOLDER) == 1


DEVICE = "dev_s247fcqf8bwd2y4ut8m7"


def test_tasmota_is_told_to_check_the_fingerprint_of_an_authority_of_ones_own() -> None:
    """With SetOption103 alone it trusts public authorities only."""
    endpoint = BrokerEndpoint("mqtt.example", 1883, 8083, 8883)
    public = setup_note(FirmwareConfigFormat.TASMOTA, endpoint)
    own = setup_note(FirmwareConfigFormat.TASMOTA, replace(endpoint, authority_pem="PEM", fingerprint="AB CD"))
    without_rsa = setup_note(FirmwareConfigFormat.TASMOTA, replace(endpoint, authority_pem="PEM"))
    assert "SetOption132" not in public
    assert "MqttPort 8883; SetOption103 1; SetOption132 1; MqttFingerprint1 AB CD" in own
    assert "tls init --rsa" in without_rsa
    assert "SetOption103" not in without_rsa


def test_an_esphome_board_neither_restarts_without_the_service_nor_leaves_a_question_unanswered() -> None:
    mqtt = yaml.safe_load(render_config(FirmwareConfigFormat.ESPHOME, values()))["mqtt"]
    assert mqtt["reboot_timeout"] == "0s"
    assert len(mqtt["on_message"]) == 2
    for question, name in zip(mqtt["on_message"], ("relay", "switch"), strict=True):
        assert question["topic"] == f"devices/dev_0123456789abcdefghij/ask/{name}/command"
        assert f"devices/dev_0123456789abcdefghij/answer/{name}" in question["then"][1]["lambda"]


def project(config_format: FirmwareConfigFormat, authority: str | None = None) -> FirmwareProject:
    endpoint = BrokerEndpoint("mqtt.example", 1883, 8083, 8883 if authority else None, authority)
    return build_project(config_format, FirmwareConfigValues(DEVICE, "Pump", endpoint), ExampleFirmwareSourceReader())


@pytest.mark.parametrize("config_format", FirmwareConfigFormat)
def test_it_has_each_placeholder_once_and_needs_no_other_file(config_format: FirmwareConfigFormat) -> None:
    text = "".join(file.content for file in project(config_format).files)
    assert text.count(PASSWORD_PLACEHOLDER) == 1
    assert DEVICE in text
    assert '#include "' not in text
    if config_format not in (FirmwareConfigFormat.TASMOTA, FirmwareConfigFormat.SHELLY):
        assert [text.count(f'"{one}"') for one in (WIFI_NAME_PLACEHOLDER, WIFI_PASSWORD_PLACEHOLDER)] == [1, 1]


def test_with_an_authority_of_its_own_sketch_and_script_check_the_server(tmp_path: Path) -> None:
    pem = certificate(tmp_path)[0].read_text()
    sketch = project(FirmwareConfigFormat.ARDUINO, pem)
    assert sketch.encrypted
    assert "#define USE_TLS 1" in sketch.files[0].content
    assert pem in sketch.files[0].content
    script = project(FirmwareConfigFormat.MICROPYTHON, pem)
    [der] = [file for file in script.files if file.encoding is FileEncoding.BASE64]
    assert x509.load_der_x509_certificate(base64.b64decode(der.content)) == x509.load_pem_x509_certificate(pem.encode())
    assert f'CA_FILE = "{der.name}"' in script.files[0].content
    assert not project(FirmwareConfigFormat.ARDUINO).encrypted


def test_each_device_with_esphome_has_a_name_of_its_own_in_the_network() -> None:
    [file] = project(FirmwareConfigFormat.ESPHOME).files
    whole = yaml.safe_load(file.content)
    assert (file.name, whole["esphome"]["name"]) == ("latchboard-4ut8m7.yaml", "latchboard-4ut8m7")
    assert whole["mqtt"]["topic_prefix"] == f"devices/{DEVICE}"


def test_only_the_certificate_that_signed_the_servers_is_its_authority(tmp_path: Path) -> None:
    now = datetime.datetime.fromtimestamp(from_iso("2026-11-22T00:00:00Z") / 1000, datetime.UTC)
    own, other = (CertificateAuthority.create(name, now) for name in ("own", "other"))
    server = own.issue_server(["mqtt.example"], now, 10).certificate
    assert find_authority(server, own.to_pem().certificate) == own.to_pem().certificate.decode()
    assert find_authority(server, other.to_pem().certificate) is None
    chain, _ = certificate(tmp_path)
    shutil.copy(chain, tmp_path / "ca.pem")
    assert find_authority(chain.read_bytes(), (tmp_path / "ca.pem").read_bytes()) == chain.read_text()


def test_the_fingerprint_for_tasmota_is_of_an_rsa_key_only() -> None:
    """It is made of the parts of OpenSSH's form of the key: there the modulus has a zero before it, which Tasmota leaves out."""
    now = datetime.datetime.fromtimestamp(from_iso("2026-11-22T00:00:00Z") / 1000, datetime.UTC)
    authority, key = CertificateAuthority.create("own", now), make_rsa_key()
    chain = authority.issue_server(["mqtt.example"], now, 10, key)
    blob = base64.b64decode(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).split()[1]
    )
    modulus = blob[-256:]
    head = blob[: -256 - 5]  # without the length of the modulus and its zero
    wanted = hashlib.sha1(head + (256).to_bytes(4, "big") + modulus, usedforsecurity=False).hexdigest()
    assert tasmota_fingerprint(chain.certificate) == " ".join(wanted[at : at + 2] for at in range(0, 40, 2)).upper()
    assert load_rsa_key(chain.key) is not None
    usual = authority.issue_server(["mqtt.example"], now, 10)
    assert tasmota_fingerprint(usual.certificate) is None
    assert load_rsa_key(usual.key) is None


def test_an_update_of_esphome_needs_the_password_of_its_device() -> None:
    values = FirmwareConfigValues(DEVICE, "Pump", BrokerEndpoint("mqtt.example", 1883, 8083), ota_password="of this one")
    [file] = build_project(FirmwareConfigFormat.ESPHOME, values, ExampleFirmwareSourceReader()).files
    whole = yaml.safe_load(file.content)
    assert whole["ota"] == [{"platform": "esphome", "password": "of this one"}]
    assert (whole["mqtt"]["reboot_timeout"], whole["wifi"]["reboot_timeout"]) == ("0s", "0s")
