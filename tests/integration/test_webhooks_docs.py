"""The verification code in docs/reference/webhooks.md, run as it stands there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from support.webhook_receiver import ReceivedRequest, respond, webhook_receiver
from support.webhook_world import WebhookWorld

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "webhooks.md"
NODE = """
const { secret, body, headers } = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
console.log(verify(secret, Buffer.from(body), headers));
"""
GO = """package main

import ("encoding/json"; "fmt"; "os")

func main() {
	var in struct { Secret string; Body string; Headers map[string]string }
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil { panic(err) }
	fmt.Println(verify(in.Secret, []byte(in.Body), in.Headers["x-service-signature"]))
}
"""


def code(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
async def delivery() -> tuple[str, ReceivedRequest]:
    """A secret and a delivery as the service really sends it."""
    world = await WebhookWorld().populate()
    device = await world.device()
    async with webhook_receiver(respond()) as receiver, world.delivering():
        made = await world.webhook(receiver.url, device)
        async with world.uow.write() as tx:
            tx.emit(world.domain_event("relay_changed", device.device_id, relay="ON", note="Küche"))
        [got] = await receiver.wait_for(1)
    return made.secret, got


async def test_the_python_code_accepts_a_delivery_and_nothing_else(delivery: tuple[str, ReceivedRequest]) -> None:
    secret, got = delivery
    names: dict[str, Any] = {}
    exec(code("python"), names)
    assert names["verify"](secret, got.body, got.headers)
    assert not names["verify"](secret, got.body + b" ", got.headers)
    assert not names["verify"]("whsec_other", got.body, got.headers)
    assert not names["verify"](secret, got.body, {})


async def test_the_standard_webhooks_code_accepts_a_delivery_and_nothing_else(delivery: tuple[str, ReceivedRequest]) -> None:
    secret, got = delivery
    names: dict[str, Any] = {}
    exec(code("python standard"), names)
    assert names["verify_standard"](secret, got.body, got.headers) == got.envelope
    with pytest.raises(WebhookVerificationError):
        names["verify_standard"](secret, got.body.replace(b"ON", b"NO"), got.headers)


@pytest.mark.parametrize("tool", ["node", "go"])
async def test_the_code_for_other_languages_accepts_a_delivery_and_nothing_else(
    delivery: tuple[str, ReceivedRequest], tool: str, tmp_path: Path
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    if tool == "node":
        (tmp_path / "verify.js").write_text(code("javascript") + NODE)
        command = ["node", "verify.js"]
    else:
        (tmp_path / "verify.go").write_text(code("go"))
        (tmp_path / "main.go").write_text(GO)
        (tmp_path / "go.mod").write_text("module verify\n\ngo 1.21\n")
        subprocess.run(["go", "build", "-o", "verify"], check=True, cwd=tmp_path, timeout=120)
        command = [str(tmp_path / "verify")]
    secret, got = delivery
    for body, expected in [(got.body, "true"), (got.body + b" ", "false")]:
        given = json.dumps({"secret": secret, "body": body.decode(), "headers": got.headers})
        reply = subprocess.run(command, input=given, capture_output=True, text=True, cwd=tmp_path, timeout=120)
        assert reply.stdout.strip() == expected, reply.stderr
