"""After a restore nothing pretends to go on: cursors, feed, commands, edges, plans and the audit stream are of another life."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from support import postgres
from support.command_line import latchboard
from support.device import create_device, register_device
from support.empty_database import bare_postgres
from support.service import ApiClient, Service
from support.syslog_receiver import read_and_hang, syslog_receiver


async def first_pages(owner: ApiClient, device: str) -> dict[str, str]:
    """A cursor of each list, and the path that takes it."""
    events, executions = await owner.get("/events?limit=1"), await owner.get(f"{device}/executions?limit=1")
    log = await owner.send("GET", f"{device}/events?limit=1")
    return {
        "/events?limit=1": events["cursor"],
        f"{device}/executions?limit=1": executions["cursor"],
        f"{device}/events?limit=1": log.headers["Link"].partition("cursor=")[2].partition(">")[0].partition("&")[0],
    }


async def change_much(owner: ApiClient, count: int) -> None:
    """So that the log outgrows what it was: positions exist again, for other events."""
    for _ in range(count):
        await register_device(owner)


@pytest.mark.parametrize("how", ["restore", "a copy in place"])
async def test_every_cursor_from_before_a_restore_is_refused(tmp_path: Path, how: str) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            async with pump.online(service):
                for _ in range(3):
                    await owner.post(f"{pump.path}/command", {"cmd": "STATUS", "waitSeconds": 30})
            assert (await latchboard(service, "backup", tmp_path / "backup"))[0] == 0
            await change_much(owner, 4)
            async with service.feed(owner) as feed:
                cursor = feed.state["cursor"]
            lists = await first_pages(owner, pump.path)
            for path, mark in lists.items():
                await owner.get(f"{path}&cursor={mark}")
            robot = await owner.post("/keys", {"name": "robot"}, expect=201)
        if how == "restore":
            assert (await latchboard(service, "restore", tmp_path / "backup"))[1].count("Stop it first") == 1
        service.stop()
        if how == "restore":
            code, output = await latchboard(service, "restore", tmp_path / "backup")
            assert code == 0, output
            assert "All sessions have ended, of 1 people" in output
            assert len(list(service.data_dir.glob("latchboard.db.before-restore-*[0-9]"))) == 1
        else:
            shutil.rmtree(service.data_dir)
            shutil.copytree(tmp_path / "backup", service.data_dir)
        service.start()
        async with service.api() as owner:
            if how == "restore":
                await owner.get("/events", expect=401)
                await service.sign_in_again(owner)
            await change_much(owner, 12)
            for path, mark in lists.items():
                assert (await owner.get(f"{path}&cursor={mark}", expect=410))["error"] == "OTHER_LIFE"
            async with service.resumed_feed(owner, cursor) as feed:
                assert json.loads(await feed.socket.recv())["type"] == "resync"
                state = json.loads(await feed.socket.recv())
                assert state["type"] == "initial_state"
            async with service.resumed_feed(owner, state["cursor"]) as feed:
                assert json.loads(await feed.socket.recv())["type"] == "initial_state", "a cursor of this life resumes"
            [told] = (await owner.get("/events?type=database_restored"))["data"]
            assert told["source"] == "service"
            assert robot["keyId"] not in {key["keyId"] for key in await owner.get("/keys")}
    assert '"level": "critical"' in service.log()


async def test_what_may_have_run_is_not_told_as_not_run_and_does_not_run_again(tmp_path: Path) -> None:
    """The backup has a command that waits and an edge that is due; both ran after it was made."""
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            due = int(time.time()) + 8
            slot = {"slot": 1, "onTs": due, "offTs": due + 3_600, "enabled": True, "misfireGraceSeconds": 3_600}
            await owner.post(f"{pump.path}/schedules", slot, expect=201)
            async with pump.online(service) as line:
                await line.drain_commands(owner)
            sent = await owner.post(f"{pump.path}/command", {"cmd": "TOGGLE", "ttlSeconds": 20})
            assert (await latchboard(service, "backup", tmp_path / "backup"))[0] == 0
            async with pump.online(service) as line:
                await owner.wait_until(f"{pump.path}/executions/{sent['executionId']}", lambda one: one["status"] == "DONE")
                await owner.wait_until(f"{pump.path}/schedules", lambda slots: slots[0]["lastOutcome"] == "FIRED")
        service.stop()
        assert (await latchboard(service, "restore", tmp_path / "backup"))[0] == 0
        service.start()
        async with service.api() as owner:
            await service.sign_in_again(owner)
            ended = await owner.wait_until(
                f"{pump.path}/executions/{sent['executionId']}", lambda one: one["status"] not in ("QUEUED", "SENT")
            )
            assert ended["status"] == "TIMED_OUT"
            async with pump.online(service) as line:
                slots = await owner.wait_until(
                    f"{pump.path}/schedules", lambda slots: slots[0]["lastOutcome"] not in (None, "LEFT_TO_DEVICE")
                )
                assert slots[0]["lastOutcome"] == "MISSED"
                assert not {"TOGGLE", "ON"} & set(await line.drain_commands(owner))


async def test_the_audit_stream_says_what_the_database_has_lost(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner, syslog_receiver(read_and_hang) as logs:
            await change_much(owner, 3)
            assert (await latchboard(service, "backup", tmp_path / "backup"))[0] == 0
            await change_much(owner, 3)
            stream: list[Any] = ["audit", "stream", f"syslog+tcp://127.0.0.1:{logs.port}", "--cursor", tmp_path / "cursor"]
            stream.append("--once")
            code, output = await latchboard(service, *stream)
            assert code == 0, output
            service.stop()
            assert (await latchboard(service, "restore", tmp_path / "backup"))[0] == 0
            service.start()
            await service.sign_in_again(owner)
            await change_much(owner, 9)
            code, output = await latchboard(service, *stream)
            assert (code, "LOST" in output) == (1, True), output


@pytest.mark.skipif(not postgres.available(), reason="PostgreSQL is not installed")
async def test_a_postgresql_database_that_was_restored_gets_another_life_in_place(tmp_path: Path) -> None:
    url = await bare_postgres()
    with Service(tmp_path, LATCHBOARD_DATABASE_URL=url) as service:
        async with service.api() as owner:
            await change_much(owner, 3)
            cursor = (await owner.get("/events?limit=1"))["cursor"]
        code, output = await latchboard(service, "restore", "--in-place")
        assert (code, "Stop every instance" in output) == (1, True), output
        service.stop()
        code, output = await latchboard(service, "restore", tmp_path)
        assert (code, "pg_restore" in output) == (1, True), output
        code, output = await latchboard(service, "restore", "--in-place", "--keep-sessions")
        assert code == 0, output
        service.start()
        async with service.api() as owner:
            assert (await owner.get(f"/events?limit=1&cursor={cursor}", expect=410))["error"] == "OTHER_LIFE"


async def test_a_restore_that_is_not_possible_changes_nothing(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.data_dir.mkdir(parents=True)
    (service.data_dir / "latchboard.db").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "latchboard.db").write_bytes(b"not a database" * 100)
    for arguments, said in (
        ((tmp_path / "nothing",), "There is no"),
        ((tmp_path / "other",), "cannot be opened"),
        ((service.data_dir,), "is the database itself"),
        ((), "Name a backup"),
    ):
        code, output = await latchboard(service, "restore", *arguments)
        assert (code != 0, said in output, "Traceback" in output) == (True, True, False), output
    assert (service.data_dir / "latchboard.db").read_text() == "mine"
