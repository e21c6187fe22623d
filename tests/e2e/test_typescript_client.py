"""The TypeScript client against the running program in Node.js: types, commands, approvals, errors, the feed
over kills, and a real webhook delivery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.device import Device, create_device
from support.node_packages import build_typescript_client, node, run
from support.service import ApiClient, Service
from support.thoroughness import thorough_run_only
from support.webhook_receiver import respond, webhook_receiver

pytestmark = [pytest.mark.thorough, thorough_run_only]

START = """
import { ApiError, ApprovalRefusedError, Latchboard, VerificationError, verifyWebhook } from "../clients/typescript/dist/index.js";
declare const process: { argv: string[]; exit(code: number): never };
const [, , url = "", apiKey = "", deviceId = "", extra = ""] = process.argv;
const latchboard = new Latchboard(url, { apiKey, longestWaitSeconds: 1 });
const tell = (what: unknown) => console.log(JSON.stringify(what));
"""
COMMANDS = """
const done = await latchboard.runCommand(deviceId, { cmd: "ON", reason: "The soil is dry" });
const [device] = await latchboard.get("/api/v1/devices");
tell([done.status, done.source satisfies string, device?.relayState]);
const moved = await latchboard.runCommand(deviceId, { cmd: "SET_POSITION", channel: 2, params: { position: 40 } });
tell([moved.status, moved.channel satisfies number]);
const refusals = [
  () => latchboard.runCommand(deviceId, { cmd: "OFF" }),
  () => latchboard.get("/api/v1/devices/{deviceId}", { path: { deviceId: "dev_0/../0" } }),
  () => latchboard.post("/api/v1/devices/{deviceId}/command", { path: { deviceId }, body: { cmd: "ON", waitSeconds: 99 } }),
  () => new Latchboard(url, { apiKey: "sk_live_wrong" }).get("/api/v1/devices", { query: { limit: 1 } }),
  () => new Latchboard("http://127.0.0.1:1", { attempts: 1 }).get("/api/v1/catalog/boards"),
];
for (const refusal of refusals) {
  try {
    await refusal();
    tell("no error");
  } catch (error) {
    tell(error instanceof ApiError ? [error.status, error.code, error.message.includes("waitSeconds")] : (error as Error).name);
  }
}
// What the compiler refuses:
// @ts-expect-error a path that does not exist
void (() => latchboard.get("/api/v1/nothing"));
// @ts-expect-error a missing path parameter
void (() => latchboard.get("/api/v1/devices/{deviceId}"));
// @ts-expect-error a misspelt field
void (() => latchboard.post("/api/v1/keys", { body: { nam: "Robot" } }));
// @ts-expect-error a field that the response does not have
void (async () => (await latchboard.post("/api/v1/keys", { body: { name: "Robot" } })).secret);
"""
APPROVALS = """
for (const _ of [1, 2]) {
  try {
    tell((await latchboard.runCommand(deviceId, { cmd: "FLOOD", reason: "Frost" }, { timeoutSeconds: 60 })).status);
  } catch (error) {
    if (!(error instanceof ApprovalRefusedError)) throw error;
    tell([error.status, error.note]);
  }
}
"""
FEED = """
const feed = latchboard.feed({ types: ["relay_changed", "state_changed", "input_changed"], deviceId, ...(extra ? { cursor: extra } : {}) });
const words: string[] = [];
for await (const event of feed) {
  if (event.type === "initial_state") words.push(...(event.devices[0]?.channels ?? []).map(({ kind, name }) => `${kind} ${name}`));
  if (event.type === "state_changed") words.push(`${event.channel} ${JSON.stringify(event.state)}`);
  else if (event.type === "input_changed") words.push(`${event.channel} ${event.name} ${event.action}`);
  else tell(event.type === "relay_changed" ? event.relay : event.type);
  if (event.type === "relay_changed" && event.relay === "OFF") break;
}
tell(feed.cursor);
tell(words);
"""
FEED_END = """
try {
  for await (const event of latchboard.feed()) tell(event.type);
} catch (error) {
  tell([(error as ApiError).status, (error as ApiError).code]);
}
"""
WEBHOOK = """
const { secret, body, headers, forged } = JSON.parse(extra);
const delivery = await verifyWebhook(secret, body, headers);
const { event } = delivery;
tell([event.type, event.type === "relay_changed" ? event.relay : null, event.deviceId === deviceId]);
for (const one of forged) {
  try {
    await verifyWebhook(one.secret, one.body, one.headers);
    tell("no error");
  } catch (error) {
    tell(error instanceof VerificationError);
  }
}
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_typescript_client(tmp_path_factory.mktemp("package"))


def compiled(package: Path, name: str, source: str) -> Path:
    """A program that uses the package, checked by the compiler."""
    folder = package.parents[1] / "jobs"
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    script = folder / f"{name}.ts"
    script.write_text(START + source)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable"]
    run("node", package / "node_modules" / "typescript" / "bin" / "tsc", *options, script, folder=folder)
    return script.with_suffix(".js")


async def key_for(owner: ApiClient, pump: Device, *commands: str) -> dict[str, Any]:
    made: dict[str, Any] = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{pump.path}/grants", {"apiKeyId": made["keyId"], "commands": commands}, expect=201)
    return made


async def test_a_key_switches_and_is_refused(service: Service, owner: ApiClient, package: Path) -> None:
    pump = await create_device(owner)
    key = await key_for(owner, pump, "ON", "SET_POSITION", "OPEN", "CLOSE")
    script = compiled(package, "commands", COMMANDS)
    async with pump.online(service) as line:
        await line.publish("hello", {"ch": ["RELAY", "COVER"]})
        async with node(script, service.url, key["key"], pump.device_id) as program:
            assert await program.next() == ["DONE", "apikey", True]
            assert await program.next() == ["DONE", 2]
            assert [await program.next() for _ in range(5)] == [
                [403, "COMMAND_NOT_GRANTED", False],
                [404, "NOT_FOUND", False],
                [400, "VALIDATION_ERROR", True],
                [401, "UNAUTHENTICATED", False],
                "TransportError",
            ]


async def test_waiting_for_a_persons_decision(service: Service, owner: ApiClient, package: Path) -> None:
    pump = await create_device(owner)
    await owner.post(f"{pump.path}/commands", {"name": "FLOOD", "label": "Flood", "requiresApproval": True}, expect=201)
    key = await key_for(owner, pump, "FLOOD")
    script = compiled(package, "approvals", APPROVALS)
    async with pump.online(service), node(script, service.url, key["key"], pump.device_id) as program:
        for decision, told in (("approve", "DONE"), ("deny", ["DENIED", "not today"])):
            [asked] = await owner.wait_until(f"{pump.path}/approvals?status=PENDING", len)
            await owner.post(f"{pump.path}/approvals/{asked['approvalId']}/{decision}", {"note": "not today"})
            assert await program.next() == told


async def test_the_feed_goes_on_over_a_kill_and_from_a_stored_cursor(service: Service, owner: ApiClient, package: Path) -> None:
    pump = await create_device(owner)
    key = (await key_for(owner, pump, "*"))["key"]
    script = compiled(package, "feed", FEED)
    async with node(script, service.url, key, pump.device_id) as program:
        assert await program.next() == "initial_state"
        async with pump.online(service) as line:
            await line.press_button(True)
        assert await program.next() == "ON"
        await service.kill_and_restart()
        async with pump.online(service) as line:
            await line.press_button(False)
        told = [await program.next() for _ in range(3)]
        assert await program.next() == []
    *_, cursor = told
    assert told[:2] == ["initial_state", "OFF"], told
    async with pump.online(service) as line:
        await line.publish("hello", {"ch": ["RELAY", "LEVEL", "INPUT"], "names": ["Pump", "Lamp", "Button"]})
        await line.publish("state", {"ch": 2, "level": 40})
        await line.publish("state", {"ch": 3, "action": "DOUBLE"})
        await line.press_button(True)
        await line.press_button(False)
    async with node(script, service.url, key, pump.device_id, cursor) as program:
        assert [await program.next() for _ in range(3)] == ["initial_state", "ON", "OFF"]
        await program.next()
        told = await program.next()
        assert told[:3] == ["RELAY Pump", "LEVEL Lamp", "INPUT Button"]
        assert (json.loads(told[3].removeprefix("2 ")), told[4]) == ({"level": 40, "power": None}, "3 Button DOUBLE")


async def test_a_deleted_key_ends_the_feed_with_an_error(service: Service, owner: ApiClient, package: Path) -> None:
    key = await owner.post("/keys", {"name": "Watcher"}, expect=201)
    async with node(compiled(package, "feed_end", FEED_END), service.url, key["key"]) as program:
        assert await program.next() == "initial_state"
        await owner.delete(f"/keys/{key['keyId']}")
        assert await program.next() == [403, "FEED_CLOSED_4003"]


async def test_a_real_delivery_is_verified(service: Service, owner: ApiClient, package: Path) -> None:
    pump = await create_device(owner)
    key = await key_for(owner, pump, "*")
    async with webhook_receiver(respond()) as receiver:
        wanted = {"keyId": key["keyId"], "url": receiver.url, "types": ["relay_changed"]}
        hook = await owner.post("/webhooks", wanted, expect=201)
        async with pump.online(service) as line:
            await line.press_button(True)
            [request] = await receiver.wait_for(1)
    real = {"secret": hook["secret"], "body": request.body.decode(), "headers": request.headers}
    old = request.headers | {"webhook-timestamp": str(int(request.headers["webhook-timestamp"]) - 301)}
    forged = [
        real | {"body": real["body"].replace('"ON"', '"OFF"')},
        real | {"secret": hook["secret"][:-8] + "AAAAAAA="},
        real | {"headers": old},
        real | {"headers": {}},
    ]
    script = compiled(package, "webhook", WEBHOOK)
    async with node(script, service.url, key["key"], pump.device_id, json.dumps(real | {"forged": forged})) as program:
        assert await program.next() == ["relay_changed", "ON", True]
        assert [await program.next() for _ in forged] == [True] * len(forged)
