"""Takes the pictures of the documents from the running program, so that they do not age: `make pictures`.

A service with simulated devices is furnished through its API, and Chromium takes the pages at 1440 and 390 pixels.
"""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from support.browser import DESKTOP, PHONE, open_browser
from support.device import create_device
from support.service import ApiClient, Service

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"
FLEET = {
    "Greenhouse pump": ("PUMP", "Greenhouse 2"),
    "Greenhouse fan": ("FAN", "Greenhouse 2"),
    "Yard light": ("LIGHT", "Yard"),
    "Boiler": ("HVAC", "Cellar"),
    "North gate": ("GATE", "North entrance"),
    "Fountain": ("IRRIGATION", "Court"),
}
SWITCHED_ON = ("Greenhouse pump", "Yard light")
DAY_MIN, STEP_MIN = 1440, 10


def _reading(number: int, minutes_ago: int) -> dict[str, Any]:
    """A reading of the last day: warm in the afternoon, moist at night."""
    hour = (24 - minutes_ago / 60 + number) % 24
    warmth = math.sin((hour - 9) / 24 * 2 * math.pi) + 0.15 * math.sin(minutes_ago / 7 + number)
    at_ms = int((time.time() - minutes_ago * 60) * 1000)
    return {"ts": at_ms, "m": {"temperature": round(21 + 5 * warmth, 1), "humidity": round(60 - 14 * warmth, 1)}, "u": UNITS}


UNITS = {"temperature": "celsius", "humidity": "percent"}


async def furnish(service: Service, owner: ApiClient) -> dict[str, Any]:
    devices = {}
    for number, (name, (kind, place)) in enumerate(FLEET.items()):
        device = devices[name] = await create_device(owner, name)
        await owner.call("PUT", device.path, {"appType": kind, "location": place}, 200)
        async with device.online(service) as line:
            await line.publish("telemetry", [_reading(number, minute) for minute in range(DAY_MIN, -1, -STEP_MIN)])
            await line.press_button(name in SWITCHED_ON)
    pump, gate = devices["Greenhouse pump"], devices["North gate"]
    conditions = [
        {"metric": "humidity", "comparator": "<", "value": 55},
        {"metric": "temperature", "comparator": ">", "value": 24},
    ]
    rule = {"name": "Dry and warm: water", "conditions": conditions, "action": {"command": "ON"}, "cooldownSeconds": 1800}
    await owner.post(f"{pump.path}/rules", rule, expect=201)
    day = {"rrule": "FREQ=DAILY", "timezone": "Europe/Berlin", "label": "Evening watering"}
    first = int(time.time() // 86_400 + 1) * 86_400 + 17 * 3600
    await owner.post(f"{pump.path}/schedules", {"slot": 0, "onTs": first, "offTs": first + 3600, **day}, expect=201)
    open_gate = {"name": "OPEN", "label": "Open", "requiresApproval": True}
    schema = {"type": "object", "properties": {"seconds": {"type": "integer"}}}
    await owner.post(f"{gate.path}/commands", {**open_gate, "paramsSchema": schema}, expect=201)
    key = await owner.post("/keys", {"name": "Delivery robot"}, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        request = {"cmd": "OPEN", "params": {"seconds": 60}, "reason": "Parcel at the north gate, the driver waits"}
        await robot.post(f"{gate.path}/command", request, expect=202)
    return devices


async def take(service: Service, devices: dict[str, Any]) -> None:
    pump = devices["Greenhouse pump"].device_id
    wanted = {
        DESKTOP: {"dashboard": "devices", "dashboard-device": f"device/{pump}", "dashboard-charts": f"device/{pump}/telemetry"},
        PHONE: {
            "dashboard-phone": "devices",
            "dashboard-phone-device": f"device/{pump}",
            "dashboard-phone-approval": "approvals",
        },
    }
    async with (
        devices["Greenhouse pump"].online(service),
        devices["Yard light"].online(service),
        devices["Boiler"].online(service),
    ):
        for size, pictures in wanted.items():
            async with open_browser(service, size) as browser:
                page = await browser.open_signed_in()
                if size == DESKTOP:
                    await page.goto(f"{service.url}/#/device/{pump}")
                    for text in ("Off", "On"):
                        await page.get_by_role("button", name=f"{text}: Greenhouse pump").click()
                        await expect(page.get_by_text("Done, confirmed by the device").first).to_be_visible()
                for name, place in pictures.items():
                    await page.goto(f"{service.url}/#/{place}")
                    await expect(page.locator("main h1")).to_be_visible()
                    await expect(page.locator(".skeleton")).to_have_count(0)
                    if place.endswith("telemetry"):
                        await expect(page.locator(".u-over").first).to_be_visible()
                    await page.wait_for_load_state("networkidle")
                    await page.screenshot(path=IMAGES / f"{name}.png")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Service(Path(folder)) as service:
        async with service.api() as owner:
            await take(service, await furnish(service, owner))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
