"""The complete firmware that the service joins from the sources of `examples/firmware`."""

from __future__ import annotations

import base64
import datetime
import shutil
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from adapters.crypto.certificates import CertificateAuthority, find_authority
from adapters.example_firmware_source_reader import ExampleFirmwareSourceReader
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
)
from domain.kernel.clock import from_iso
from support.certificate import certificate

DEVICE = "dev_s247fcqf8bwd2y4ut8m7"


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
