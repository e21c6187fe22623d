"""Nothing is lost in silence: each value of each documented message is a reading, a state, an event, or a told drop, or the profile
names it as ignored on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from adapters.mqtt.profiles import esphome, shelly, tasmota
from domain.devices.health import EXPLANATIONS
from domain.devices.messages import (
    CommandResultReport,
    DevicePlanRevisionReport,
    DeviceReport,
    HelloReport,
    PresenceReport,
    RelayReport,
    StockFirmwareTelemetryReport,
    UnreadableMessage,
)
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import DeviceId
from support.firmware_messages import ESPHOME, SHELLY, TASMOTA

DEVICE = DeviceId("dev_aaaaaaaaaaaaaaaaaaaa")
PROFILES: dict[FirmwareProfile, tuple[ModuleType, dict[str, tuple[str, str]]]] = {
    FirmwareProfile.TASMOTA: (tasmota, TASMOTA),
    FirmwareProfile.SHELLY: (shelly, SHELLY),
    FirmwareProfile.ESPHOME: (esphome, ESPHOME),
}
MESSAGES = [
    pytest.param(profile, *message, id=f"{profile}: {name}")
    for profile, (_, messages) in PROFILES.items()
    for name, message in messages.items()
]
ADDRESSING = {"src", "dst", "method", "component", "id", "ts"}
"""Of Shelly's notifications: who says it, and of what."""
STATES = (PresenceReport, RelayReport, CommandResultReport, DevicePlanRevisionReport)
WORDS = {"on": True, "1": True, "true": True, "off": False, "0": False, "false": False}


def decode(profile: FirmwareProfile, topic: str, payload: str) -> list[DeviceReport]:
    return list(ProfileDispatchingDeviceCodec().decode(profile, topic, payload.encode(), False, DEVICE, 1_800_000_000_000))


def readings(reports: list[DeviceReport]) -> list[tuple[str, Any]]:
    payloads = [json.loads(each.payload) for each in reports if isinstance(each, StockFirmwareTelemetryReport)]
    elements = [one for payload in payloads for one in (payload if isinstance(payload, list) else [payload])]
    return [reading for one in elements for reading in one["m"].items()]


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list):
        for number, each in enumerate(value, 1):
            yield from leaves(each, (*path, str(number)))
    else:
        yield path, value


def values_of(payload: str) -> list[tuple[tuple[str, ...], Any]]:
    """Of a word or number: its only value."""
    try:
        document = json.loads(payload)
    except ValueError:
        document = payload
    return list(leaves(document))


def is_ignored(module: ModuleType, path: tuple[str, ...]) -> bool:
    """Whether the profile lists it: by a name at any depth, or by the last parts of its path."""
    ignored = getattr(module, "IGNORED", {})
    tails = {".".join(path[start:stop]) for start in range(len(path)) for stop in range(start + 1, len(path) + 1)}
    return bool(tails & set(ignored)) or any(f"*.{name}" in ignored for name in path)


def says_it(value: Any, said: list[Any]) -> bool:
    word = WORDS.get(str(value).lower())
    return any(value == each or str(value) == str(each) or (word is not None and each is word) for each in said)


def is_accounted_for(module: ModuleType, path: tuple[str, ...], value: Any, reports: list[DeviceReport]) -> bool:
    drops = [each for each in reports if isinstance(each, UnreadableMessage)]
    named = [value for name, value in readings(reports) if not path or path[-1].lower() in name.lower().split(".")]
    named += [value for name, value in readings(reports) if path and path[-1].lower().replace("_", "") == name.lower()]
    if value is None or (path and path[-1] in ADDRESSING) or says_it(value, named) or is_ignored(module, path):
        return True
    if any(drop.metric is None or not path or drop.metric.split(".")[-1] == path[-1] for drop in drops):
        return True
    is_state_name = not path or path[-1] in ("POWER", "POWER1", "output")
    return is_state_name and any(isinstance(each, STATES) for each in reports)


@pytest.mark.parametrize(("profile", "topic", "payload"), MESSAGES)
def test_each_value_of_a_documented_message_is_kept_or_told_or_ignored_by_name(
    profile: FirmwareProfile, topic: str, payload: str
) -> None:
    module = PROFILES[profile][0]
    reports = decode(profile, topic, payload)
    if topic in module.IGNORED_TOPICS:
        assert reports == []
        return
    lost = [
        (path, value)
        for path, value in values_of(payload)
        if not is_accounted_for(module, path, value, reports) and value not in ("nan", "inf")
    ]
    assert lost == [], reports
    for drop in reports:
        if isinstance(drop, UnreadableMessage):
            assert drop.topic == topic
            assert drop.code in EXPLANATIONS


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_ignored_is_documented(profile: FirmwareProfile) -> None:
    """The list of each profile is that of the reference."""
    text = (Path(__file__).parents[3] / "docs/reference/devices.md").read_text()
    module = PROFILES[profile][0]
    names = {name.removeprefix("*.") for name in (*getattr(module, "IGNORED", {}), *module.IGNORED_TOPICS)}
    documented = {"Timer1", *(f"Timer{number}" for number in range(2, 11))}
    assert [name for name in sorted(names - documented) if f"`{name}`" not in text] == []


EXPECTED: list[tuple[FirmwareProfile, str, dict[str, Any]]] = [
    (FirmwareProfile.TASMOTA, "second relay", {"power2": True}),
    (FirmwareProfile.TASMOTA, "eighth relay, StateText in small letters", {"power8": False}),
    (FirmwareProfile.TASMOTA, "second relay, StateText of one's own", {"power2": "offen"}),
    (FirmwareProfile.TASMOTA, "button, SetOption73", {"Button1.Action": "DOUBLE"}),
    (
        FirmwareProfile.TASMOTA,
        "energy of three phases",
        {f"ENERGY.Power.{phase}": watts for phase, watts in ((1, 12), (2, 0), (3, 7))},
    ),
    (FirmwareProfile.TASMOTA, "status of the state", {"Dimmer": 10, "UptimeSec": 10}),
    (FirmwareProfile.TASMOTA, "rule", {"WATER": 12.5}),
    (FirmwareProfile.SHELLY, "switch", {"apower": 18.4, "aenergy.by_minute.2": 12.1, "errors.1": "overtemp"}),
    (FirmwareProfile.SHELLY, "fourth switch", {"switch3.output": True, "switch3.apower": 18.4}),
    (FirmwareProfile.SHELLY, "three phases", {"em0.total_act_power": 2484.782, "em0.a_errors.1": "power_meter_failure"}),
    (FirmwareProfile.SHELLY, "smoke", {"smoke0.alarm": True}),
    (FirmwareProfile.SHELLY, "battery", {"devicepower0.battery.percent": 96}),
    (FirmwareProfile.SHELLY, "colour", {"rgb0.rgb.1": 255, "rgb0.rgb.3": 0}),
    (FirmwareProfile.SHELLY, "wifi", {"wifi.rssi": -53, "wifi.status": "got ip"}),
    (FirmwareProfile.SHELLY, "notification", {"em0.total_act_power": 2484.7, "temperature0.tC": 21.5}),
    (FirmwareProfile.SHELLY, "event of the system", {"sys.event": "ota_progress", "sys.progress_percent": 35}),
    (FirmwareProfile.ESPHOME, "another switch", {"switch.pump_2": False}),
    (FirmwareProfile.ESPHOME, "sensor", {"room_temperature": 20.75}),
    (FirmwareProfile.ESPHOME, "text sensor", {"firmware": "2026.6"}),
    (FirmwareProfile.ESPHOME, "select", {"select.mode": "3"}),
    (FirmwareProfile.ESPHOME, "light", {"light.lamp.state": "ON", "light.lamp.color.g": 128}),
    (FirmwareProfile.ESPHOME, "fan, speed", {"fan.ceiling.speed_level": 3}),
    (FirmwareProfile.ESPHOME, "event", {"event.doorbell.event_type": "double_press"}),
]


@pytest.mark.parametrize(("profile", "message", "metrics"), EXPECTED)
def test_a_reading_is_named_after_its_component_and_field(
    profile: FirmwareProfile, message: str, metrics: dict[str, Any]
) -> None:
    found = dict(readings(decode(profile, *PROFILES[profile][1][message])))
    assert {name: found.get(name) for name in metrics} == metrics


def test_each_press_of_a_shelly_button_is_an_event_of_its_own() -> None:
    found = readings(decode(FirmwareProfile.SHELLY, *SHELLY["event"]))
    assert found == [("input0.event", "btn_down"), ("input0", "SINGLE"), ("input0", "NONE"), ("input0.event", "single_push")]


@pytest.mark.parametrize("word", ["ON", "On", "on", "1"])
def test_the_words_of_a_tasmota_relay_count_in_any_case(word: str) -> None:
    assert decode(FirmwareProfile.TASMOTA, "stat/POWER", word) == [RelayReport(True)]


def test_a_word_that_nobody_knows_is_told_with_its_metric() -> None:
    [drop] = decode(FirmwareProfile.TASMOTA, "stat/POWER1", "an")
    assert isinstance(drop, UnreadableMessage)
    assert (drop.code, drop.topic, drop.metric) == ("MALFORMED", "stat/POWER1", "POWER1")


@pytest.mark.parametrize(
    ("document", "code", "metric"),
    [
        ({"a": "x" * 257}, "BAD_VALUE", "a"),
        ({"a" * 65: 1}, "BAD_METRIC_NAME", "a" * 64),
        ({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}}}, "TOO_DEEP", "a.b.c.d.e.f.g"),
        ({f"m{number}": number for number in range(130)}, "TOO_MANY_METRICS", "m128"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_metric(document: dict[str, Any], code: str, metric: str) -> None:
    reports = decode(FirmwareProfile.TASMOTA, "tele/SENSOR", json.dumps(document))
    [drop] = [each for each in reports if isinstance(each, UnreadableMessage)]
    assert (drop.code, drop.topic, drop.metric) == (code, "tele/SENSOR", metric)
    assert drop.count + len(readings(reports)) == len(list(leaves(document)))


def test_a_boot_tells_the_version() -> None:
    reports = decode(FirmwareProfile.TASMOTA, *TASMOTA["boot 1"])
    assert HelloReport("15.1.0(release-tasmota)", None) in reports
