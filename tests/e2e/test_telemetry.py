"""Telemetry end to end: devices send over MQTT, the API returns it, and the service is killed in between."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from domain.kernel.clock import from_iso, to_iso
from support.database_probe import rows
from support.device import Device, DeviceConnection, cancel_tasks, create_device
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.transports import DATABASES, database_settings
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

HOUR_MS = 3_600_000
STEPS = (("1h", HOUR_MS), ("4h", 4 * HOUR_MS), ("1d", 24 * HOUR_MS), ("30m", HOUR_MS // 2))


@pytest.fixture(scope="module", params=DATABASES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service"), LATCHBOARD_INGEST_LIMIT=0, **database_settings(request.param)) as service:
        yield service


def expected_buckets(sent: list[tuple[int, float]], step_ms: int) -> list[dict[str, Any]]:
    """The buckets that the API should return, newest first, without the order-dependent last bits of sums."""
    found: dict[int, list[tuple[int, float]]] = {}
    for at_ms, value in sent:
        found.setdefault(at_ms - at_ms % step_ms, []).append((at_ms, value))
    return [
        {"count": len(of), "min": min(v for _, v in of), "max": max(v for _, v in of), "last": max(of)[1]}
        for _, of in sorted(found.items(), reverse=True)
    ]


async def send_past_readings(
    line: DeviceConnection, sent: list[tuple[int, float]], count: int, hours: int, dice: random.Random
) -> None:
    """Send readings of past hours, each with a different time, in one message."""
    now_ms = int(time.time() * 1000)
    taken = {at_ms for at_ms, _ in sent}
    while (at_ms := now_ms - dice.randrange(hours * HOUR_MS)) and count:
        if at_ms not in taken:
            taken.add(at_ms)
            sent.append((at_ms, dice.uniform(-50, 50)))
            count -= 1
    await line.publish("telemetry", [{"ts": at_ms, "m": {"power": value}} for at_ms, value in sent[-40:]])


async def test_downsampled_telemetry_stays_exact_through_late_readings_and_kills(service: Service, owner: ApiClient) -> None:
    meter, dice, sent = await create_device(owner), random.Random(5), []
    for _ in range(usual_or_thorough(2, 4)):
        async with meter.online(service) as line:
            for _ in range(10):
                await send_past_readings(line, sent, 40, 12, dice)
        await asyncio.sleep(dice.random())
        await service.kill_and_restart()
        for step, step_ms in STEPS:
            await assert_buckets_are_exact(owner, meter, sent, step, step_ms)
    over = await wait_for_rollups(service)
    for step, step_ms in STEPS:
        await assert_buckets_are_exact(owner, meter, sent, step, step_ms)
    await delete_readings(service, meter, over)
    for step, step_ms in STEPS[:3]:
        await assert_buckets_are_exact(owner, meter, sent, step, step_ms)


async def assert_buckets_are_exact(
    owner: ApiClient, meter: Device, sent: list[tuple[int, float]], step: str, step_ms: int
) -> None:
    reported = await owner.get(f"{meter.path}/telemetry?metric=power&step={step}&limit=1000")
    assert [{name: one[name] for name in ("count", "min", "max", "last")} for one in reported] == expected_buckets(sent, step_ms)
    assert [one["mean"] for one in reported] == [one["sum"] / one["count"] for one in reported]
    assert sum(one["sum"] for one in reported) == pytest.approx(sum(value for _, value in sent))


async def wait_for_rollups(service: Service) -> int:
    """Wait until every ended hour has its roll-up; returns the hour that has not ended."""
    over = int(time.time() - 121) // 3_600
    async with asyncio.timeout(TIMEOUT_S):
        while await rows(service, f"SELECT 1 FROM rollups_due WHERE hour < {over}"):
            await asyncio.sleep(0.1)
    return over


async def delete_readings(service: Service, meter: Device, over: int) -> None:
    """Delete all readings but those of the last two hours, as retention does, so that only roll-ups remain."""
    before_ms = (over - 1) * HOUR_MS
    of = f"(SELECT device_no FROM devices WHERE device_id = '{meter.device_id}')"
    await rows(service, f"DELETE FROM readings WHERE device_no = {of} AND ts < {before_ms} RETURNING 1")


async def test_a_time_far_ahead_counts_as_the_arrival_and_is_told(service: Service, owner: ApiClient) -> None:
    meter = await create_device(owner)
    now_ms = int(time.time() * 1000)
    far_ahead = (now_ms + 2 * 86_400_000, 99_999_999_999_999)
    async with meter.online(service) as line:
        for value, ts in enumerate(far_ahead):
            await line.publish("telemetry", {"ts": ts, "m": {"t": value}})
    stored = await owner.get(f"{meter.path}/telemetry")
    assert [one["value"] for one in stored] == [1.0, 0.0]
    assert all(abs(from_iso(one["recordedAt"]) - now_ms) < 120_000 for one in stored)
    assert [from_iso(one["reportedAt"]) for one in stored] == list(reversed(far_ahead))


async def test_every_payload_form_unit_and_value_type_is_returned(service: Service, owner: ApiClient) -> None:
    meter = await create_device(owner)
    now_ms = int(time.time() * 1000)
    async with meter.online(service) as line:
        await line.publish("telemetry", {"ts": now_ms - 3, "m": {"t": 21.5, "mode": "eco"}, "u": {"t": "celsius"}})
        await line.publish("telemetry", [{"ts": now_ms - 2, "m": {"t": 22}}, {"ts": now_ms - 1, "m": {"open": True}}])
        await line.publish("telemetry", {"ts": now_ms, "t": -0.5, "u": {"t": "kelvin"}})
        await line.publish("telemetry", b"{not json")
    reported = await owner.get(f"{meter.path}/telemetry")
    assert [(one["metric"], one["value"], one["valueText"], one["unit"]) for one in reported] == [
        ("t", -0.5, None, "kelvin"),
        ("open", 1.0, "true", None),
        ("t", 22.0, None, "kelvin"),
        ("t", 21.5, None, "kelvin"),
        ("mode", None, "eco", None),
    ]
    latest = await owner.get(f"{meter.path}/telemetry/latest")
    assert {one["metric"]: one["value"] for one in latest["telemetry"]} == {"t": -0.5, "open": 1.0, "mode": None}
    assert [one["value"] for one in await owner.get(f"{meter.path}/telemetry?metric=t&since={now_ms - 2}&until={now_ms}")] == [
        22.0
    ]


async def test_a_dashboard_reads_several_devices_in_ascending_order_with_times_in_ms_and_iso(
    service: Service, owner: ApiClient
) -> None:
    start_ms = int(time.time() // 60) * 60_000 - 600_000
    meters = [await create_device(owner, f"Meter {n}") for n in range(2)]
    for n, meter in enumerate(meters):
        async with meter.online(service) as line:
            readings = [{"ts": start_ms + m * 60_000, "m": {"power": n * 100 + m}, "u": {"power": "watt"}} for m in range(4)]
            await line.publish("telemetry", readings)
    ids = ",".join(meter.device_id for meter in meters)
    since, until = to_iso(start_ms + 60_000), start_ms + 240_000

    rows = await owner.get(f"/telemetry/series?deviceId={ids}&metric=power&since={since}&until={until}")
    steps = await owner.get(f"/telemetry/series?deviceId={ids}&since={since}&until={to_iso(until)}&step=120000")
    one = await owner.get(f"{meters[0].path}/telemetry?order=asc&since={since}")
    oldest = await owner.get(f"{meters[0].path}/telemetry?order=asc&limit=1&metric=power,unknown")

    assert [(row["deviceName"], row["value"]) for row in rows] == [(f"Meter {n}", n * 100 + m) for m in (1, 2, 3) for n in (0, 1)]
    assert rows[0] | {"deviceId": "", "deviceName": ""} == {
        "deviceId": "", "deviceName": "", "metric": "power", "unit": "watt", "timestamp": start_ms + 60_000, "time": since,
        "value": 1.0, "valueText": None, "min": None, "max": None, "count": None,
    }  # fmt: skip
    assert sum(row["count"] for row in steps) == 6
    assert [row["timestamp"] for row in steps] == sorted(row["timestamp"] for row in steps)
    assert {row["timestamp"] % 120_000 for row in steps} == {0}
    assert [row["value"] for row in one] == [1.0, 2.0, 3.0]
    assert [row["value"] for row in oldest] == [0.0]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("deviceId=,", "deviceId"),
        ("deviceId=" + ",".join(f"dev_{n:020}" for n in range(21)), "deviceId"),
        ("deviceId=dev_x&since=yesterday", "since"),
        ("deviceId=dev_x&since=2026-11-21T04:00:00", "since"),
        ("deviceId=dev_x&step=999", "step"),
        ("deviceId=dev_x&metric=a,,b", "metric"),
        ("deviceId=dev_x&metric=" + ",".join("abcdefghijklmnopqrstu"), "metric"),
        ("deviceId=dev_x&step=0m", "step"),
    ],
)
async def test_a_wrong_series_query_names_its_field(owner: ApiClient, query: str, field: str) -> None:
    answer = await owner.get(f"/telemetry/series?{query}", expect=400)
    assert [detail["field"] for detail in answer["details"]] == [field]


async def test_a_key_reads_a_series_only_of_devices_that_its_grants_cover(service: Service, owner: ApiClient) -> None:
    seen, hidden = await create_device(owner), await create_device(owner)
    key = await owner.post("/keys", {"name": "Grafana"}, expect=201)
    await owner.post(f"{seen.path}/grants", {"commands": ["STATUS"], "scope": "READ", "apiKeyId": key["keyId"]}, expect=201)
    robot = ApiClient(owner.raw, {"X-Api-Key": key["key"]})

    assert await robot.get(f"/telemetry/series?deviceId={seen.device_id}") == []
    refused = await robot.get(f"/telemetry/series?deviceId={seen.device_id},{hidden.device_id}", expect=403)
    assert refused["error"] == "GRANT_MISSING"


async def test_an_export_is_complete_and_ordered_even_if_the_device_clock_stands_still(
    service: Service, owner: ApiClient
) -> None:
    meter, at_ms = await create_device(owner), int(time.time() * 1000)
    async with meter.online(service) as line:
        for begin in range(0, 3_000, 100):
            await line.publish("telemetry", [{"ts": at_ms, "m": {"n": n}} for n in range(begin, begin + 100)])
    text = (await owner.send("GET", f"{meter.path}/telemetry/export")).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert sorted(float(row["value"]) for row in rows) == list(range(3_000))
    lines = (await owner.send("GET", f"{meter.path}/telemetry/export?format=ndjson")).text.splitlines()
    assert [json.loads(each)["value"] for each in lines] == [float(row["value"]) for row in rows]


async def test_a_deleted_device_leaves_no_rows_even_if_its_last_messages_arrive_late(service: Service, owner: ApiClient) -> None:
    meter = await create_device(owner)
    async with meter.online(service) as line:
        for number in range(50):
            await line.report(count=number)
        sending = [asyncio.create_task(line.report(count=number)) for number in range(50, 60)]
        await owner.delete(meter.path)
        await line.wait_for_disconnect()
        await cancel_tasks(*sending)
    for path in ("", "/telemetry", "/telemetry/latest", "/telemetry?step=1h", "/telemetry/export"):
        await owner.get(meter.path + path, expect=404)


async def test_a_client_that_aborts_an_export_leaves_no_open_read(service: Service, owner: ApiClient) -> None:
    meter, at_ms = await create_device(owner), int(time.time() * 1000) - HOUR_MS
    async with meter.online(service) as line:
        for begin in range(0, 40_000, 400):
            await line.publish("telemetry", [{"ts": at_ms + n, "m": {"a": n, "b": n / 3}} for n in range(begin, begin + 400)])
    for _ in range(40):  # more than the database has readers
        async with owner.raw.stream("GET", f"{meter.path}/telemetry/export?format=ndjson", headers=owner.headers) as answer:
            assert answer.status_code == 200
            await anext(answer.aiter_bytes())
    async with asyncio.timeout(TIMEOUT_S):
        reported = await owner.get(f"{meter.path}/telemetry?limit=1000")
        text = (await owner.send("GET", f"{meter.path}/telemetry/export?format=ndjson")).text
    assert len(reported) == 1_000
    assert len(text.splitlines()) == 80_000
    assert service.error_lines() == []


async def test_readings_are_listed_as_events_only_on_request(service: Service, owner: ApiClient) -> None:
    """They are newest first, for all devices or one; pages do not shift, and the total counts the readings."""
    meters = [await create_device(owner) for _ in range(2)]
    now_ms = int(time.time() * 1000)
    for meter in meters:
        async with meter.online(service) as line:
            await line.publish("telemetry", [{"ts": now_ms - n, "m": {"n": n}} for n in range(5)])
            await owner.wait_until(f"{meter.path}/telemetry?metric=n", lambda reported: len(reported) == 5)
    of_one = await owner.get(f"/events?type=telemetry&deviceId={meters[0].device_id}")
    assert (of_one["total"], of_one["hasMore"]) == (5, False)
    assert [event["timestamp"] for event in of_one["data"]] == [now_ms - n for n in range(5)]
    assert {event["eventType"] for event in of_one["data"]} == {"telemetry"}
    ours = {meter.device_id for meter in meters}
    page = await owner.get("/events?type=telemetry&limit=3")
    async with meters[0].online(service) as line:
        await line.publish("telemetry", {"ts": now_ms + 1, "m": {"n": 99}})
        await owner.wait_until(f"{meters[0].path}/telemetry?metric=n", lambda reported: len(reported) == 6)
    seen = page["data"]
    while page["hasMore"] and len(seen) < 100:
        page = await owner.get(f"/events?type=telemetry&limit=3&cursor={page['cursor']}")
        seen += page["data"]
    mine = [event for event in seen if event["deviceId"] in ours]
    assert len({event["id"] for event in mine}) == len(mine) == 10
    stamps = [event["timestamp"] for event in seen]
    assert stamps == sorted(stamps, reverse=True)
    assert "telemetry" not in {event["eventType"] for event in (await owner.get("/events?limit=200"))["data"]}
