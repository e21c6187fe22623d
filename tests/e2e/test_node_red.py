"""The Node-RED nodes in a real Node-RED runtime against the running program: a command, a refusal, an approval, the feed over a kill."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.device import create_device
from support.node_packages import CLIENTS, build_typescript_client, install, node
from support.service import ApiClient, Service
from support.thoroughness import thorough_run_only

pytestmark = [pytest.mark.thorough, thorough_run_only]

NODE_RED = ("node-red@4", "node-red-node-test-helper@0.3")
FLOW = """
const { log } = console;
console.log = console.error; // Node-RED logs there
const helper = require("node-red-node-test-helper");
helper.init(require.resolve("node-red"));
const [, , url, apiKey, device] = process.argv;
const tell = (what) => log(JSON.stringify(what));
const service = "service";
const onTab = (id, type, config) => ({ id, type, z: "tab", x: 0, y: 0, ...config }); // what has no position is a configuration node
const flow = [
  { id: "tab", type: "tab" },
  { id: service, type: "latchboard-service", url },
  onTab("feed", "latchboard-feed", { service, device, types: "relay_changed, input_changed", initialState: true, wires: [["fed"]] }),
  onTab("switch", "latchboard-command", { service, device, reason: "The soil is dry", timeout: 30, wires: [["switched"]] }),
  onTab("second", "latchboard-command", { service, device, channel: "2", timeout: 30, wires: [["switched"]] }),
  onTab("ask", "latchboard-command", { service, device, cmd: "FLOOD", waitFor: "nothing", wires: [["approval"]] }),
  onTab("approval", "latchboard-approval", { service, wires: [["approved"], ["refused"]] }),
  onTab("errors", "catch", { scope: null, wires: [["caught"]] }),
  ...["fed", "switched", "approved", "refused", "caught"].map((id) => onTab(id, "helper", { wires: [] })),
];
helper.load(require("node-red-contrib-latchboard/nodes/latchboard.js"), flow, { [service]: { apiKey } }, (error) => {
  if (error) throw error;
  const on = (id, what) => helper.getNode(id).on("input", (msg) => tell([id, what(msg)]));
  on("fed", ({ topic, payload }) => payload.relay ?? payload.action ?? topic);
  on("switched", ({ payload, deviceId }) => [payload.status, payload.channel, deviceId === device]);
  on("approval", ({ payload }) => payload.status);
  on("approved", ({ payload }) => [payload.status, payload.note]);
  on("refused", ({ payload }) => [payload.status, payload.note]);
  on("caught", (msg) => [msg.error.source.id, msg.code]);
  tell("loaded");
  require("readline").createInterface({ input: process.stdin }).on("line", async (line) => {
    const [id, msg] = JSON.parse(line);
    if (id !== "end") return helper.getNode(id).receive(msg);
    process.stdin.destroy();
    await helper.unload(); // then nothing is left that keeps the program running
  });
});
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With Node-RED and both packages installed."""
    folder = tmp_path_factory.mktemp("node-red")
    package = build_typescript_client(folder)
    nodes = folder / "nodes"
    shutil.copytree(CLIENTS / "node-red", nodes, ignore=shutil.ignore_patterns("node_modules"))
    home = folder / "home"
    home.mkdir()
    (home / "package.json").write_text("{}")
    install(home, "--install-links", str(package), str(nodes), *NODE_RED)
    (home / "flow.js").write_text(FLOW)
    return home


async def test_a_flow_switches_asks_and_follows(service: Service, owner: ApiClient, folder: Path) -> None:
    pump = await create_device(owner)
    await owner.post(f"{pump.path}/commands", {"name": "FLOOD", "label": "Flood", "requiresApproval": True}, expect=201)
    key = await owner.post("/keys", {"name": "Node-RED"}, expect=201)
    await owner.post(f"{pump.path}/grants", {"apiKeyId": key["keyId"], "commands": ["ON", "FLOOD"]}, expect=201)
    async with node(folder / "flow.js", service.url, key["key"], pump.device_id) as flow:
        assert await flow.next() == "loaded"
        assert await flow.next() == ["fed", "initial_state"]
        async with pump.online(service) as line:
            await line.publish("hello", {"ch": ["RELAY", "RELAY", "INPUT"]})
            await flow.send(["switch", {"payload": True}])
            assert sorted([await flow.next(), await flow.next()]) == [["fed", "ON"], ["switched", ["DONE", 1, True]]]
            await flow.send(["second", {"payload": True}])
            assert await flow.next() == ["switched", ["DONE", 2, True]]
            await flow.send(["switch", {"payload": {"cmd": "ON", "channel": 2}}])
            assert await flow.next() == ["switched", ["DONE", 2, True]]
            await line.publish("state", {"ch": 3, "action": "LONG"})
            assert await flow.next() == ["fed", "LONG"]
            await flow.send(["switch", {"payload": "OFF"}])
            assert await flow.next() == ["caught", ["switch", "COMMAND_NOT_GRANTED"]]
            for decision, told in (
                ("approve", ["approved", ["APPROVED", "as agreed"]]),
                ("deny", ["refused", ["DENIED", "as agreed"]]),
            ):
                await flow.send(["ask", {"reason": "Frost"}])
                [asked] = await owner.wait_until(f"{pump.path}/approvals?status=PENDING", len)
                assert asked["reason"] == "Frost"
                assert await flow.next() == ["approval", "PENDING"]
                await owner.post(f"{pump.path}/approvals/{asked['approvalId']}/{decision}", {"note": "as agreed"})
                assert await flow.next() == told
        await service.kill_and_restart()
        async with pump.online(service) as line:
            await line.press_button(False)
        assert sorted([await flow.next(), await flow.next()]) == [["fed", "OFF"], ["fed", "initial_state"]]
        await flow.send(["ask", {}])
        assert await flow.next() == ["approval", "PENDING"]
        await flow.send(["switch", {"payload": True}])  # the device is away
        await owner.wait_until(f"{pump.path}/executions", lambda page: page["data"][0]["status"] == "QUEUED")
        await flow.send(["end"])
