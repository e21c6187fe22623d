"""The firmware of a device: its configuration, ready to paste, in five formats; and the complete project: what a person copies to
a board, with nothing left to join by hand.

Every value is escaped for the language of its format: a name that contains a quotation mark, a line break or a semicolon must
never become code on a device. The sources are those of `examples/firmware`, which the tests run as devices. Three texts are
placeholders, for what the service does not know or does not give here: the dashboard replaces them in the browser.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

PASSWORD_PLACEHOLDER = "YOUR_MQTT_PASSWORD"  # noqa: S105 - a placeholder
OTA_PLACEHOLDER = "YOUR_OTA_PASSWORD"


class FirmwareConfigFormat(StrEnum):
    ARDUINO = "arduino"
    MICROPYTHON = "micropython"
    TASMOTA = "tasmota"
    ESPHOME = "esphome"
    SHELLY = "shelly"


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where devices reach the broker. `tls_port` is None where TLS is off. `authority_pem`: the certificate by which devices
    check the broker's; None without TLS, and where a public authority has certified it. `fingerprint`: of its key, as Tasmota
    checks it; None if it is no RSA key."""

    host: str
    port: int
    ws_port: int
    tls_port: int | None = None
    authority_pem: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class FirmwareConfigValues:
    device_id: str
    name: str
    endpoint: BrokerEndpoint
    password: str = PASSWORD_PLACEHOLDER
    ota_password: str = OTA_PLACEHOLDER


def render_config(config_format: FirmwareConfigFormat, values: FirmwareConfigValues) -> str:
    return _RENDERERS[config_format](values)


def setup_note(config_format: FirmwareConfigFormat, endpoint: BrokerEndpoint) -> str:
    """Instructions for a block without the password."""
    sentences = [
        _INSTRUCTIONS[config_format],
        f"The password is not shown here: replace {PASSWORD_PLACEHOLDER}, or reveal the credentials to get the block with it.",
    ]
    if endpoint.tls_port is not None:
        host = _authority(endpoint.host, endpoint.tls_port)
        instructions = _tls_instructions(config_format, endpoint)
        sentences.append(instructions.format(port=endpoint.tls_port, host=host, fingerprint=endpoint.fingerprint))
    return " ".join(sentences)


def _tls_instructions(config_format: FirmwareConfigFormat, endpoint: BrokerEndpoint) -> str:
    """Tasmota with SetOption103 alone trusts public authorities only."""
    if config_format is not FirmwareConfigFormat.TASMOTA or endpoint.authority_pem is None:
        return _TLS_INSTRUCTIONS[config_format]
    return _TASMOTA_WITH_FINGERPRINT if endpoint.fingerprint is not None else _TASMOTA_WITHOUT_RSA


def _c_string(text: str) -> str:
    """A C string literal. Octal escapes end after three digits, unlike \\x; `?` is escaped because of trigraphs."""
    out = []
    for byte in text.encode():
        sign = chr(byte)
        if sign in '"\\?':
            out.append("\\" + sign)
        else:
            out.append(sign if 0x20 <= byte < 0x7F else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def _quoted_string(text: str) -> str:
    """A string literal that is valid Python and a YAML double-quoted scalar. It is a JSON string, except for characters beyond
    U+FFFF, which JSON writes as two surrogates: Python and YAML do not join them."""
    signs = [json.dumps(sign)[1:-1] if ord(sign) <= 0xFFFF else f"\\U{ord(sign):08x}" for sign in text]
    return '"' + "".join(signs).replace("\x7f", "\\u007f") + '"'


def _comment_text(text: str) -> str:
    """One line that neither ends a comment nor continues on the next line (C joins lines that end with a backslash)."""
    return "".join(sign if sign.isprintable() and sign not in "\\?" else " " for sign in text)


def _backlog_argument(text: str) -> str:
    """An argument of a Tasmota Backlog, where `;` and line breaks end a command and nothing can be escaped."""
    return "".join(sign for sign in text if sign.isprintable() and sign not in "; ")


def _render_arduino(values: FirmwareConfigValues) -> str:
    endpoint = values.endpoint
    lines = [
        f"// {_comment_text(values.name)}",
        f"static const char     MQTT_HOST[]     = {_c_string(endpoint.host)};",
        f"static const uint16_t MQTT_PORT       = {endpoint.port};",
        f"static const uint16_t MQTT_WS_PORT    = {endpoint.ws_port};",
    ]
    if endpoint.tls_port is not None:
        lines.append(f"static const uint16_t MQTT_TLS_PORT   = {endpoint.tls_port};")
    lines += [
        f"static const char     MQTT_CLIENT_ID[] = {_c_string(values.device_id)};",
        f"static const char     MQTT_USERNAME[] = {_c_string(values.device_id)};",
        f"static const char     MQTT_PASSWORD[] = {_c_string(values.password)};",
        f"static const char     TOPIC_PREFIX[]  = {_c_string(_topic_prefix(values) + '/')};",
    ]
    lines += [
        f"static const char     TOPIC_{name.upper():<8}[] = {_c_string(f'{_topic_prefix(values)}/{name}')};"
        for name in ("status", "state", "telemetry", "cmd", "result", "sched")
    ]
    return "\n".join(lines) + "\n"


def _render_micropython(values: FirmwareConfigValues) -> str:
    endpoint = values.endpoint
    lines = [
        f"# {_comment_text(values.name)}",
        f"MQTT_HOST = {_quoted_string(endpoint.host)}",
        f"MQTT_PORT = {endpoint.port}",
        f"MQTT_WS_PORT = {endpoint.ws_port}",
        f"MQTT_TLS_PORT = {endpoint.tls_port}",
        f"MQTT_CLIENT_ID = {_quoted_string(values.device_id)}",
        f"MQTT_USERNAME = {_quoted_string(values.device_id)}",
        f"MQTT_PASSWORD = {_quoted_string(values.password)}",
        f"TOPIC_PREFIX = {_quoted_string(_topic_prefix(values) + '/')}",
    ]
    return "\n".join(lines) + "\n"


def _render_tasmota(values: FirmwareConfigValues) -> str:
    """`SetOption26` gives the relay index 1 even if it is the only one. `MqttPassword2` sets the same password as `MqttPassword`
    but answers with asterisks; versions without this index set it too."""
    endpoint = values.endpoint
    steps = [
        f"MqttHost {_backlog_argument(endpoint.host)}",
        f"MqttPort {endpoint.port}",
        f"MqttClient {_backlog_argument(values.device_id)}",
        f"MqttUser {_backlog_argument(values.device_id)}",
        f"MqttPassword2 {_backlog_argument(values.password)}",
        f"Topic {_backlog_argument(values.device_id)}",
        f"FullTopic {_backlog_argument(_topic_prefix(values))}/%prefix%/",
        "SetOption26 1",
        "SetOption3 1",
    ]
    return "Backlog " + "; ".join(steps) + "\n"


def _render_esphome(values: FirmwareConfigValues) -> str:
    endpoint = values.endpoint
    return "\n".join(
        [
            f"# {_comment_text(values.name)}",
            "mqtt:",
            "  id: latchboard_mqtt",
            f"  broker: {_quoted_string(endpoint.host)}",
            f"  port: {endpoint.port}",
            f"  client_id: {_quoted_string(values.device_id)}",
            f"  username: {_quoted_string(values.device_id)}",
            f"  password: {_quoted_string(values.password)}",
            f"  topic_prefix: {_quoted_string(_topic_prefix(values))}",
            "  discovery: false",
            "  log_topic: null",
            "  reboot_timeout: 0s  # otherwise 15 minutes without the service restart the board, and its relay is off",
            "  on_message:  # after each command: what the relay does, because ESPHome publishes changes only",
            f"    - topic: {_quoted_string(_topic_prefix(values) + '/ask/relay/command')}",
            "      qos: 1",
            "      then:",
            "        - delay: 300ms",
            "        - lambda: |-",
            f"            const std::string topic = {_c_string(_topic_prefix(values) + '/answer/relay')};",
            '            id(latchboard_mqtt).publish(topic, x + (id(relay).state ? " ON" : " OFF"), 1, false);',
            "    # The same for each other switch: it is asked with an id and its name.",
            f"    - topic: {_quoted_string(_topic_prefix(values) + '/ask/switch/command')}",
            "      qos: 1",
            "      then:",
            "        - delay: 300ms",
            "        - lambda: |-",
            f"            const std::string topic = {_c_string(_topic_prefix(values) + '/answer/switch')};",
            "            const auto space = x.find(' ');",
            "            for (auto *each : App.get_switches())",
            "              if (space != std::string::npos && each->get_name() == x.substr(space + 1))",
            '                id(latchboard_mqtt).publish(topic, x + (each->state ? " ON" : " OFF"), 1, false);',
            "",
            "switch:  # if the file has a list of switches, add this one to it: YAML allows the key only once",
            "  - platform: gpio",
            "    id: relay",
            '    name: "relay"  # keep this name: the topic switch/relay comes from it',
            "    pin: GPIO4  # the pin of your board's relay; not one that decides how the chip starts, such as 0, 2, 12 or 15",
            "  # Further relays, lights, fans and covers become channels of their own. A name in small letters, without spaces:",
            "  # - platform: gpio",
            '  #   name: "pump"',
            "  #   pin: GPIO5",
            "",
        ]
    )


def _render_shelly(values: FirmwareConfigValues) -> str:
    endpoint = values.endpoint
    config = {
        "enable": True,
        "server": _authority(endpoint.host, endpoint.port),
        "client_id": values.device_id,
        "user": values.device_id,
        "pass": values.password,
        "topic_prefix": _topic_prefix(values),
        "rpc_ntf": True,
        "status_ntf": True,
        "enable_control": True,
        "enable_rpc": True,
    }
    return json.dumps({"id": 1, "method": "Mqtt.SetConfig", "params": {"config": config}}, indent=2) + "\n"


def _authority(host: str, port: int) -> str:
    """RFC 3986, 3.2.2: an IPv6 address needs brackets; otherwise its last group would be the port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _topic_prefix(values: FirmwareConfigValues) -> str:
    return f"devices/{values.device_id}"


_RENDERERS: dict[FirmwareConfigFormat, Callable[[FirmwareConfigValues], str]] = {
    FirmwareConfigFormat.ARDUINO: _render_arduino,
    FirmwareConfigFormat.MICROPYTHON: _render_micropython,
    FirmwareConfigFormat.TASMOTA: _render_tasmota,
    FirmwareConfigFormat.ESPHOME: _render_esphome,
    FirmwareConfigFormat.SHELLY: _render_shelly,
}

_INSTRUCTIONS: dict[FirmwareConfigFormat, str] = {
    FirmwareConfigFormat.ARDUINO: "Save as latchboard_config.h beside your sketch and include it.",
    FirmwareConfigFormat.MICROPYTHON: "Save as latchboard_config.py on the board and import it.",
    FirmwareConfigFormat.TASMOTA: "Paste into the Tasmota console; the device restarts automatically.",
    FirmwareConfigFormat.ESPHOME: "Add to the device's YAML, set the relay's pin, and install.",
    FirmwareConfigFormat.SHELLY: "POST to http://<address of the Shelly>/rpc, then reboot it.",
}

_TLS_INSTRUCTIONS: dict[FirmwareConfigFormat, str] = {
    FirmwareConfigFormat.ARDUINO: "Encrypted: connect to MQTT_TLS_PORT with WiFiClientSecure and the broker's certificate authority.",  # noqa: E501
    FirmwareConfigFormat.MICROPYTHON: "Encrypted: use MQTT_TLS_PORT and an SSL context with the broker's certificate authority.",
    FirmwareConfigFormat.TASMOTA: "Encrypted, with a build that has TLS: MqttPort {port} and SetOption103 1.",
    FirmwareConfigFormat.ESPHOME: "Encrypted, on an ESP32: port {port} and the broker's certificate authority in certificate_authority.",  # noqa: E501
    FirmwareConfigFormat.SHELLY: (
        'Encrypted: "server" {host} and "ssl_ca" "ca.pem", or "user_ca.pem" for an authority of your own that you have uploaded.'
    ),
}
_TASMOTA_WITH_FINGERPRINT = (
    "Encrypted, with a build that has TLS: "
    "Backlog MqttPort {port}; SetOption103 1; SetOption132 1; MqttFingerprint1 {fingerprint}"
)
_TASMOTA_WITHOUT_RSA = (
    "Encrypted: Tasmota checks a server of your own authority by the fingerprint of an RSA key. Give the server one with "
    "latchboard tls init --rsa; then this note has the fingerprint."
)

WIFI_NAME_PLACEHOLDER = "your network"
WIFI_PASSWORD_PLACEHOLDER = "your password"  # noqa: S105 - a placeholder
ESPHOME_NAME = "latchboard-relay"
_LOCAL_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)
_EXAMPLE_AUTHORITY = re.compile(r"-----BEGIN CERTIFICATE-----\n.*?-----END CERTIFICATE-----\n", re.DOTALL)


class FileEncoding(StrEnum):
    TEXT = "TEXT"
    BASE64 = "BASE64"


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
        "claim.h": '#error "USE_PROVISIONING 1 needs the sketch of examples/firmware, with claim.h"',
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
    head = head.replace(_quoted_string(OTA_PLACEHOLDER), _quoted_string(values.ota_password))
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
