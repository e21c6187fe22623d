"""Firmware configuration, ready to paste, in the five forms that firmwares take.

Every value goes through the escaping of its own language, and each form knows no other: a name with a quotation mark, a line
break or a semicolon in it must never become code on a device. Without a password the block holds a placeholder.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

PASSWORD_PLACEHOLDER = "YOUR_MQTT_PASSWORD"  # noqa: S105 - a placeholder


class FirmwareConfigFormat(StrEnum):
    ARDUINO = "arduino"
    MICROPYTHON = "micropython"
    TASMOTA = "tasmota"
    ESPHOME = "esphome"
    SHELLY = "shelly"


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where devices reach the broker. `tls_port` is None where TLS is off."""

    host: str
    port: int
    ws_port: int
    tls_port: int | None = None


@dataclass(frozen=True, slots=True)
class FirmwareConfigValues:
    device_id: str
    name: str
    endpoint: BrokerEndpoint
    password: str = PASSWORD_PLACEHOLDER


def render_config(config_format: FirmwareConfigFormat, values: FirmwareConfigValues) -> str:
    return _RENDERERS[config_format](values)


def setup_note(config_format: FirmwareConfigFormat, endpoint: BrokerEndpoint) -> str:
    """What to do with a block that has no password in it."""
    said = [
        _INSTRUCTIONS[config_format],
        f"The password is not shown here: replace {PASSWORD_PLACEHOLDER}, or reveal the credentials to get the block with it.",
    ]
    if endpoint.tls_port is not None:
        said.append(
            _TLS_INSTRUCTIONS[config_format].format(port=endpoint.tls_port, host=_authority(endpoint.host, endpoint.tls_port))
        )
    return " ".join(said)


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
    """A string literal of Python that is a YAML double-quoted scalar as well. It is JSON's, but for the two surrogates that JSON
    writes for one sign beyond U+FFFF: neither of them joins these again."""
    signs = [json.dumps(sign)[1:-1] if ord(sign) <= 0xFFFF else f"\\U{ord(sign):08x}" for sign in text]
    return '"' + "".join(signs).replace("\x7f", "\\u007f") + '"'


def _comment_text(text: str) -> str:
    """One line that ends no comment and continues on no next line (C joins lines that end with a backslash)."""
    return "".join(sign if sign.isprintable() and sign not in "\\?" else " " for sign in text)


def _backlog_argument(text: str) -> str:
    """An argument of a Tasmota Backlog, where `;` and line breaks end a command and nothing can be escaped."""
    return "".join(sign for sign in text if sign.isprintable() and sign not in "; ")


def _render_arduino(values: FirmwareConfigValues) -> str:
    end = values.endpoint
    lines = [
        f"// {_comment_text(values.name)}",
        f"static const char     MQTT_HOST[]     = {_c_string(end.host)};",
        f"static const uint16_t MQTT_PORT       = {end.port};",
        f"static const uint16_t MQTT_WS_PORT    = {end.ws_port};",
    ]
    if end.tls_port is not None:
        lines.append(f"static const uint16_t MQTT_TLS_PORT   = {end.tls_port};")
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
    end = values.endpoint
    lines = [
        f"# {_comment_text(values.name)}",
        f"MQTT_HOST = {_quoted_string(end.host)}",
        f"MQTT_PORT = {end.port}",
        f"MQTT_WS_PORT = {end.ws_port}",
        f"MQTT_TLS_PORT = {end.tls_port}",
        f"MQTT_CLIENT_ID = {_quoted_string(values.device_id)}",
        f"MQTT_USERNAME = {_quoted_string(values.device_id)}",
        f"MQTT_PASSWORD = {_quoted_string(values.password)}",
        f"TOPIC_PREFIX = {_quoted_string(_topic_prefix(values) + '/')}",
    ]
    return "\n".join(lines) + "\n"


def _render_tasmota(values: FirmwareConfigValues) -> str:
    """`SetOption26` gives the relay the index 1 also where it is the only one. `MqttPassword2` sets the same password as
    `MqttPassword`, but answers with asterisks; versions that know no index set it too."""
    end = values.endpoint
    steps = [
        f"MqttHost {_backlog_argument(end.host)}",
        f"MqttPort {end.port}",
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
    end = values.endpoint
    return "\n".join(
        [
            f"# {_comment_text(values.name)}",
            "mqtt:",
            f"  broker: {_quoted_string(end.host)}",
            f"  port: {end.port}",
            f"  client_id: {_quoted_string(values.device_id)}",
            f"  username: {_quoted_string(values.device_id)}",
            f"  password: {_quoted_string(values.password)}",
            f"  topic_prefix: {_quoted_string(_topic_prefix(values))}",
            "  discovery: false",
            "  log_topic: null",
            "",
            "switch:  # where there is a list of switches already, add this one to it: YAML takes the key once",
            "  - platform: gpio",
            "    id: relay",
            '    name: "relay"  # keep this name: the topic switch/relay comes from it',
            "    pin: GPIO12  # the pin of your board's relay",
            "",
        ]
    )


def _render_shelly(values: FirmwareConfigValues) -> str:
    end = values.endpoint
    config = {
        "enable": True,
        "server": _authority(end.host, end.port),
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
    """RFC 3986, 3.2.2: an IPv6 address stands in brackets, or its last group would be the port."""
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
    FirmwareConfigFormat.TASMOTA: "Paste into the Tasmota console; the device restarts by itself.",
    FirmwareConfigFormat.ESPHOME: "Add to the device's YAML, set the relay's pin, and install.",
    FirmwareConfigFormat.SHELLY: "POST to http://<address of the Shelly>/rpc, then reboot it.",
}

_TLS_INSTRUCTIONS: dict[FirmwareConfigFormat, str] = {
    FirmwareConfigFormat.ARDUINO: "Encrypted: connect to MQTT_TLS_PORT with WiFiClientSecure and the broker's certificate authority.",  # noqa: E501
    FirmwareConfigFormat.MICROPYTHON: "Encrypted: give it MQTT_TLS_PORT and an SSL context of the broker's certificate authority.",  # noqa: E501
    FirmwareConfigFormat.TASMOTA: "Encrypted, with a build that has TLS: MqttPort {port} and SetOption103 1.",
    FirmwareConfigFormat.ESPHOME: "Encrypted, on an ESP32: port {port} and the broker's certificate authority in certificate_authority.",  # noqa: E501
    FirmwareConfigFormat.SHELLY: (
        'Encrypted: "server" {host} and "ssl_ca" "ca.pem", or "user_ca.pem" for an authority of your own that you have uploaded.'
    ),
}
