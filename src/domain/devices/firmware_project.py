"""The complete firmware of one device: what a person copies to a board, with nothing left to join by hand.

The sources are those of `examples/firmware`, which the tests run as devices. Three texts are placeholders, for what the service
not know or does not give here; the dashboard replaces them in the browser.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from domain.devices.firmware_config import FirmwareConfigFormat, FirmwareConfigValues, render_config

WIFI_NAME_PLACEHOLDER = "your network"
WIFI_PASSWORD_PLACEHOLDER = "your password"  # noqa: S105 - a placeholder
ESPHOME_NAME = "latchboard-relay"
_LOCAL_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)
_EXAMPLE_AUTHORITY = re.compile(r"-----BEGIN CERTIFICATE-----\n.*?-----END CERTIFICATE-----\n", re.DOTALL)


class FileEncoding(StrEnum):
    TEXT = "text"
    BASE64 = "base64"


@dataclass(frozen=True, slots=True)
class FirmwareFile:
    name: str
    content: str
    encoding: FileEncoding = FileEncoding.TEXT


@dataclass(frozen=True, slots=True)
class FirmwareProject:
    """`files`: the one to look at first comes first. `encrypted`: whether the device uses TLS as it is."""

    config_format: FirmwareConfigFormat
    files: tuple[FirmwareFile, ...]
    encrypted: bool


class FirmwareSourceReader(Protocol):
    def read(self, path: str) -> str:
        """The text of a file below `examples/firmware`."""


def build_project(
    config_format: FirmwareConfigFormat, values: FirmwareConfigValues, sources: FirmwareSourceReader
) -> FirmwareProject:
    files = _BUILDERS[config_format](values, sources)
    encrypted = config_format in _WITH_TLS and values.endpoint.authority_pem is not None
    return FirmwareProject(config_format, files, encrypted)


def _build_arduino(values: FirmwareConfigValues, sources: FirmwareSourceReader) -> tuple[FirmwareFile, ...]:
    """One sketch, because the Arduino IDE opens one file by itself and several only from a directory."""
    settings = sources.read("arduino/latchboard_relay/settings.h")
    if (authority := values.endpoint.authority_pem) is not None:
        settings = _EXAMPLE_AUTHORITY.sub(lambda _: authority, settings).replace("#define USE_TLS 0", "#define USE_TLS 1")
    headers = {
        "json_reader.h": sources.read("arduino/latchboard_relay/json_reader.h"),
        "latchboard_config.h": render_config(FirmwareConfigFormat.ARDUINO, values),
        "settings.h": settings,
    }
    sketch = sources.read("arduino/latchboard_relay/latchboard_relay.ino")
    whole = _LOCAL_INCLUDE.sub(lambda found: _header_text(found[1], headers[found[1]]), sketch)
    return (FirmwareFile("latchboard_relay.ino", whole),)


def _header_text(name: str, header: str) -> str:
    return f"\n// --- {name} ---\n{header.replace('#pragma once', '').strip()}\n"


def _build_micropython(values: FirmwareConfigValues, sources: FirmwareSourceReader) -> tuple[FirmwareFile, ...]:
    main = sources.read("micropython/main.py")
    files = [
        FirmwareFile("latchboard_config.py", render_config(FirmwareConfigFormat.MICROPYTHON, values)),
        *(FirmwareFile(name, sources.read(f"micropython/{name}")) for name in ("latchboard_relay.py", "latchboard_mqtt.py")),
    ]
    if (authority := values.endpoint.authority_pem) is not None:
        main = re.sub(r"^CA_FILE = None.*$", 'CA_FILE = "ca.der"  # the authority of the service', main, flags=re.MULTILINE)
        files.append(FirmwareFile("ca.der", _der_base64(authority), FileEncoding.BASE64))
    return (FirmwareFile("main.py", main), *files)


def _der_base64(pem: str) -> str:
    """A PEM certificate is the base64 of its DER form between two lines."""
    content = "".join(line.strip() for line in pem.splitlines() if not line.startswith("-----"))
    return base64.b64encode(base64.b64decode(content)).decode()


def _build_esphome(values: FirmwareConfigValues, sources: FirmwareSourceReader) -> tuple[FirmwareFile, ...]:
    """The name is the device's name in the network, so each device needs its own."""
    name = f"latchboard-{values.device_id.removeprefix('dev_')[-6:]}"
    head = sources.read("esphome/latchboard_relay.yaml").replace(ESPHOME_NAME, name)
    return (FirmwareFile(f"{name}.yaml", head + render_config(FirmwareConfigFormat.ESPHOME, values)),)


def _build_tasmota(values: FirmwareConfigValues, sources: FirmwareSourceReader) -> tuple[FirmwareFile, ...]:
    return (FirmwareFile("tasmota.txt", render_config(FirmwareConfigFormat.TASMOTA, values)),)


def _build_shelly(values: FirmwareConfigValues, sources: FirmwareSourceReader) -> tuple[FirmwareFile, ...]:
    return (FirmwareFile("shelly.json", render_config(FirmwareConfigFormat.SHELLY, values)),)


_WITH_TLS = (FirmwareConfigFormat.ARDUINO, FirmwareConfigFormat.MICROPYTHON)
_BUILDERS: dict[FirmwareConfigFormat, Callable[[FirmwareConfigValues, FirmwareSourceReader], tuple[FirmwareFile, ...]]] = {
    FirmwareConfigFormat.ARDUINO: _build_arduino,
    FirmwareConfigFormat.MICROPYTHON: _build_micropython,
    FirmwareConfigFormat.ESPHOME: _build_esphome,
    FirmwareConfigFormat.TASMOTA: _build_tasmota,
    FirmwareConfigFormat.SHELLY: _build_shelly,
}
