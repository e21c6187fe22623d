"""The AsyncAPI document: every topic of the wire contract, every message of the live feed and of webhooks, each with a schema.

`tests/e2e/test_message_documents.py` holds that real messages fit.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from adapters.mqtt.profiles import native
from adapters.mqtt.profiles.native import TOPICS
from domain.devices.messages import OutboundCommand, UnreadableMessage
from domain.devices.model import FirmwareProfile
from domain.events.model import PUBLIC_TYPES
from support.service import environment, program_command

CONTRACT = {
    "status": ("receive", 1, True),
    "state": ("receive", 1, True),
    "telemetry": ("receive", 1, False),
    "cmd": ("send", 1, False),
    "result": ("receive", 1, False),
    "sched": ("send", 1, True),
    "sched/rev": ("receive", 1, True),
    "time/get": ("receive", 0, False),
    "time": ("send", 0, False),
    "hello": ("receive", 1, False),
}
"""Section 6: who sends, from the service's side, QoS, retained."""
FEED_ONLY = {"initial_state", "resync", "authenticated", "pong", "audit"}
VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "payloads.json").read_text())


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """As the command line prints it."""
    folder = tmp_path_factory.mktemp("asyncapi")
    command = [*program_command(), "asyncapi", "--output", "asyncapi.json"]
    subprocess.run(command, env=environment(), cwd=folder, check=True, timeout=60)
    found: dict[str, Any] = json.loads((folder / "asyncapi.json").read_text())
    return found


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(inner)


def resolve(document: dict[str, Any], reference: str) -> Any:
    return reduce(lambda found, name: found[name], reference.removeprefix("#/").split("/"), document)


def check(document: dict[str, Any], payload: dict[str, Any], message: Any) -> list[str]:
    validator = Draft7Validator({"allOf": [payload], "components": document["components"]})
    return [error.message for error in validator.iter_errors(message)]


def channel(document: dict[str, Any], topic: str) -> dict[str, Any]:
    address = f"devices/{{deviceId}}/{topic}"
    return next(one for one in document["channels"].values() if one["address"] == address)


def test_every_reference_leads_somewhere_and_every_schema_is_one(document: dict[str, Any]) -> None:
    assert document["asyncapi"] == "3.0.0"
    for part in parts(document):
        if isinstance(part.get("$ref"), str):
            assert resolve(document, part["$ref"]) is not None
        if "payload" in part:
            Draft7Validator.check_schema(part["payload"])
    for name, schema in document["components"]["schemas"].items():
        Draft7Validator.check_schema(schema)
        nulls = [field for field, one in schema.get("properties", {}).items() if one.get("default", "") is None]
        assert (name, nulls) == (name, [])


def test_every_topic_of_the_contract_is_in_it_and_no_other(document: dict[str, Any]) -> None:
    found: dict[str, tuple[str, int, bool]] = {}
    for operation in document["operations"].values():
        of = resolve(document, operation["channel"]["$ref"])
        if "mqtt" in operation.get("bindings", {}):
            binding = operation["bindings"]["mqtt"]
            found[of["address"].removeprefix("devices/{deviceId}/")] = (operation["action"], binding["qos"], binding["retain"])
            assert of["messages"]
    assert found == CONTRACT


def test_the_topics_are_those_that_native_firmware_is_read_on() -> None:
    for topic in TOPICS:
        [report] = ProfileDispatchingDeviceCodec().decode(FirmwareProfile.NATIVE, topic.name, b"?", False)
        is_read = not (isinstance(report, UnreadableMessage) and report.code == "UNKNOWN_TOPIC")
        assert is_read == (topic.by_device and topic.name != "telemetry"), topic.name  # the engine reads telemetry


def test_every_type_of_the_feed_and_of_webhooks_is_in_it(document: dict[str, Any]) -> None:
    for name, extra in (("feed", FEED_ONLY | {"auth", "ping"}), ("webhook", {"ping"})):
        messages = document["channels"][name]["messages"].values()
        assert {one["name"] for one in messages} == PUBLIC_TYPES | extra
        for one in messages:
            schema = resolve(document, one["payload"]["$ref"])
            assert schema["properties"]["type"]["const"] == one["name"]
    sent = {reference["$ref"].rpartition("/")[2] for reference in document["operations"]["sendFeed"]["messages"]}
    received = {reference["$ref"].rpartition("/")[2] for reference in document["operations"]["receiveFeed"]["messages"]}
    assert sent | received == document["channels"]["feed"]["messages"].keys()
    assert not sent & received


@pytest.mark.parametrize("vector", [one for one in VECTORS if "faults" not in one], ids=lambda one: one["name"])
def test_telemetry_that_is_kept_fits_its_schema(document: dict[str, Any], vector: dict[str, Any]) -> None:
    payload = channel(document, "telemetry")["messages"]["json"]["payload"]
    assert check(document, payload, json.loads(vector["payload"])) == []


@pytest.mark.parametrize("wrong", [None, 7, "on", {"t": None}, {"t": [1]}, {"ts": "now", "m": {}}, {"": 1}])
def test_telemetry_that_is_dropped_does_not(document: dict[str, Any], wrong: Any) -> None:
    payload = channel(document, "telemetry")["messages"]["json"]["payload"]
    assert check(document, payload, wrong) != []


def test_what_the_service_sends_to_devices_fits(document: dict[str, Any]) -> None:
    command = OutboundCommand("exe_1", "SET", {"level": 3}, 1_795_233_602_120)
    messages = [
        *native.encode_command("dev_1", command, 1_795_233_600_000),
        *native.encode_plan("dev_1", 17, [(0, 1_800_000_000, 1_800_003_600, True, 1)], 0),
        native.encode_time(1_795_233_600_000),
    ]
    for message in messages:
        payload = channel(document, message.topic)["messages"]["json"]["payload"]
        assert check(document, payload, json.loads(message.payload)) == []
