"""The fleet as a file, with the real command line against the running program: fifty devices in few calls, what a plan shows, what
a kill leaves, what a pipeline's credential may, and where errors are."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command_line import command_output
from support.service import ApiClient, Service, environment
from support.startup_code import write_startup_code
from support.waiting import TIMEOUT_S

DEVICES = 50
HEAD = """
# What our greenhouse has
version: 1
projects:
  - name: Default project
  - name: Greenhouse
deviceTypes:
  - name: Pump
    commands:
      - {name: SET_LEVEL, label: Level, paramsSchema: {type: integer}, requiresApproval: true}
apiKeys:
  - name: nightly
groups:
  - name: Pumps
    project: Greenhouse
    devices: [pump-001, pump-002]
grants:
  - {apiKey: nightly, group: Pumps, project: Greenhouse, commands: [ON, OFF]}
  - {apiKey: nightly, device: pump-001, commands: [BLINK], expiresAt: 2038-01-01T00:00:00Z}
webhooks:
  - {apiKey: nightly, url: "http://127.0.0.1:9/hook"}
devices:
"""
DEVICE = """
  - externalId: pump-{number:03}
    name: Pump {number}
    boardType: ESP32
    appType: PUMP
    project: Greenhouse
    deviceType: Pump
    commands:
      - {{name: BLINK, label: Blink}}
    schedules:
      - {{slot: 0, onTs: 1893456000, offTs: 1893456600, rrule: FREQ=DAILY, timezone: Europe/Berlin, onCommand: {{command: ON}}}}
"""
FLEET = HEAD + "".join(DEVICE.format(number=number) for number in range(1, DEVICES + 1))
OBJECTS = 1 + 1 + 1 + 1 + 2 + 1 + 3 * DEVICES
ALL = ["api-keys", "device-types", "devices", "commands", "grants", "groups", "projects", "rules", "schedules", "webhooks"]


class CommandLine:
    def __init__(self, service: Service, folder: Path, token: str) -> None:
        self.service, self.folder, self.token = service, folder, token

    async def run(self, *arguments: str, code: int = 0, **more: str) -> str:
        """What it prints on both channels, with the exit code checked. `more`: variables of the environment."""
        variables = environment(LATCHBOARD_URL=self.service.url, LATCHBOARD_TOKEN=self.token) | more
        ended, output = await command_output(*arguments, folder=self.folder, env=variables)
        assert ended == code, output
        return output

    def write(self, text: str, name: str = "fleet.yaml") -> None:
        (self.folder / name).write_text(text)


async def test_the_url_of_a_webhook_is_in_no_file_and_on_no_screen(cli: CommandLine, owner: ApiClient, tmp_path: Path) -> None:
    """It often holds a token."""
    key = await owner.post("/keys", {"name": "nightly"}, expect=201)
    for path in ("B000/XXtokenXX", "B000/XXotherXX"):
        await owner.post("/webhooks", {"keyId": key["keyId"], "url": f"http://127.0.0.1:9/{path}"}, expect=201)
    said = await cli.run("export", "exported.yaml")
    written = (tmp_path / "exported.yaml").read_text()
    assert "XX" not in said + written
    assert "url: ${WEBHOOK_127_0_0_1_2}" in written
    missing = await cli.run("plan", "exported.yaml", code=2)
    assert "exported.yaml:" in missing
    assert "the variable WEBHOOK_127_0_0_1 is not set" in missing
    await cli.run("export", "exported.yaml", "--force", "--variables", "urls.env")
    assert stat.S_IMODE((tmp_path / "urls.env").stat().st_mode) == 0o600
    urls = dict(line.split("=", 1) for line in (tmp_path / "urls.env").read_text().splitlines())
    assert (await cli.run("plan", "exported.yaml", "--prune", "--check", **urls)).startswith("0 to create, 0 to change, 0 to del")
    moved = urls | {"WEBHOOK_127_0_0_1": "http://127.0.0.1:9/B000/XXmovedXX"}
    planned = await cli.run("plan", "exported.yaml", **moved)
    assert "+ webhooks nightly / ${WEBHOOK_127_0_0_1}" in planned
    assert "XX" not in planned


async def pipeline(owner: ApiClient, *operations: str, role: str = "Admin") -> str:
    wanted = [f"{each}:write" for each in ALL] if not operations else list(operations)
    body = {"name": "pipeline", "role": role, "operations": wanted, "expiresAt": "2027-06-01T00:00:00Z"}
    return str((await owner.post("/service-sessions", body, expect=201))["token"])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Service]:
    """Each test has an account of its own."""
    with Service(tmp_path / "service") as service:
        yield service


@pytest.fixture
async def cli(service: Service, owner: ApiClient, tmp_path: Path) -> CommandLine:
    default = next(each for each in await owner.get("/projects") if each["deviceCount"] == 0)
    await owner.patch(f"/projects/{default['projectId']}", {"name": "Default project"})
    return CommandLine(service, tmp_path, await pipeline(owner))


async def calls(owner: ApiClient) -> float:
    """How many requests of the API the service has answered."""
    text = (await owner.raw.get(str(owner.raw.base_url.join("/metrics")))).text
    lines = [line for line in text.splitlines() if line.startswith("latchboard_http_requests_total{") and "/api/v1/" in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def secrets(folder: Path, name: str = "secrets.jsonl") -> list[Any]:
    file = folder / name
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_fifty_devices_in_two_calls_then_a_round_trip(cli: CommandLine, owner: ApiClient, tmp_path: Path) -> None:
    cli.write(FLEET)
    planned = await cli.run("plan", "fleet.yaml")
    assert "+ devices pump-050\n" in planned
    assert "+ schedules pump-001 / 0\n" in planned
    assert planned.endswith(f"{OBJECTS} to create, 0 to change, 0 to delete, 1 unchanged.\n")
    assert await owner.get("/devices") == []

    refused = await cli.run("apply", "fleet.yaml", code=2)
    assert "--secrets FILE" in refused
    before = await calls(owner)
    applied = await cli.run("apply", "fleet.yaml", "--secrets", "secrets.jsonl")
    assert await calls(owner) - before == 2, "a plan and an apply"
    assert applied.endswith(f"{OBJECTS} created, 0 changed, 0 deleted, 1 unchanged.\n")
    shown = secrets(tmp_path)
    assert [each["section"] for each in shown].count("devices") == DEVICES
    assert not any(each["credentials"]["mqttPassword"] in applied for each in shown if "credentials" in each)
    [key] = [each["secret"] for each in shown if each["section"] == "apiKeys"]
    assert {each["externalId"] for each in await owner.get("/devices")} == {f"pump-{n:03}" for n in range(1, DEVICES + 1)}
    seen = await owner.raw.get("/devices", headers={"X-Api-Key": key})
    assert {each["externalId"] for each in seen.json()} == {"pump-001", "pump-002"}

    assert (await cli.run("apply", "fleet.yaml", "--secrets", "secrets.jsonl")).startswith("0 created, 0 changed, 0 deleted")
    assert len(secrets(tmp_path)) == len(shown)
    await cli.run("export", "exported.yaml")
    planned = await cli.run("plan", "exported.yaml", "--prune", "--check", WEBHOOK_127_0_0_1="http://127.0.0.1:9/hook")
    assert planned.startswith("0 to create, 0 to change, 0 to delete")
    one_project = await cli.run("export", "--project", "Greenhouse")
    cli.write(one_project, "greenhouse.yaml")
    assert (await cli.run("plan", "greenhouse.yaml", "--prune", "--check")).startswith("0 to create, 0 to change, 0 to delete")
    assert "exists" in await cli.run("export", "exported.yaml", code=2)


async def test_a_plan_shows_each_changed_field_and_prune_alone_deletes(
    cli: CommandLine, owner: ApiClient, tmp_path: Path
) -> None:
    small = HEAD + "".join(DEVICE.format(number=number) for number in (1, 2, 3))
    cli.write(small)
    await cli.run("apply", "fleet.yaml", "--secrets", "secrets.jsonl")
    changed = small.replace("name: Pump 2", "name: Second pump").replace("commands: [ON, OFF]", "commands: [ON]")
    changed = changed.replace("devices: [pump-001, pump-002]", "devices: [pump-002]").replace(
        "  - name: nightly\n", "  - name: nightly\n    enabled: false\n"
    )
    changed = changed[: changed.index("  - externalId: pump-003")]
    cli.write(changed)
    shown = await cli.run("plan", "fleet.yaml", "--check", code=1)
    assert '~ devices pump-002\n    name: "Pump 2" → "Second pump"\n' in shown
    assert '~ groups Greenhouse / Pumps\n    devices: ["pump-001", "pump-002"] → ["pump-002"]\n' in shown
    assert '    commands: ["ON", "OFF"] → ["ON"]\n' in shown
    assert "~ apiKeys nightly\n    enabled: true → false\n" in shown
    assert shown.endswith("0 to create, 4 to change, 0 to delete, 10 unchanged.\n")
    assert (await cli.run("plan", "fleet.yaml", "--prune")).endswith("0 to create, 4 to change, 1 to delete, 10 unchanged.\n")

    assert "- devices pump-003\n" in await cli.run("apply", "fleet.yaml", "--prune")
    assert [each["name"] for each in await owner.get("/devices")] == ["Pump 1", "Second pump"]
    emptied = {
        "version": 1,
        "projects": [{"name": "Default project"}],
        "devices": [],
        "deviceTypes": [],
        "apiKeys": [],
        "grants": [],
        "groups": [],
    }
    cli.write(json.dumps(emptied | {"webhooks": []}), "empty.json")
    gone = await cli.run("apply", "empty.json", "--prune")
    assert "- projects Greenhouse\n" in gone
    assert await owner.get("/devices") == []
    assert await owner.get("/keys") == []
    assert [each["name"] for each in await owner.get("/projects")] == ["Default project"]


async def test_where_an_error_is_and_that_nothing_was_changed(cli: CommandLine, owner: ApiClient) -> None:
    two = HEAD + DEVICE.format(number=1) + DEVICE.format(number=2)

    async def refused(text: str, *words: str, code: int = 1) -> None:
        cli.write(text)
        shown = await cli.run("plan", "fleet.yaml", code=code)
        assert [word for word in words if word not in shown] == [], shown
        assert await cli.run("apply", "fleet.yaml", "--secrets", "secrets.jsonl", code=code) == shown

    line = two[: two.index("  - externalId: pump-002")].count("\n") + 1
    await refused(two.replace("pump-002\n", "pump-001\n"), f"fleet.yaml:{line}", "devices[1]", "twice")
    await refused(two.replace("    deviceType: Pump\n", "    devicetype: Pump\n"), "devices[0].devicetype", "not a known field")
    await refused(two.replace("slot: 0", "slot: 9"), "devices[0].schedules[0].slot")
    await refused(two.replace("rrule: FREQ=DAILY", "rrule: FREQ=NEVER"), "devices[0].schedules[0].rrule")
    await refused(two.replace("command: ON", "command: SING"), "devices[0].schedules[0].onCommand.command")
    await refused(two.replace("apiKey: nightly, group", "apiKey: daily, group"), "grants[0].apiKey", "daily")
    await refused(two.replace("[pump-001, pump-002]", "[pump-001, pump-009]"), "groups[0].devices[1]", "pump-009")
    await refused(two.replace("deviceType: Pump\n", "deviceType: Fan\n"), "devices[0].deviceType", "Fan")
    await refused(
        two.replace("  - name: nightly", "  - name: nightly\n    name: twice"), "fleet.yaml:13", "'name' is there twice", code=2
    )
    await refused("devices: [", "fleet.yaml:1", "not YAML", code=2)
    await refused("- just a list", "sections", code=2)
    assert await owner.get("/devices") == []
    assert await owner.get("/keys") == []


async def test_a_pipeline_may_only_what_its_role_and_operations_allow(
    service: Service, cli: CommandLine, owner: ApiClient, tmp_path: Path
) -> None:
    cli.write(HEAD + DEVICE.format(number=1) + DEVICE.format(number=2))
    await cli.run("apply", "fleet.yaml", "--secrets", "secrets.jsonl")
    cli.write(
        "devices:" + DEVICE.format(number=3).replace("    deviceType: Pump\n", "").replace("    project: Greenhouse\n", ""),
        "one.yaml",
    )
    cli.write("apiKeys:\n  - name: another\n", "keys.yaml")

    devices_only = CommandLine(service, tmp_path, await pipeline(owner, "devices:write", "commands:write", "schedules:read"))
    refused = await devices_only.run("apply", "one.yaml", code=1)
    assert "one.yaml:9: devices[0].schedules[0]" in refused
    assert "not allowed schedules:write" in refused
    assert "not allowed api-keys:read" in await devices_only.run("plan", "keys.yaml", code=1)
    exported = await devices_only.run("export")
    assert "left out" in exported
    assert "apiKeys" not in exported.partition("version")[2]
    assert "pump-001" in exported

    viewer = CommandLine(service, tmp_path, await pipeline(owner, *(f"{each}:write" for each in ALL), role="Viewer"))
    assert "needs the role Member" in await viewer.run("apply", "one.yaml", code=1)
    member = CommandLine(service, tmp_path, await pipeline(owner, *(f"{each}:write" for each in ALL), role="Member"))
    assert "needs the role Admin" in await member.run("apply", "keys.yaml", "--secrets", "secrets.jsonl", code=1)
    wrong = CommandLine(service, tmp_path, "lbs_" + "x" * 40)
    assert "UNAUTHENTICATED" in await wrong.run("plan", "one.yaml", code=1)
    assert {each["externalId"] for each in await owner.get("/devices")} == {"pump-001", "pump-002"}


KILLS = """
import os
from pathlib import Path
from domain.devices import service
from domain.fleet_file.service import FleetFileService

HERE = Path(__file__).parent
register, finish, made = service.add_device, FleetFileService._finish_after_commit, []

def kill_once(word):
    if (HERE / word).exists():
        (HERE / word).unlink()
        os.kill(os.getpid(), 9)

async def add_device(*arguments):
    made.append(1)
    if len(made) > 30:
        kill_once("in-the-middle")
    return await register(*arguments)

async def finished(*arguments):
    kill_once("after-the-commit")
    await finish(*arguments)

service.add_device, FleetFileService._finish_after_commit = add_device, finished
"""


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[Service]:
    write_startup_code(tmp_path / "before", KILLS)
    with Service(tmp_path / "service", tmp_path / "before") as service:
        yield service


async def restart_when_killed(service: Service) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while service.is_running:
            await asyncio.sleep(0.01)
    await asyncio.to_thread(service.start)


async def test_a_kill_in_the_middle_of_an_apply_leaves_nothing_and_the_command_ends_it(killable: Service, tmp_path: Path) -> None:
    async with killable.api() as owner:
        default = next(iter(await owner.get("/projects")))
        await owner.patch(f"/projects/{default['projectId']}", {"name": "Default project"})
        cli = CommandLine(killable, tmp_path, await pipeline(owner))
        cli.write(FLEET)
        (tmp_path / "before" / "in-the-middle").touch()
        restarted = asyncio.create_task(restart_when_killed(killable))
        applied = await cli.run("apply", "fleet.yaml", "--secrets", "secrets.jsonl")
        await restarted
    assert applied.endswith(f"{OBJECTS} created, 0 changed, 0 deleted, 1 unchanged.\n")
    async with killable.api() as owner:
        assert len(await owner.get("/devices")) == DEVICES
        assert len(await owner.get("/keys")) == 1
        assert [each["section"] for each in secrets(tmp_path)].count("devices") == DEVICES

        cli.write(FLEET.replace("- name: nightly", "- name: nightly\n  - name: daily"))
        (tmp_path / "before" / "after-the-commit").touch()
        restarted = asyncio.create_task(restart_when_killed(killable))
        lost = await cli.run("apply", "fleet.yaml", "--secrets", "secrets.jsonl", code=1)
        await restarted
        assert "was applied" in lost
    async with killable.api() as owner:
        assert sorted(each["name"] for each in await owner.get("/keys")) == ["daily", "nightly"]
        assert (await cli.run("plan", "fleet.yaml")).startswith("0 to create, 0 to change, 0 to delete")
